"""Taking a run up again as a new one: a run that ended never changes, so what it recorded is copied."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from pikku_storage.exceptions import StepNotFoundError
from pikku_storage.json import Json
from pikku_storage.workflows.engine.runtime import Runtime
from pikku_storage.workflows.limits import not_after
from pikku_storage.workflows.records import Run, StepState
from pikku_storage.workflows.registry import registry
from pikku_storage.workflows.statuses import RunStatus, StepStatus

LINKS = frozenset({"parentRunId", "parentStepId", "depth", "retryOf", "rerunOf", "forkOf", "forkFrom"})
"""Keys of `wire` that say where this very run came from; a copy has its own."""


def copy_run(
    runtime: Runtime,
    run: Run,
    kept: Sequence[StepState],
    *,
    run_id: str,
    wire: Mapping[str, Json],
    data: Mapping[str, Json] | None = None,
) -> bool:
    """Make a run with the old one's state and the outcomes of the `kept` steps, and with its input unless there is
    `data`; `False` if it is there. Only for `data` the workflow must be registered."""
    at = runtime.now()
    controlled = _flow_control(run, data, at)
    values = {
        **controlled,
        "id": run_id,
        "workflow": run.workflow,
        "status": RunStatus.RUNNING.value,
        "input": run.input if data is None else data,
        "state": runtime.read_state(run.id),
        "inline": False,
        "graph_hash": run.graph_hash,
        "wire": {**own_wire(run), **wire},
        "owner_id": run.owner_id,
        "origin_run_id": run.id,
        "due_at": not_after(runtime.patience_end(at), controlled["deadline_at"]),
        "redrives": 0,
        "created_at": at,
        "updated_at": at,
    }
    return runtime.runs.create_run(values, *runtime.steps.copied(kept, run_id=run_id, at=at))


def _flow_control(run: Run, data: Mapping[str, Json] | None, at: datetime) -> dict[str, Any]:
    """A copy stands in the same lines, and has as long as the old run had; with other data, keys of its own."""
    deadline_at = run.deadline_from(at)
    if data is not None:
        return registry.workflow(run.workflow).flow_control(data, at=at, priority=run.priority, deadline=deadline_at)
    return {
        "priority": run.priority,
        "deadline_at": deadline_at,
        "concurrency_key": run.concurrency_key,
        "rate_limit_key": run.rate_limit_key,
    }


def own_wire(run: Run) -> dict[str, Json]:
    """What the run keeps about its start, without its links to other runs."""
    return {name: value for name, value in run.wire.items() if name not in LINKS}


def kept_for_retry(steps: Sequence[StepState]) -> list[StepState]:
    """What a retry takes over: every result but of what came of a failed step (the body's own undoing, for example).
    The finished items of its fan-out are taken over and, in a graph, the other branches."""
    after = _following(steps, [step for step in steps if step.status == StepStatus.FAILED])
    return [step for step in steps if step.status == StepStatus.SUCCEEDED and step.step_name not in after]


def kept_for_fork(run_id: str, steps: Sequence[StepState], from_step: str) -> list[StepState]:
    """What a fork takes over: the outcomes of all steps that did not come of `from_step`, failures that the body went
    on after among them. In a graph that is what `from_step` came of, and the other branches without their failures,
    which would end the run. Raises `StepNotFoundError`."""
    forked = next((step for step in steps if step.step_name == from_step), None)
    if forked is None:
        raise StepNotFoundError(run_id, from_step)
    elsewhere = [
        step
        for step in steps
        if step.status == StepStatus.FAILED
        and step.step_name != from_step
        and (step.group is None or step.group != forked.group)
        and from_step not in _following(steps, [step])
    ]
    left = _following(steps, [forked, *elsewhere]) | {from_step, *(step.step_name for step in elsewhere)}
    return [step for step in steps if step.is_settled and step.step_name not in left]


def _following(steps: Sequence[StepState], sources: Sequence[StepState]) -> set[str]:
    """The names of the steps that came of these. What follows a fan-out came of its last item in a body, in a graph of
    all of them."""
    groups = {step.group for step in sources if step.group is not None}
    names = {step.step_name for step in steps if step in sources or step.group in groups} | groups
    found: set[str] = set()
    while following := [step for step in steps if step.from_step_name in names and step.step_name not in found]:
        found |= {step.step_name for step in following}
        names = {name for step in following for name in (step.step_name, step.group) if name is not None}
    return found
