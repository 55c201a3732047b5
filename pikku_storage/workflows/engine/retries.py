"""Taking a failed or cancelled run up again, as a new one: a terminal run never changes."""

from __future__ import annotations

from pikku_storage.workflows.engine.runtime import Runtime
from pikku_storage.workflows.limits import not_after
from pikku_storage.workflows.records import Run, StepState
from pikku_storage.workflows.statuses import RunStatus, StepStatus


def copy_for_retry(runtime: Runtime, run: Run, *, run_id: str) -> bool:
    """Make a run that has the old one's input, state and results up to its first failed step; `False` if it is there.

    What came after that step (the body's own undoing, for example) is not taken over, but for the finished items of the
    failed step's fan-out.
    """
    at = runtime.now()
    # As long as the old one had.
    deadline_at = None if run.deadline_at is None else at + (run.deadline_at - run.created_at)
    values = {
        "id": run_id,
        "workflow": run.workflow,
        "status": RunStatus.RUNNING.value,
        "input": run.input,
        "state": runtime.read_state(run.id),
        "inline": False,
        "graph_hash": run.graph_hash,
        "wire": {**run.wire, "retryOf": run.id},
        "owner_id": run.owner_id,
        "priority": run.priority,
        "concurrency_key": run.concurrency_key,
        "rate_limit_key": run.rate_limit_key,
        "deadline_at": deadline_at,
        "due_at": not_after(runtime.patience_end(at), deadline_at),
        "redrives": 0,
        "created_at": at,
        "updated_at": at,
    }
    kept = _before_failure(runtime.read_steps(run.id))
    return runtime.runs.create_run(values, *runtime.steps.copied(kept, run_id=run_id, at=at))


def _before_failure(steps: list[StepState]) -> list[StepState]:
    succeeded = [step for step in steps if step.status == StepStatus.SUCCEEDED]
    failed = next((step for step in steps if step.status == StepStatus.FAILED), None)
    if failed is None:
        return succeeded
    seen = steps[: steps.index(failed)]
    return [step for step in succeeded if step in seen or (failed.group is not None and step.group == failed.group)]
