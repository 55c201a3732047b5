"""One pass through a workflow's body: recorded steps answer, new ones are begun, and the body leaves where it must
wait."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import NoReturn

from django.db import Error as DatabaseError
from django.db import IntegrityError

from pikku_storage.conf import settings
from pikku_storage.exceptions import (
    EngineInterrupted,
    PassLostError,
    PayloadError,
    RPCNotFoundError,
    WorkflowAsyncException,
    WorkflowCancelledException,
    WorkflowDeadlineException,
    WorkflowDispatchException,
    WorkflowStepFailedError,
    WorkflowStepFunctionMismatchError,
    WorkflowStepNameNotString,
    WorkflowSuspendedException,
)
from pikku_storage.ids import child_run_id
from pikku_storage.json import Json, to_text
from pikku_storage.retry import RetryPolicy
from pikku_storage.workflows.compensation import compensation_of
from pikku_storage.workflows.definitions import STEP_NAME_LENGTH, BaseWorkflow, FunctionDefinition
from pikku_storage.workflows.engine import children
from pikku_storage.workflows.engine.admission import Refusal, pause_of
from pikku_storage.workflows.engine.attempts import Target, attempt_step
from pikku_storage.workflows.engine.deadlines import is_over
from pikku_storage.workflows.engine.runtime import Runtime
from pikku_storage.workflows.engine.waits import RETRY, SLEEP, waits_for_steps, waits_for_time
from pikku_storage.workflows.errors import RPC_NOT_FOUND, VERSION_CONFLICT, coded_error
from pikku_storage.workflows.limits import not_after
from pikku_storage.workflows.querysets import Claim, NewStep
from pikku_storage.workflows.records import Run, StepState
from pikku_storage.workflows.registry import registry
from pikku_storage.workflows.statuses import TERMINAL_RUN_STATUSES, RunStatus, StepStatus

PATCH_PREFIX = "__patch:"
"""What the name of a step begins with that records that a patch holds for a run."""
COMPENSATION_SUFFIX = ":onError"
_LOOK_AGAIN = timedelta(seconds=1)
_REASONS_TO_LEAVE = (
    EngineInterrupted,
    PassLostError,
    WorkflowAsyncException,
    WorkflowCancelledException,
    WorkflowDeadlineException,
    WorkflowSuspendedException,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A step that the body reached, with its name in this run."""

    name: str
    target: Target
    data: Json
    policy: RetryPolicy
    queue: str | None = None
    group: str | None = None
    is_workflow: bool = False
    """Whether a run of its own does the step."""
    came_from: str | None = None
    """The step that led to this one, where it is not the one that the body reached before."""
    on_error: FunctionDefinition[..., object] | None = None


@dataclass(frozen=True, slots=True)
class GateLeft:
    """The gate that the body was left at, and until when its answer is waited for (`None`: for ever)."""

    step: StepState
    until: datetime | None


