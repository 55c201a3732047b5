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
    """What a retry takes over: the results up to the first failed step.

    What came after that step (the body's own undoing, for example) is not taken over, but for the finished items of the
    failed step's fan-out.
    """
    succeeded = [step for step in steps if step.status == StepStatus.SUCCEEDED]
    failed = next((step for step in steps if step.status == StepStatus.FAILED), None)
    if failed is None:
        return succeeded
    seen = steps[: steps.index(failed)]
    return [step for step in succeeded if step in seen or _are_one_fan_out(step, failed)]


def kept_for_fork(run_id: str, steps: Sequence[StepState], from_step: str) -> list[StepState]:
    """What a fork takes over: the outcomes of the steps that were reached before `from_step`, failures that the body
    went on after among them, and the other finished items of its fan-out. Raises `StepNotFoundError`."""
    forked = next((step for step in steps if step.step_name == from_step), None)
    if forked is None:
        raise StepNotFoundError(run_id, from_step)
    seen = steps[: steps.index(forked)]
    return [
        step
        for step in steps
        if step is not forked and step.is_settled and (step in seen or _are_one_fan_out(step, forked))
    ]


def _are_one_fan_out(step: StepState, other: StepState) -> bool:
    return other.group is not None and step.group == other.group
