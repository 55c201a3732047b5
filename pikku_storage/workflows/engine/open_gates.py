"""Gates that a run stands at, from outside of its passes: somebody resumes the run, or it ends."""

from __future__ import annotations

from datetime import datetime

from pikku_storage.workflows.engine.backoff import delay_of
from pikku_storage.workflows.engine.runtime import Runtime
from pikku_storage.workflows.errors import WORKFLOW_CANCELLED, coded_error
from pikku_storage.workflows.gates import GATE_RPCS, SUSPEND_RPC, reason_of
from pikku_storage.workflows.records import StepState
from pikku_storage.workflows.statuses import StepStatus


def open_gates(runtime: Runtime, run_id: str, *rpc_names: str) -> list[StepState]:
    """The gates (of these kinds) that the run stands at, or has stood at before its code was changed."""
    rows = runtime.steps.filter(run_id=run_id, rpc_name__in=rpc_names or GATE_RPCS, status=StepStatus.RUNNING)
    return [StepState.from_row(row) for row in rows.values(*StepState.COLUMNS)]


def pass_suspensions(runtime: Runtime, run_id: str) -> None:
    """Somebody resumes the run: a suspension that it stands at is over."""
    for step in open_gates(runtime, run_id, SUSPEND_RPC):
        result = {"reason": reason_of(step), "suspendedAt": step.created_at.isoformat()}
        at = runtime.now()
        runtime.steps.succeed(step.step_id, result, at=at, wake=runtime.runs.wake_up(run_id, at))


def close_gates(runtime: Runtime, run_id: str) -> None:
    """The run has ended, so nobody is waited for any more."""
    for step in open_gates(runtime, run_id):
        close(runtime, step)


def close(runtime: Runtime, step: StepState) -> bool:
    """End a gate without an outcome."""
    error = coded_error(WORKFLOW_CANCELLED, "The run has ended")
    return runtime.steps.fail(step.step_id, error, at=runtime.now())


def see_to_gate(runtime: Runtime, step: StepState, *, is_over: bool, now: datetime) -> None:
    """A gate is due: its run has ended, or the pass that opened it has, before the run was suspended."""
    if is_over:
        close(runtime, step)
        return
    # The run has a due time of its own; the next pass leaves the gate properly.
    redrives = (step.redrives or 0) + 1
    runtime.steps.postpone(step.step_id, seen=step.due_at, due_at=now + delay_of(redrives - 1), redrives=redrives)