class Replay:
    """The state of one pass. `inline`: the caller's process carries everything out, nothing goes through the broker.

    `carry` drives a child run, by its id, as far as it goes.
    """

    def __init__(
        self,
        runtime: Runtime,
        run: Run,
        steps: Iterable[StepState],
        *,
        token: str,
        inline: bool,
        carry: Callable[[str], None],
    ) -> None:
        self.runtime = runtime
        self._carry = carry
        self.run = run
        self.inline = inline
        self.left: BaseException | None = None
        """Why the body was left. It holds for the rest of the pass, also if the body swallows the exception."""
        self.gate_left: GateLeft | None = None
        self.wait_until: datetime | None = None
        self.look_again_at: datetime | None = None
        """When the run must be looked at again although no step of it will be due."""
        self.waits_for_somebody = False
        """Whether a child is suspended, which no waiting here would change."""
        self.refusal: Refusal | None = None
        """Why the run may not go on although it could."""
        self.dispatch_error: WorkflowDispatchException | None = None
        self.state_writes: dict[str, Json] = {}
        self._steps = {step.step_name: step for step in steps}
        self._fence = {"pass_token": token, "status": RunStatus.RUNNING.value}
        self._used: set[str] = set()
        self._repeats: Counter[str] = Counter()
        self._from: str | None = None
        self._is_undoing = False
        self._compensable: list[Call] = []

    # -- names ---------------------------------------------------------------------------------------------------------

    def next_name(self, base: object) -> str:
        """The name of this reach of `base`: bare the first time, `base#1` the second (contract services.md §1.3)."""
        try:
            base = to_text(base, root="$name", longest=STEP_NAME_LENGTH)
        except PayloadError as error:
            raise WorkflowStepNameNotString(f"{base!r:.80} is no name of a step: it {error.reason}") from None
        name = base
        # A body may itself use "a#1" as a name: then the second "a" is "a#2".
        while name in self._used:
            self._repeats[base] += 1
            name = f"{base}#{self._repeats[base]}"
        self._used.add(name)
        return name

    # -- calls ---------------------------------------------------------------------------------------------------------

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Around what a body asks for. Once the body was left it gets nothing more in this pass, whatever it caught."""
        if self.left is not None:
            raise self.left
        try:
            yield
        except DatabaseError as error:
            # A failing database is no error of the body: it ends the pass, and the run goes on later.
            self.left = EngineInterrupted(error)
            raise self.left from error
        except _REASONS_TO_LEAVE as reason:
            self.left = reason
            raise

    def suspend(self, code: str, message: str) -> NoReturn:
        """Leave the body and suspend the run: it cannot go on before somebody does something about it."""
        with self.inside():
            raise WorkflowSuspendedException(coded_error(code, message))

    def settle(self, calls: Sequence[Call]) -> list[Json]:
        """The results of these steps, in order. Begins what is new, waits for what is not settled, raises the first
        failure."""
        if not calls:
            return []
        with self.inside():
            return self._settle(calls)

    def advance(self, calls: Sequence[Call]) -> None:
        """Bring these steps on as far as they go: begin what is new, dispatch what is queued, run the others here. Does
        not wait."""
        with self.inside():
            self._advance(calls)

    def wait(self) -> NoReturn:
        """Leave until something of the run has happened."""
        with self.inside():
            raise WorkflowAsyncException

    @property
    def steps(self) -> Collection[StepState]:
        """The steps of the run as this pass knows them, oldest first."""
        return self._steps.values()

    def _settle(self, calls: Sequence[Call]) -> list[Json]:
        self._compensable.extend(call for call in calls if call.on_error is not None)
        self._advance(calls)
        self._from = calls[-1].name
        if any(not self._steps[call.name].is_settled for call in calls):
            raise WorkflowAsyncException
        for call in calls:
            if self._steps[call.name].status == StepStatus.FAILED:
                self._compensate(call, self._steps[call.name].error)
        return [self._result(call) for call in calls]

    def _advance(self, calls: Sequence[Call]) -> None:
        self._before(*(call.name for call in calls))
        for call in calls:
            self._recorded(call.name, call.target.rpc_name)
        self._reach(all(call.name in self._steps for call in calls))
        self._dispatch([call for call in calls if self._is_queued(call)])
        self._hand_over([call for call in calls if call.is_workflow])
        for call in calls:
            if not (call.is_workflow or self._is_queued(call)):
                self._run_here(call)

    def _before(self, *names: str) -> None:
        """Called before these steps are begun, waited for or answered from what is recorded. A run that is to be
        cancelled goes no further than what it has done."""
        if self.run.cancel_request is not None and not self._is_undoing and not self._are_settled(names):
            raise WorkflowCancelledException

    def _are_settled(self, names: Iterable[str]) -> bool:
        return all((step := self._steps.get(name)) is not None and step.is_settled for name in names)

    def unreached(self) -> list[str]:
        """Names of the steps that are recorded and that the body has not come to in this pass, oldest first."""
        return [name for name in self._steps if name.removesuffix(COMPENSATION_SUFFIX) not in self._used]

    def patched(self, name: object) -> bool:
        """Whether the run is new enough for a patch of its workflow: it has nothing recorded from here on. If it is,
        that is recorded, so that it stays so."""
        marker = f"{PATCH_PREFIX}{name}"
        if marker not in self._steps and self.unreached():
            return False
        self._used.add(marker)
        self.settle(
            [
                Call(
                    name=marker,
                    target=Target(func=lambda: True, rpc_name=None, timeout_ms=None),
                    data={},
                    policy=RetryPolicy(0),
                )
            ]
        )
        return True

    def _recorded(self, name: str, rpc_name: str | None) -> StepState | None:
        """The recorded step of that name, if there is one; the run waits if it is one of another function."""
        step = self._steps.get(name)
        if step is not None and step.rpc_name != rpc_name:
            mismatch = WorkflowStepFunctionMismatchError(name, step.rpc_name, rpc_name)
            raise WorkflowSuspendedException(coded_error(VERSION_CONFLICT, str(mismatch)))
        return step

    def _is_queued(self, call: Call) -> bool:
        if call.is_workflow:
            return False
        # A step stays where it was first put: a run may be started inline and be carried on by a worker, or the other
        # way round.
        recorded = self._steps.get(call.name)
        return not self.inline and (call.queue if recorded is None else recorded.queue) is not None

    def _result(self, call: Call) -> Json:
        step = self._steps[call.name]
        if step.status == StepStatus.FAILED:
            raise WorkflowStepFailedError(call.name, step.error)
        return step.result

    def _compensate(self, call: Call, because: Mapping[str, Json] | None) -> None:
        """Run the call's `on_error`, once, telling it of the step and of the error that is the reason."""
        if call.on_error is None:
            return
        step = self._steps[call.name]
        policy = call.on_error.policy
        compensation = Call(
            name=f"{call.name}{COMPENSATION_SUFFIX}",
            target=target_of(call.on_error),
            data=compensation_of(step, because),
            policy=RetryPolicy(0 if policy.retries is None else policy.retries, policy.delay),
            queue=None,
        )
        try:
            self._settle([compensation])
        except WorkflowStepFailedError:
            # Recorded as its own failed step. The body is told about the step it asked for, which is the cause.
            return

    def undo(self, because: Mapping[str, Json]) -> None:
        """Compensate every step that was tried and has an `on_error`, the newest first. Compensations are steps like
        any other, so a crash costs time only.

        Raises `WorkflowAsyncException` while an attempt is still under way: how it ends decides what must be undone.
        """
        self.left, self._is_undoing = None, True
        with self.inside():
            if any(step.status == StepStatus.RUNNING and not step.is_gate for step in self._steps.values()):
                children.undo(self.runtime, self._steps.values(), dict(because))
                self.look_again_at = self.wait_until = self.runtime.now() + _LOOK_AGAIN
                raise WorkflowAsyncException
            for call in reversed(self._compensable):
                step = self._steps.get(call.name)
                if step is not None and step.status in {StepStatus.SUCCEEDED, StepStatus.FAILED}:
                    self._compensate(call, step.error or because)

    def _dispatch(self, calls: Sequence[Call]) -> None:
        """Hand steps to their queues: rows first, then messages."""
        if not calls:
            return
        self._require(calls, registry.functions)
        pending = [
            step
            for call in calls
            if (step := self._steps.get(call.name)) is not None and step.status == StepStatus.PENDING
        ]
        new = self._add_queued([call for call in calls if call.name not in self._steps])
        if not (new or pending):
            return
        # The time before sending, so that it is not after the claim of a worker that is quicker than the note.
        at = self.runtime.now()
        due_at = self.runtime.patience_end(at)
        try:
            self.runtime.send(
                [
                    self.runtime.message(self.run.id, step.step_name, queue=step.queue, priority=self.run.priority)
                    for step in (*pending, *new)
                ]
            )
        except WorkflowDispatchException as error:
            self.dispatch_error = error
            if new:
                self.runtime.steps.take_back([step.step_id for step in new], at=at, due_at=due_at)
        else:
            if pending:
                self.runtime.steps.schedule([step.step_id for step in pending], at=at, due_at=due_at)

    def _require(self, calls: Sequence[Call], room: Mapping[str, object]) -> None:
        """Whoever carries these out finds them by name."""
        for call in calls:
            if call.target.rpc_name not in room:
                missing = RPCNotFoundError(str(call.target.rpc_name))
                raise WorkflowSuspendedException(coded_error(RPC_NOT_FOUND, str(missing)))

    def _add_queued(self, calls: Sequence[Call]) -> list[StepState]:
        """The rows of new steps, all at once. Their messages follow; the relay sends those that get lost on the way."""
        if not calls:
            return []
        self._check_may_begin()
        at = self.runtime.now()
        due_at = self.runtime.patience_end(at)
        steps = [self._new_step(call) for call in calls]
        try:
            added = self.runtime.steps.add_many(steps, at=at, due_at=due_at, inside=self._fence)
        except IntegrityError:
            added = False
        if not added:
            raise PassLostError
        begun = [_begun(step, StepStatus.SCHEDULED, at, due_at) for step in steps]
        self._steps.update((step.step_name, step) for step in begun)
        return begun

    def _run_here(self, call: Call) -> None:
        """Carry a step out in this pass, until it is settled or must wait."""
        step = self._steps.get(call.name)
        while step is None or not step.is_settled:
            if step is not None and step.status == StepStatus.RUNNING:
                return
            if step is not None and step.retry_at is not None and not self._wait_until(step.retry_at):
                return
            self._check_may_begin()
            claim = self.runtime.claim(after=None if step is None else step.next_at)
            if step is None:
                new = self._new_step(call)
                try:
                    started = self.runtime.steps.start(new, claim, inside=self._fence)
                except IntegrityError:
                    started = False
                if not started:
                    raise PassLostError
                step = _begun(new, StepStatus.RUNNING, claim.at, claim.until, claim)
            else:
                taken = self.runtime.steps.claim(step, claim, inside=self._fence)
                if taken is None:
                    self._check_not_lost(step)
                    return
                step = taken
            after = attempt_step(self.runtime, self.run, step, claim, call.target)
            if after is None:
                raise PassLostError
            self._steps[call.name] = step = after

    def _check_not_lost(self, step: StepState) -> None:
        """A step could not be taken: another worker has it and is waited for, or this pass is over."""
        now = self.runtime.read_step(step.run_id, step.step_name)
        if now is None or (now.status, now.attempt_count) == (step.status, step.attempt_count):
            raise PassLostError

    def _new_step(self, call: Call) -> NewStep:
        return NewStep(
            run_id=self.run.id,
            step_name=call.name,
            rpc_name=call.target.rpc_name,
            data=call.data,
            max_attempts=call.policy.max_attempts,
            retries=call.policy.retries,
            retry_delay=call.policy.delay,
            from_step_name=call.came_from or self._from,
            queue=call.queue,
            group=call.group,
            timeout_ms=call.target.timeout_ms,
        )

    # -- sub-workflows -------------------------------------------------------------------------------------------------

    def _hand_over(self, calls: Sequence[Call]) -> None:
        """Have steps done by runs of their own. One alone is carried on in this pass as far as it goes; those of a
        fan-out, and several at once, spread over the workers."""
        self._require(calls, registry.workflows)
        if not self.inline and (len(calls) > 1 or any(call.group is not None for call in calls)):
            begun = self._begin_children(calls)
            self.runtime.hint(
                *[self.runtime.message(str(step.child_run_id), priority=self.run.priority) for step in begun]
            )
            return
        for call in calls:
            # Again after a failure whose next attempt may begin at once.
            while begun := self._begin_children([call]):
                if not self._carried(begun[0]):
                    break

    def _begin_children(self, calls: Sequence[Call]) -> list[StepState]:
        """Bring steps as far as they get without their children; answers with those whose children are to be carried
        on now."""
        known = [self._steps[call.name] for call in calls if call.name in self._steps]
        begun = self._add_awaiting([call for call in calls if call.name not in self._steps])
        begun += self._ask_after([step for step in known if step.awaits_child])
        for step in known:
            if step.status in (StepStatus.PENDING, StepStatus.SCHEDULED) or (
                step.status == StepStatus.FAILED and step.due_at is not None
            ):
                begun += self._begin_again(step)
        return begun

    def _add_awaiting(self, calls: Sequence[Call]) -> list[StepState]:
        """New steps and their children, all at once."""
        if not calls:
            return []
        self._check_may_begin()
        at = self.runtime.now()
        due_at = self.runtime.patience_end(at)
        steps = [self._new_step(call) for call in calls]
        try:
            added = self.runtime.steps.add_awaiting(steps, at=at, due_at=due_at, inside=self._fence)
        except IntegrityError:
            added = False
        if not added:
            raise PassLostError
        begun = [
            replace(_begun(step, StepStatus.RUNNING, at, due_at), child_run_id=child_run_id(step.id, 1))
            for step in steps
        ]
        self._steps.update((step.step_name, step) for step in begun)
        children.start(self.runtime, self.run, begun, inline=self.inline)
        return begun

    def _begin_again(self, step: StepState) -> list[StepState]:
        """The next attempt of a step, if its time has come."""
        if step.retry_at is not None and not self._wait_until(step.retry_at):
            return []
        self._check_may_begin()
        begun = children.begin(self.runtime, self.run, step, inside=self._fence, inline=self.inline)
        if begun is None:
            self._check_not_lost(step)
            return []
        self._steps[step.step_name] = begun
        return [begun]

    def _ask_after(self, steps: Sequence[StepState]) -> list[StepState]:
        """Look at children that were begun earlier. One that is not there is made, and one that has ended is heard;
        answers with those that are to be carried on here."""
        if not steps:
            return []
        statuses = children.statuses_of(self.runtime, steps)
        lost = [step for step in steps if step.child_run_id not in statuses]
        if lost:
            children.start(self.runtime, self.run, lost, inline=self.inline)
        for step in steps:
            status = statuses.get(str(step.child_run_id))
            if status in TERMINAL_RUN_STATUSES:
                ended = self.runtime.read_run(str(step.child_run_id))
                if ended is not None:
                    children.report(self.runtime, ended)
                self._reread(step)
            elif status == RunStatus.SUSPENDED:
                self.waits_for_somebody = True
            elif status is not None and self.inline:
                lost.append(step)
        return lost

    def _carried(self, step: StepState) -> bool:
        """Carry the child of a step on; whether the step awaits it no more."""
        self._carry(str(step.child_run_id))
        now = self._reread(step)
        if now.awaits_child:
            self._ask_after([now])
        return not self._steps[step.step_name].awaits_child

    def _reread(self, step: StepState) -> StepState:
        now = self.runtime.read_step(step.run_id, step.step_name)
        if now is None:
            raise PassLostError
        self._steps[step.step_name] = now
        return now

    # -- waiting -------------------------------------------------------------------------------------------------------

    def sleep(self, name: str, milliseconds: int) -> None:
        """A delay as a row with a wake-up time."""
        with self.inside():
            self._sleep(name, milliseconds)

    def _sleep(self, name: str, milliseconds: int) -> None:
        self._before(name)
        step = self._steps.get(name)
        self._reach(step is not None)
        if step is None:
            self._check_may_begin()
            at = self.runtime.now()
            due_at = at + timedelta(milliseconds=milliseconds)
            step = self._add(name, None, {"duration": milliseconds}, StepStatus.SCHEDULED, at, due_at)
        self._from = name
        if step.status == StepStatus.SUCCEEDED:
            return
        if step.due_at is not None and not self._wait_until(step.due_at):
            raise WorkflowAsyncException
        # The relay may have been faster; either way the delay is over.
        self.runtime.steps.succeed(step.step_id, None, at=self.runtime.now())

    def _add(
        self, name: str, rpc_name: str | None, data: Json, status: StepStatus, at: datetime, due_at: datetime
    ) -> StepState:
        """A new step that nobody carries out."""
        new = NewStep(
            run_id=self.run.id,
            step_name=name,
            rpc_name=rpc_name,
            data=data,
            max_attempts=1,
            retries=0,
            from_step_name=self._from,
        )
        try:
            added = self.runtime.steps.add(new, at=at, due_at=due_at, status=status, inside=self._fence)
        except IntegrityError:
            added = False
        if not added:
            raise PassLostError
        step = self._steps[name] = _begun(new, status, at, due_at)
        return step

    def gate(self, name: str, rpc_name: str, data: Json) -> StepState:
        """The step of a gate, which the first pass that comes to it opens. Raises `WorkflowStepFailedError` for one
        that was failed by hand."""
        self._before(name)
        step = self._recorded(name, rpc_name)
        self._reach(step is not None)
        if step is None:
            self._check_may_begin()
            # This pass holds it as long as the run is not suspended yet.
            at = self.runtime.now()
            step = self._add(name, rpc_name, data, StepStatus.RUNNING, at, self.runtime.lease_end(at))
        self._from = name
        if step.status == StepStatus.FAILED:
            raise WorkflowStepFailedError(name, step.error)
        return step

    def settle_gate(self, step: StepState, result: Json) -> StepState:
        """The gate has its outcome."""
        at = max(self.runtime.now(), step.updated_at)
        if not self.runtime.steps.succeed(step.step_id, result, at=at):
            # The run was cancelled, or another pass was faster.
            raise PassLostError
        after = replace(step, status=StepStatus.SUCCEEDED.value, result=result, due_at=None, updated_at=at)
        self._steps[step.step_name] = after
        return after

    @property
    def has_open_gate(self) -> bool:
        """Whether the run stands at a gate, or stood at one that its code does not have any more."""
        return any(step.is_open_gate for step in self._steps.values())

    def _wait_until(self, moment: datetime) -> bool:
        """Whether the time has come. Inline it is waited for here; in a worker the body leaves and is woken."""
        remaining = (moment - self.runtime.now()).total_seconds()
        if remaining <= 0:
            return True
        if not self.inline:
            self.wait_until = moment if self.wait_until is None else min(moment, self.wait_until)
            return False
        self.runtime.engine.release()
        until = not_after(moment, self.run.must_end_at)
        self.runtime.sleep(max((until - self.runtime.now()).total_seconds(), 0))
        if until < moment:
            raise WorkflowDeadlineException
        return True

    def _check_may_begin(self) -> None:
        """Before anything of the run begins. Costs no statement unless the workflow is paused."""
        if is_over(self.run.must_end_at, self.runtime.now()):
            raise WorkflowDeadlineException
        self.refusal = pause_of(self.runtime, self.run)
        if self.refusal is not None:
            raise WorkflowAsyncException

    @property
    def waits_for_time(self) -> bool:
        """Whether the body was left for a time, and nothing of the run is with another worker."""
        return self.wait_until is not None and not self._with_others()

    @property
    def waits_for_children(self) -> bool:
        """Whether the body was left for runs that do steps of it."""
        return any(step.awaits_child for step in self._steps.values())

    def waits_for(self, at: datetime) -> dict[str, Json]:
        """What the body was left for."""
        others = self._with_others()
        if others or self.wait_until is None:
            return waits_for_steps([step.step_name for step in others], at)
        step = next(step for step in self._steps.values() if step.due_at == self.wait_until)
        kind = RETRY if step.status == StepStatus.FAILED else SLEEP
        return waits_for_time(kind, step.step_name, self.wait_until, at)

    def _with_others(self) -> list[StepState]:
        """The steps that another worker has, or will get."""
        return [
            step
            for step in self._steps.values()
            if not (step.is_settled or step.is_gate) and (step.queue is not None or step.status == StepStatus.RUNNING)
        ]

    def queue_of(self, function: FunctionDefinition[..., object], *, in_group: bool) -> str | None:
        """The queue of the function's own message; `None` if its step runs here. Items of a fan-out always spread over
        the workers."""
        if self.inline or not (function.queued or in_group):
            return None
        return function.queue or settings.QUEUE

    # -- state ---------------------------------------------------------------------------------------------------------

    @cached_property
    def stored_state(self) -> dict[str, Json]:
        """The run's state as it was when this pass first asked."""
        with self.inside():
            return self.runtime.read_state(self.run.id)

    def flush_state(self) -> None:
        """Write the state keys set since the last step; each key merges in the database."""
        with self.inside():
            for key, value in self.state_writes.items():
                self.runtime.runs.merge_state(self.run.id, key, value, at=self.runtime.now())
        self.state_writes.clear()

    def _reach(self, recorded: bool) -> None:
        """Before a step that was recorded earlier, what the body set has been written already: once, not on every
        replay."""
        if recorded:
            self.state_writes.clear()
        else:
            self.flush_state()


