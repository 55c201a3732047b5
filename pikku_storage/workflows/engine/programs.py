"""What a run goes by: the body of its workflow as it is now, or the graph that it began with (contract services.md
§1.11)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from pikku_storage.exceptions import PikkuError, WorkflowGraphError, WorkflowInputError, WorkflowNotFoundError
from pikku_storage.json import Json
from pikku_storage.workflows import reads
from pikku_storage.workflows.definitions import BaseWorkflow, WorkflowDefinition
from pikku_storage.workflows.engine.graphs import run_graph
from pikku_storage.workflows.engine.replay import Replay
from pikku_storage.workflows.engine.runtime import Runtime
from pikku_storage.workflows.errors import VERSION_CONFLICT, VERSION_NOT_FOUND, WORKFLOW_NOT_FOUND
from pikku_storage.workflows.flow import Flow
from pikku_storage.workflows.graphs.declaration import GraphDefinition
from pikku_storage.workflows.graphs.structure import GRAPH_SOURCE, Graph
from pikku_storage.workflows.records import Run
from pikku_storage.workflows.registry import registry

Program: TypeAlias = Callable[[Replay], Json]


class UnfitVersionError(PikkuError):
    """There is nothing that this run can go by. It waits, or fails for good if waiting would not help."""

    def __init__(self, code: str, message: str, *, is_final: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.is_final = is_final


def program_of(runtime: Runtime, run: Run) -> Program:
    """What carries the run on. Raises `UnfitVersionError`."""
    known = registry.workflows.get(run.workflow)
    graph = _graph_of(runtime, run, known)
    if graph is not None:
        return lambda replay: run_graph(graph, replay)
    if known is None:
        raise UnfitVersionError(WORKFLOW_NOT_FOUND, str(WorkflowNotFoundError(run.workflow)))
    if not isinstance(known, WorkflowDefinition):
        raise _unfit_for_graph(runtime, run)
    return _body_of(known, run)


def is_of_graph(runtime: Runtime, run: Run) -> bool:
    """Whether the run goes by a graph, as far as that can be told."""
    if run.graph_hash is None:
        return False
    known = registry.workflows.get(run.workflow)
    if known is not None and known.graph_hash == run.graph_hash:
        return isinstance(known, GraphDefinition)
    stored = reads.version(runtime.using, run.workflow, run.graph_hash)
    return stored is not None and stored.source == GRAPH_SOURCE


def _graph_of(runtime: Runtime, run: Run, known: BaseWorkflow | None) -> Graph | None:
    """The graph of the run's version; no statement if that is today's."""
    if run.graph_hash is None:
        return None
    if known is not None and known.graph_hash == run.graph_hash:
        return known.structure if isinstance(known, GraphDefinition) else None
    try:
        return reads.stored_graph(runtime.using, run.workflow, run.graph_hash)
    except WorkflowGraphError as error:
        raise UnfitVersionError(error.code, str(error), is_final=True) from None


def _unfit_for_graph(runtime: Runtime, run: Run) -> UnfitVersionError:
    version = f"version {run.graph_hash} of {run.workflow!r}"
    if run.graph_hash is None or reads.version(runtime.using, run.workflow, run.graph_hash) is None:
        return UnfitVersionError(
            VERSION_NOT_FOUND, f"The run began with {version}, which is not stored any more", is_final=True
        )
    return UnfitVersionError(
        VERSION_CONFLICT, f"The run began with {version}, which was a function; today {run.workflow!r} is a graph"
    )


def _body_of(definition: WorkflowDefinition[Any], run: Run) -> Program:
    if definition.versioning == "pinned" and run.graph_hash not in {None, definition.graph_hash}:
        raise UnfitVersionError(
            VERSION_CONFLICT,
            f"Workflow {run.workflow} is pinned: the run was started with version {run.graph_hash}, and this worker "
            f"has {definition.graph_hash}",
        )
    data = run.input or {}
    try:
        definition.check(data)
    except WorkflowInputError as error:
        raise UnfitVersionError(VERSION_CONFLICT, str(error)) from None
    return lambda replay: definition.func(Flow(replay), **data)
