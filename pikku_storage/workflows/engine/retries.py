"""Taking a failed or cancelled run up again, as a new one: a terminal run never changes."""

from __future__ import annotations

from pikku_storage.workflows.engine.runtime import Runtime
from pikku_storage.workflows.records import Run, StepState
from pikku_storage.workflows.statuses import RunStatus, StepStatus


def copy_for_retry(runtime: Runtime, run: Run, *, run_id: str) -> bool:
    """Make a run that has the old one's input, state and results; `False` if it is there.

    What came of a failed step (the body's own undoing, for example) is not taken over; the finished items of its
    fan-out and, in a graph, the other branches are.
    """
    at = runtime.now()
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
        "due_at": runtime.patience_end(at),
        "redrives": 0,
        "created_at": at,
        "updated_at": at,
    }
    kept = _kept(runtime.read_steps(run.id))
    return runtime.runs.create_run(values, *runtime.steps.copied(kept, run_id=run_id, at=at))


def _kept(steps: list[StepState]) -> list[StepState]:
    """What succeeded, but for what came of a failure: that is made anew, or not needed."""
    failed = [step for step in steps if step.status == StepStatus.FAILED]
    groups = {step.group for step in failed if step.group is not None}
    # The next step came from the last item of a fan-out, whichever of them failed, and in a graph from all of them.
    sources = {step.step_name for step in failed} | groups
    sources |= {step.step_name for step in steps if step.group in groups}
    following = [step for step in steps if step.from_step_name in sources]
    while following:
        sources |= {name for step in following for name in (step.step_name, step.group) if name is not None}
        following = [step for step in steps if step.from_step_name in sources and step.step_name not in sources]
    return [step for step in steps if step.status == StepStatus.SUCCEEDED and (step.from_step_name not in sources)]
