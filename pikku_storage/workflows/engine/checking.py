"""Running today's body over what a run recorded, without changing or executing anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pikku_storage.exceptions import WorkflowAsyncException, WorkflowInputError, WorkflowSuspendedException
from pikku_storage.json import Json, to_json
from pikku_storage.workflows.definitions import WorkflowDefinition
from pikku_storage.workflows.engine.replay import PATCH_PREFIX, Call, Replay
from pikku_storage.workflows.engine.runtime import Runtime
from pikku_storage.workflows.errors import VERSION_CONFLICT
from pikku_storage.workflows.flow import Flow
from pikku_storage.workflows.histories import History
from pikku_storage.workflows.registry import registry
from pikku_storage.workflows.statuses import RunStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """The first thing that today's code would do otherwise than it is recorded.

    `kind` is `workflow`, `version`, `function`, `data`, `order`, `added`, `removed`, `raised` or `output`;
    docs/how-to/check-replay.md says what each means.
    """

    run_id: str
    workflow: str
    kind: str
    step_name: str | None
    detail: str

    def __str__(self) -> str:
        where = "" if self.step_name is None else f", step {self.step_name!r}"
        return f"{self.workflow}, run {self.run_id}{where}: {self.kind}: {self.detail}"


class _Found(WorkflowAsyncException):
    """The body does something otherwise."""

    def __init__(self, kind: str, step_name: str | None, detail: str) -> None:
        super().__init__(detail)
        self.kind, self.step_name, self.detail = kind, step_name, detail


class _Frontier(WorkflowAsyncException):
    """The body came to steps that are not recorded, or not settled."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(", ".join(names))
        self.names = names


class _Check(Replay):
    """A pass that answers from a history and goes no further."""

    def __init__(self, history: History) -> None:
        super().__init__(Runtime(), history.run, history.steps, token="", inline=False, carry=_carry_nothing)
        self._history = history

    def _before(self, *names: str) -> None:
        if not self._are_settled(names):
            raise _Frontier(names)

    def _settle(self, calls: Sequence[Call]) -> list[Json]:
        for call in calls:
            step = self._steps.get(call.name)
            if step is not None and step.rpc_name == call.target.rpc_name and step.data != call.data:
                raise _Found("data", call.name, f"is given {call.data!r:.200}; recorded is {step.data!r:.200}")
        return super()._settle(calls)

    def patched(self, name: object) -> bool:
        """See `Replay.patched`. A run that has ended is never new enough."""
        is_recorded = f"{PATCH_PREFIX}{name}" in self._steps
        return super().patched(name) if is_recorded or not self.run.is_terminal else False

    def flush_state(self) -> None:
        """Nothing is written."""
        self.state_writes.clear()

    @property
    def stored_state(self) -> dict[str, Json]:
        """The run's state as it is recorded."""
        return dict(self._history.state)

    def is_recorded(self, name: str) -> bool:
        """Whether there is such a step."""
        return name in self._steps


def _carry_nothing(run_id: str) -> None:
    """A check goes no further than what is settled, so no child is carried on."""


def check_replay(history: History) -> Divergence | None:
    """Run today's body over a history: the first divergence, or `None`. No step function is called, nothing is written;
    the body itself runs."""
    run = history.run
    try:
        _replay(history)
    except _Found as found:
        return Divergence(
            run_id=run.id, workflow=run.workflow, kind=found.kind, step_name=found.step_name, detail=found.detail
        )
    return None


def _replay(history: History) -> None:
    run = history.run
    definition = registry.workflows.get(run.workflow)
    if definition is None:
        raise _Found("workflow", None, "is not registered")
    if not isinstance(definition, WorkflowDefinition):
        # Runs of a graph go on with the version that they began with.
        return
    if definition.versioning == "pinned" and run.graph_hash not in {None, definition.graph_hash}:
        raise _Found("version", None, f"is pinned to {run.graph_hash}; today's is {definition.graph_hash}")
    try:
        definition.check(run.input or {})
    except WorkflowInputError as error:
        raise _Found("data", None, str(error)) from None
    check = _Check(history)
    output, raised = _outcome(definition, check)
    beyond = [name for name in check.unreached() if not name.startswith(PATCH_PREFIX)]
    if isinstance(check.left, _Frontier):
        _judge_frontier(run.status, check, check.left.names, beyond)
    elif isinstance(check.left, _Found):
        raise check.left
    elif isinstance(check.left, WorkflowSuspendedException):
        kind = "function" if check.left.error.get("code") == VERSION_CONFLICT else "workflow"
        raise _Found(kind, None, str(check.left.error["message"]))
    elif beyond:
        raise _Found("removed", beyond[0], "is recorded, and the body does not come to it")
    elif run.status == RunStatus.COMPLETED and raised is not None:
        raise _Found("raised", None, f"the run completed; today the body raises {type(raised).__name__}: {raised}")
    elif run.status == RunStatus.COMPLETED and output != run.output:
        raise _Found("output", None, f"is {output!r:.200}; recorded is {run.output!r:.200}")


def _outcome(definition: WorkflowDefinition[Any], check: _Check) -> tuple[Json, BaseException | None]:
    try:
        return to_json(definition.func(Flow(check), **(check.run.input or {})), root="$output"), None
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # noqa: BLE001 - what it means is judged by the caller
        return None, error


def _judge_frontier(status: str, check: _Check, names: Sequence[str], beyond: Sequence[str]) -> None:
    new = next((name for name in names if not check.is_recorded(name)), None)
    if beyond:
        kind, name = ("order", names[0]) if new is None else ("added", new)
        raise _Found(kind, name, f"comes before {beyond[0]!r}, which is recorded")
    if status == RunStatus.COMPLETED:
        raise _Found("added", new or names[0], "the run completed without it")
