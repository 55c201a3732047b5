"""Carrying out a step that came as a message of its own."""

from __future__ import annotations

import logging
from dataclasses import replace

from pikku_storage.exceptions import (
    RPCNotFoundError,
    StepNotFoundError,
    WorkflowDepthError,
    WorkflowError,
    WorkflowInputError,
    WorkflowStepFunctionMismatchError,
)
from pikku_storage.workflows.definitions import BaseWorkflow
from pikku_storage.workflows.engine import admission, children
from pikku_storage.workflows.engine.attempts import attempt_step, settle_attempt, what_follows
from pikku_storage.workflows.engine.backoff import delay_of
from pikku_storage.workflows.engine.calls import Outcome
from pikku_storage.workflows.engine.deadlines import end_overdue, is_over
from pikku_storage.workflows.engine.passes import drive
from pikku_storage.workflows.engine.replay import target_of
from pikku_storage.workflows.engine.runtime import Runtime
from pikku_storage.workflows.engine.waits import waits_for_error
from pikku_storage.workflows.errors import RPC_NOT_FOUND, coded_error, describe_error
from pikku_storage.workflows.limits import not_after
from pikku_storage.workflows.querysets import LIVE, Claim
from pikku_storage.workflows.records import Run, StepState
from pikku_storage.workflows.registry import registry
from pikku_storage.workflows.statuses import RunStatus, StepStatus

logger = logging.getLogger(__name__)

CLAIMABLE = frozenset({StepStatus.PENDING, StepStatus.SCHEDULED, StepStatus.FAILED})


def claim_step(
    runtime: Runtime, run_id: str, step_name: str, rpc_name: str | None = None
) -> tuple[StepState, Claim] | None:
    """Take a step for this worker, or `None` if there is nothing to do (contract services.md §1.5).

    Raises `StepNotFoundError`, and `WorkflowStepFunctionMismatchError` if the message names another function than the
    row.
    """
    step = runtime.read_step(run_id, step_name)
    if step is None:
        raise StepNotFoundError(run_id, step_name)
    if rpc_name is not None and rpc_name != step.rpc_name:
        raise WorkflowStepFunctionMismatchError(step_name, step.rpc_name, rpc_name)
    return claim_seen(runtime, step)


def claim_seen(runtime: Runtime, step: StepState) -> tuple[StepState, Claim] | None:
    """Take the step if it still is as it was read, and its run lives."""
    if not _is_claimable(step):
        return None
    claim = runtime.claim(after=step.next_at)
    taken = runtime.steps.claim(step, claim, inside={"status": LIVE, "cancel_requested_at": None})
    return None if taken is None else (taken, claim)


def _is_claimable(step: StepState) -> bool:
    return step.status in CLAIMABLE and (step.status != StepStatus.FAILED or step.has_attempts_left)


def execute_step(runtime: Runtime, run_id: str, step_name: str, rpc_name: str | None = None) -> None:
    """Claim and carry out a queued step, then the run if that was what it waited for.

    Beside what the run itself needs: one read, claim (step and history), outcome (step, history and, for a step on its
    own, the run's wake-up). A message is only a hint, so what it says is read again; that is what the read is for, and
    all that a duplicate costs.
    """
    found = runtime.read_step_and_run(run_id, step_name)
    if found is None:
        logger.info("Step %s of run %s is gone; its message is dropped", step_name, run_id)
        return
    step, run = found
    if rpc_name is not None and rpc_name != step.rpc_name:
        raise WorkflowStepFunctionMismatchError(step_name, step.rpc_name, rpc_name)
    if run.is_terminal or step.is_settled or step.rpc_name is None or step.is_gate:
        return
    if step.retry_at is not None and step.retry_at > runtime.now():
        # An old message once more; the retry has a time of its own.
        return
    if is_over(run.must_end_at, runtime.now()):
        end_overdue(runtime, run_id)
        return
    definition = registry.workflows.get(step.rpc_name)
    if definition is not None:
        _execute_workflow(runtime, run, step, definition)
        return
    try:
        target = target_of(registry.function(step.rpc_name))
        if step.timeout_ms is not None:
            target = replace(target, timeout_ms=step.timeout_ms)
    except RPCNotFoundError as error:
        _suspend(runtime, step, run, error)
        return
    if admission.holds_back(runtime, run):
        return
    taken = claim_seen(runtime, step)
    if taken is None:
        return
    step, claim = taken
    after = attempt_step(runtime, run, step, claim, target, wakes=step.group is None)
    if after is not None:
        follow(runtime, after, priority=run.priority)


def _execute_workflow(runtime: Runtime, run: Run, step: StepState, definition: BaseWorkflow) -> None:
    """A step whose function is a workflow is done by a run of its own, which this worker carries on."""
    if step.awaits_child:
        # Whoever began the step did not come to make the child, or the child did not come to say how it ended.
        children.start(runtime, run, [step], inline=False)
    else:
        try:
            children.check_call(runtime, run, definition, step.data or {})
        except (WorkflowInputError, WorkflowDepthError) as error:
            _refuse(runtime, run, step, error)
            return
        if admission.holds_back(runtime, run):
            return
        begun = children.begin(runtime, run, step, inside={"status": LIVE}) if _is_claimable(step) else None
        if begun is None:
            return
        step = begun
    carry_on(runtime, str(step.child_run_id))


def _refuse(runtime: Runtime, run: Run, step: StepState, error: WorkflowError) -> None:
    taken = claim_seen(runtime, step)
    if taken is None:
        return
    step, claim = taken
    outcome = Outcome(error=describe_error(error), is_final=True)
    after = settle_attempt(runtime, step, outcome, token=claim.token, wakes=step.group is None)
    if after is not None:
        follow(runtime, after, priority=run.priority)


def carry_on(runtime: Runtime, run_id: str) -> bool:
    """`drive` a run; if it has ended already, make sure that its parent knows. `False` for an unknown run."""
    if drive(runtime, run_id):
        return True
    run = runtime.read_run(run_id)
    if run is not None and run.is_terminal:
        children.notify_parent(runtime, run)
    return run is not None


def follow(runtime: Runtime, step: StepState, *, priority: int | None, drives: bool = True) -> None:
    """What comes after an attempt of a queued step: its retry's message, or the run, if nothing else is open."""
    run_id = what_follows(runtime, step, priority=priority)
    if run_id is None:
        return
    if drives:
        # Another trip through the broker would only cost time: this worker is free.
        drive(runtime, run_id)
    else:
        runtime.hint(runtime.message(run_id, priority=priority))


def _suspend(runtime: Runtime, step: StepState, run: Run, error: RPCNotFoundError) -> None:
    """The run waits, visibly; the step stays as it is, and the relay tries it again, less and less often."""
    logger.warning("Run %s waits for a missing function: %s", step.run_id, error)
    at = runtime.now()
    redrives = step.redrives or 0
    due_at = at + delay_of(redrives)
    runtime.steps.postpone(step.step_id, seen=step.due_at, due_at=due_at, redrives=redrives)
    reason = coded_error(RPC_NOT_FOUND, str(error))
    if runtime.runs.set_status(
        step.run_id,
        RunStatus.SUSPENDED,
        at=at,
        output=None,
        error=reason,
        due_at=not_after(due_at, run.must_end_at),
        waits_for=waits_for_error(reason, at),
    ):
        admission.give_back_suspended(runtime, run)
