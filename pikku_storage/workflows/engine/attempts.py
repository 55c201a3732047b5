"""One attempt of a step: call the function under a lease, write the outcome, say what follows."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from pikku_storage.ids import invocation_id
from pikku_storage.json import Json
from pikku_storage.retry import RetryPolicy
from pikku_storage.workflows.context import StepContext
from pikku_storage.workflows.engine.calls import Outcome, call
from pikku_storage.workflows.engine.leases import handed_back, keep
from pikku_storage.workflows.engine.runtime import Runtime
from pikku_storage.workflows.querysets import Claim
from pikku_storage.workflows.records import Run, StepState
from pikku_storage.workflows.statuses import StepStatus

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a step calls. `rpc_name` is `None` for a plain callable, which only the body knows."""

    func: Callable[..., Any]
    rpc_name: str | None
    timeout_ms: int | None


@dataclass(frozen=True, slots=True)
class _StateOfRun:
    """What a step function may do with the state of its run. It holds no connection between two calls."""

    runtime: Runtime
    run_id: str

    def read(self) -> dict[str, Json]:
        """See `RunState`."""
        try:
            return self.runtime.read_state(self.run_id)
        finally:
            self.runtime.engine.release()

    def write(self, key: str, value: Any) -> None:
        """See `RunState`."""
        try:
            self.runtime.write_state(self.run_id, key, value)
        finally:
            self.runtime.engine.release()


def attempt_step(
    runtime: Runtime, run: Run, step: StepState, claim: Claim, target: Target, *, wakes: bool = False
) -> StepState | None:
    """Carry out the claimed attempt of `step`; answers with the step as it is afterwards, or `None` if the outcome came
    too late.

    A failed step whose `due_at` is set has attempts left, and that is when the next one is due. `wakes`: a settled step
    wakes its run.
    """
    context = StepContext(
        run_id=run.id,
        step_id=step.step_id,
        step_name=step.step_name,
        invocation_id=invocation_id(run.id, step.step_name),
        from_invocation_id=None if step.from_step_name is None else invocation_id(run.id, step.from_step_name),
        attempt=step.attempt_count,
        owner_id=run.owner_id,
        _state=_StateOfRun(runtime, run.id),
    )
    runtime.engine.release()
    with handed_back(
        runtime.engine.connection,
        lambda: runtime.steps.give_up(step.step_id, claim.token, at=runtime.now()),
    ):
        with keep(lambda: runtime.steps.renew(step.step_id, claim.token, until=runtime.lease_end(runtime.now()))):
            outcome = call(target.func, step.data or {}, context, target.timeout_ms)
        after = settle_attempt(runtime, step, outcome, token=claim.token, wakes=wakes)
    if outcome.exception is not None and after is not None:
        logger.log(
            logging.ERROR if after.is_settled else logging.WARNING,
            "Attempt %s of %s of step %s of run %s failed%s",
            step.attempt_count,
            step.max_attempts,
            step.step_name,
            run.id,
            "" if after.is_settled else f"; the next one is due at {after.due_at:%H:%M:%S} UTC",
            exc_info=outcome.exception,
        )
    if after is None:
        logger.warning(
            "Attempt %s of step %s of run %s ended too late; its outcome is dropped (%s)",
            step.attempt_count,
            step.step_name,
            run.id,
            "failed" if outcome.error else "succeeded",
        )
    return after


def settle_attempt(
    runtime: Runtime,
    step: StepState,
    outcome: Outcome,
    *,
    token: str | None,
    wakes: bool,
    seen_due: datetime | None = None,
) -> StepState | None:
    """Write the outcome of the attempt that `token` holds; `None` if that is not the live one any more."""
    at = max(runtime.now(), step.updated_at)
    retry_at = None
    if outcome.error is not None and step.has_attempts_left and not outcome.is_final:
        retry_at = at + RetryPolicy(step.retries, step.retry_delay).delay_after(step.attempt_count)
    wake = runtime.runs.wake_up(step.run_id, at) if wakes and retry_at is None else None
    fence: dict[str, Any] = {"at": at, "attempt": step.attempt_count, "token": token, "wake": wake}

    def write() -> bool:
        if outcome.error is None:
            return runtime.steps.succeed(step.step_id, outcome.result, branch=outcome.branch, **fence)
        return runtime.steps.fail(step.step_id, outcome.error, retry_at=retry_at, seen_due=seen_due, **fence)

    after = replace(
        step,
        status=(StepStatus.SUCCEEDED if outcome.error is None else StepStatus.FAILED).value,
        result=outcome.result,
        branch_taken=outcome.branch or step.branch_taken,
        error=outcome.error,
        due_at=retry_at,
        redrives=None,
        claim_token=None,
        updated_at=at,
    )
    return after if runtime.steadily(write) or _is_written(runtime, after) else None


def what_follows(runtime: Runtime, step: StepState, *, priority: int | None) -> str | None:
    """What comes after an attempt that somebody else than the step's run carried out: the run's id, if the run can go
    on now. The next attempt's message is sent here, with that priority.

    Whoever finishes a step of a fan-out asks whether any of its group is still unsettled. Two may both find none and
    wake the run twice, but none can miss it, and there is no counter to get wrong.
    """
    if not step.is_settled:
        if step.due_at is not None:
            # What has no queue is begun again in its run.
            name = None if step.queue is None else step.step_name
            delay = step.due_at - runtime.now()
            runtime.hint(runtime.message(step.run_id, name, queue=step.queue, delay=delay, priority=priority))
        return None
    if step.group is not None and (
        runtime.steps.is_group_open(step.run_id, step.group) or not runtime.runs.wake(step.run_id, at=runtime.now())
    ):
        return None
    return step.run_id


def _is_written(runtime: Runtime, after: StepState) -> bool:
    """Whether the outcome is there although its write touched nothing: a first try whose answer was lost on the way."""
    now = runtime.read_step(after.run_id, after.step_name)
    return now is not None and (now.status, now.attempt_count, now.updated_at, now.due_at) == (
        after.status,
        after.attempt_count,
        after.updated_at,
        after.due_at,
    )