def target_of(definition: FunctionDefinition[..., object] | BaseWorkflow) -> Target:
    """What the step of something registered calls; a workflow's is done by a run of its own."""
    if isinstance(definition, BaseWorkflow):
        return Target(func=definition.run, rpc_name=definition.name, timeout_ms=None)
    return Target(func=definition.implementation, rpc_name=definition.name, timeout_ms=definition.timeout_ms)


def _begun(step: NewStep, status: StepStatus, at: datetime, due_at: datetime, claim: Claim | None = None) -> StepState:
    """A step as it is right after it was inserted."""
    return StepState(
        step_id=step.id,
        run_id=step.run_id,
        step_name=step.step_name,
        rpc_name=step.rpc_name,
        data=step.data,
        status=status.value,
        result=None,
        error=None,
        child_run_id=None,
        branch_taken=None,
        retries=step.retries,
        retry_delay=step.retry_delay,
        from_step_name=step.from_step_name,
        attempt_count=1,
        max_attempts=step.max_attempts,
        group=step.group,
        queue=step.queue,
        timeout_ms=step.timeout_ms,
        claim_token=None if claim is None else claim.token,
        claimed_by=None if claim is None else claim.worker,
        due_at=due_at,
        redrives=None,
        created_at=at,
        updated_at=at,
    )
