"""A pass: one worker inside a run (engine.md §2)."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from django.db import Error as DatabaseError

from pikku_storage.access.acting import acting_as
from pikku_storage.exceptions import (
    EngineInterrupted,
    PassLostError,
    PikkuMissingMetaError,
    WorkflowAsyncException,
    WorkflowDeadlineException,
    WorkflowSuspendedException,
)
from pikku_storage.ids import new_token
from pikku_storage.json import Json, to_json
from pikku_storage.workflows.dispatch import waiting_is_no_error
from pikku_storage.workflows.engine import admission
from pikku_storage.workflows.engine.admission import Refusal
from pikku_storage.workflows.engine.backoff import delay_of
from pikku_storage.workflows.engine.calls import ends_the_process
from pikku_storage.workflows.engine.children import tell_parent, wind_up
from pikku_storage.workflows.engine.deadlines import exceeded, is_over
from pikku_storage.workflows.engine.leases import handed_back, keep
from pikku_storage.workflows.engine.programs import Program, UnfitVersionError, program_of
from pikku_storage.workflows.engine.replay import GateLeft, Replay
from pikku_storage.workflows.engine.runtime import Runtime
from pikku_storage.workflows.engine.waits import waits_for_error, waits_for_gate
from pikku_storage.workflows.errors import (
    DEADLINE_EXCEEDED,
    WORKFLOW_NOT_FOUND,
    coded_error,
    describe_error,
)
from pikku_storage.workflows.gates import APPROVAL_RPC
from pikku_storage.workflows.handle import FIRST_POLL, POLL_FACTOR
from pikku_storage.workflows.limits import not_after
from pikku_storage.workflows.records import Run, StepState
from pikku_storage.workflows.statuses import RunStatus

logger = logging.getLogger(__name__)

_LONGEST_POLL = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ended:
    status: RunStatus
    output: Json = None
    error: Json = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waits:
    """`error` makes the run suspended. `refusal`: it is not let in, or not on."""

    error: Json = None
    refusal: Refusal | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Left:
    """What is to be done after a run was left: `again`, the same run, after a pause; `next_id`, another one."""

    again: bool = False
    next_id: str | None = None


def drive(
    runtime: Runtime, run_id: str, *, token: str | None = None, new: Run | None = None, inline: bool = False
) -> bool:
    """Carry a run on as far as it goes, and its parent if that has waited for it. `False` if it could not be entered:
    it has ended, or another worker is inside, which sees every wake-up.

    `token` is the pass the caller is inside already, because it has just created the run `new` that way.

    Raises `PikkuMissingMetaError` for a run of a workflow that is not registered, after suspending it, and
    `WorkflowDispatchException` if steps could not be dispatched, after leaving properly.
    """
    left = first = _drive_one(runtime, run_id, token=token, new=new, inline=inline)
    while left is not None and left.next_id is not None:
        left = _drive_one(runtime, left.next_id)
    return first is not None


def _drive_one(
    runtime: Runtime, run_id: str, *, token: str | None = None, new: Run | None = None, inline: bool = False
) -> _Left | None:
    """Carry one run on; `None` if it could not be entered."""
    inline = inline or runtime.is_inline
    token = token or new_token()
    run = new or _enter(runtime, run_id, token)
    if run is None:
        return None
    poll = FIRST_POLL
    left = _Left(again=True)
    with handed_back(runtime.engine.connection, lambda: runtime.runs.give_up(run_id, token, due_at=runtime.now())):
        while run is not None:
            left = _go_through(runtime, run, token, is_new=run is new, inline=inline)
            if not left.again:
                break
            # Inline, and somebody else has a step of this run.
            runtime.sleep(poll)
            poll = min(poll * POLL_FACTOR, _LONGEST_POLL)
            run = _enter(runtime, run_id, token)
    return left


def _carry_child(runtime: Runtime, run_id: str, *, inline: bool) -> None:
    """Carry a child on in a pass of its parent, which sees for itself what came of it."""
    with waiting_is_no_error(run_id):
        _drive_one(runtime, run_id, inline=inline)


def _go_through(runtime: Runtime, entered: Run, token: str, *, is_new: bool, inline: bool) -> _Left:
    """Pass after pass, until the run has ended, waits, or is not ours any more."""
    run: Run | None = entered
    run_id = entered.id
    deadline_at = entered.must_end_at

    def renew() -> bool:
        return runtime.runs.renew(run_id, token, until=runtime.lease_end(runtime.now()), deadline_at=deadline_at)

    if deadline_at is not None and deadline_at < runtime.lease_end(runtime.now()) and not renew():
        return _Left()
    while run is not None and not run.is_terminal:
        with keep(renew):
            try:
                steps = [] if is_new else runtime.read_steps(run_id)
                replay, outcome = _pass(runtime, run, steps, token, inline=inline)
            except PassLostError:
                # Inline there may be nobody else to go on: a cancellation that is to undo has shut this pass out.
                return _Left(again=inline)
            except EngineInterrupted as interrupted:
                # The database failed, not the body. The run is looked at again when its lease ends, or sooner if it
                # can be told so.
                with suppress(DatabaseError):
                    runtime.runs.give_up(run_id, token, due_at=runtime.now() + delay_of(0))
                # With the cause that the driver gave it.
                raise interrupted.error from interrupted.error.__cause__
        if isinstance(outcome, _Ended):
            return _Left(next_id=_end(runtime, run, token, replay, outcome))
        if _write(runtime, run, token, replay, outcome):
            # What is under way may be the caller itself, which asked for the run to be undone: it looks again after it.
            waits_for_others = replay.waits_for_somebody or replay.look_again_at is not None
            return _Left(again=inline and outcome.error is None and not waits_for_others)
        # Woken meanwhile: go round again. Or lost to another worker, or cancelled: nothing more to do here.
        if not renew():
            return _Left()
        run, is_new = runtime.read_run(run_id), False
    return _Left()


def _end(runtime: Runtime, run: Run, token: str, replay: Replay, outcome: _Ended) -> str | None:
    """End the run; answers with its parent, if that can go on now."""
    at = runtime.now()
    # What the body has no more, nobody shall answer.
    also = [runtime.steps.gates_due(run.id, at)] if replay.has_open_gate else []
    ended = runtime.runs.settle(
        run.id, token, outcome.status, at=at, output=outcome.output, error=outcome.error, also=also
    )
    if not ended:
        # Cancelled, or taken over: whoever did that sees to the rest.
        return None
    if outcome.status is RunStatus.CANCELLED or _is_late(outcome):
        wind_up(runtime, run.id)
    admission.leave_for_good(runtime, run, run.id)
    if run.parent_run_id is None:
        return None
    child = replace(run, status=outcome.status.value, output=outcome.output, error=outcome.error)
    return tell_parent(runtime, child)


def _is_late(outcome: _Ended) -> bool:
    return isinstance(outcome.error, dict) and outcome.error.get("code") == DEADLINE_EXCEEDED


def _enter(runtime: Runtime, run_id: str, token: str) -> Run | None:
    at = runtime.now()
    return runtime.runs.enter(run_id, token, worker=runtime.worker, at=at, until=runtime.lease_end(at))


def _pass(
    runtime: Runtime, run: Run, steps: list[StepState], token: str, *, inline: bool
) -> tuple[Replay, _Ended | _Waits]:
    carry = partial(_carry_child, runtime, inline=inline)
    replay = Replay(runtime, run, steps, token=token, inline=inline, carry=carry)
    if is_over(run.must_end_at, runtime.now()):
        return replay, _Ended(status=RunStatus.FAILED, error=exceeded(run))
    if run.cancel_request is not None and not steps:
        # Nothing is to be undone, so it needs neither its code nor its turn.
        return replay, _Ended(status=RunStatus.CANCELLED, error=run.cancel_request)
    try:
        program = program_of(runtime, run)
    except UnfitVersionError as error:
        unfit = coded_error(error.code, str(error))
        return replay, _Ended(status=RunStatus.FAILED, error=unfit) if error.is_final else _Waits(error=unfit)
    refusal = admission.admit(runtime, run, token)
    if refusal is not None:
        return replay, _Waits(refusal=refusal)
    return replay, _carry_out(program, replay)


def _carry_out(program: Program, replay: Replay) -> _Ended | _Waits:
    output: Json = None
    raised: BaseException | None = None
    try:
        with acting_as(replay.run.owner_id):
            output = to_json(program(replay), root="$output")
    except BaseException as error:  # noqa: BLE001 - sorted out below
        raised = error
    if replay.left is None:
        replay.flush_state()
    if raised is not None and replay.left is None and ends_the_process(raised):
        raise raised
    if replay.run.cancel_request is not None and not _is_interrupted(replay.left):
        return _undone(replay, replay.run.cancel_request)
    if replay.left is not None:
        # Whatever the body made of the exception that took it out.
        return _left(replay)
    if raised is None:
        return _Ended(status=RunStatus.COMPLETED, output=output)
    logger.error("Run %s of workflow %s failed: %s", replay.run.id, replay.run.workflow, raised)
    return _Ended(status=RunStatus.FAILED, error=describe_error(raised))


def _is_interrupted(reason: BaseException | None) -> bool:
    """Whether a pass cannot do anything more, not even undo."""
    return isinstance(reason, (EngineInterrupted, PassLostError))


def _undone(replay: Replay, error: dict[str, Json]) -> _Ended | _Waits:
    """The body went as far as it had got when its run was to be cancelled; however it took that."""
    try:
        replay.undo(error)
    except (WorkflowAsyncException, WorkflowSuspendedException):
        return _left(replay)
    return _Ended(status=RunStatus.CANCELLED, error=error)


def _left(replay: Replay) -> _Ended | _Waits:
    match replay.left:
        case WorkflowSuspendedException(error=error):
            return _Waits(error=error)
        case WorkflowAsyncException():
            return _Waits(refusal=replay.refusal)
        case WorkflowDeadlineException():
            return _Ended(status=RunStatus.FAILED, error=exceeded(replay.run))
        case reason:
            assert reason is not None  # noqa: S101 - it was left
            raise reason


def _due_at(runtime: Runtime, run: Run, replay: Replay, outcome: _Waits, at: datetime) -> datetime:
    if outcome.error is not None:
        # What is missing may be deployed at any time, so the relay looks again, less and less often.
        return at + delay_of(run.redrives or 0)
    if outcome.refusal is not None and replay.inline:
        # Its process asks again and again. If that dies, a worker takes over.
        return runtime.patience_end(at)
    return replay.look_again_at or runtime.stalled_end(at)


def _redrives(run: Run, replay: Replay, outcome: _Waits) -> int | None:
    if outcome.error is not None:
        return run.redrives or 0
    return None if replay.look_again_at is None else 0


def _waits_for(replay: Replay, outcome: _Waits, at: datetime) -> Json:
    if outcome.error is not None:
        return waits_for_error(outcome.error, at)
    return replay.waits_for(at) if outcome.refusal is None else outcome.refusal.waits_for


def _write(runtime: Runtime, run: Run, token: str, replay: Replay, outcome: _Waits) -> bool:
    """End the pass; `False` if the run was woken meanwhile, and must be gone through again, or is lost."""
    at = runtime.now()
    is_idle = outcome.error is not None or replay.waits_for_time or replay.waits_for_children
    frees = is_idle and admission.give_back(runtime, run, token)
    refusal = outcome.refusal
    if outcome.error is not None and replay.gate_left is not None:
        left = _leave_at_gate(runtime, run, token, replay.gate_left, outcome, at)
    else:
        left = runtime.runs.leave(
            run.id,
            token,
            seen_wake=run.wake_token,
            at=at,
            due_at=not_after(_due_at(runtime, run, replay, outcome, at), run.must_end_at),
            waits_for=_waits_for(replay, outcome, at),
            suspended_for=outcome.error,
            redrives=_redrives(run, replay, outcome),
            lines_up=None if refusal is None else runtime.runs.place_in(refusal.line, run, since=refusal.since),
        )
    if frees or (left and refusal is not None):
        # Whoever lines up looks once more: a slot may have become free just before.
        admission.call_next(runtime, run, sweeps=refusal is not None)
    if not left:
        return False
    if outcome.error is not None:
        level = logging.WARNING if replay.gate_left is None else logging.INFO
        logger.log(level, "Run %s of workflow %s is suspended: %s", run.id, run.workflow, outcome.error["message"])
    if outcome.error is not None and outcome.error["code"] == WORKFLOW_NOT_FOUND:
        raise PikkuMissingMetaError(run.workflow)
    if replay.wait_until is not None and not replay.inline:
        runtime.hint(runtime.message(run.id, delay=replay.wait_until - at, priority=run.priority))
    if replay.dispatch_error is not None:
        raise replay.dispatch_error
    return True


def _leave_at_gate(runtime: Runtime, run: Run, token: str, gate: GateLeft, outcome: _Waits, at: datetime) -> bool:
    """Suspend the run for a person; from then on nothing is due but the end of the gate or of the run's time."""
    step = gate.step
    return runtime.runs.leave(
        run.id,
        token,
        seen_wake=run.wake_token,
        at=at,
        due_at=gate.until if run.must_end_at is None else not_after(run.must_end_at, gate.until),
        waits_for=waits_for_gate(step, gate.until),
        suspended_for=outcome.error,
        gate_opened_at=step.created_at if step.rpc_name == APPROVAL_RPC else None,
        also=[] if step.due_at is None else [runtime.steps.gate_waits(step.step_id)],
    )
