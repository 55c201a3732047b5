"""State changes of steps. The history row of the open attempt always moves with its step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from django.db import IntegrityError

from pikku_storage.db.operations import NOT_NULL, Delete, Expired, Guard, Insert, KeepOr, Operation, OrNull, Update
from pikku_storage.ids import copied_id
from pikku_storage.json import Json
from pikku_storage.workflows.gates import GATE_RPCS
from pikku_storage.workflows.querysets.base import Claim, EngineQuerySet, NewStep
from pikku_storage.workflows.querysets.rows import (
    UNSETTLED_ATTEMPT,
    attempt_row,
    awaiting,
    claimed,
    history_model,
    insert_of,
    is_last,
    saw,
    step_row,
)
from pikku_storage.workflows.records import StepState
from pikku_storage.workflows.statuses import StepStatus, step_statuses_before

if TYPE_CHECKING:
    from pikku_storage.workflows.models import WorkflowStep  # noqa: F401 - named in the base class as text


class StepQuerySet(EngineQuerySet["WorkflowStep"]):
    """State changes of steps. The history row of the open attempt always moves with its step."""

    # -- beginning -----------------------------------------------------------------------------------------------------

    def add(
        self,
        step: NewStep,
        *,
        at: datetime,
        due_at: datetime | None,
        status: StepStatus = StepStatus.PENDING,
        inside: Mapping[str, Any] | None = None,
    ) -> bool:
        """Insert a step with its first attempt: `pending`, or `scheduled` for a sleep, or `running` for a gate.

        `inside` as in `start`.
        """
        return self._add(step, {"status": status.value, "due_at": due_at}, at, inside)

    def start(self, step: NewStep, claim: Claim, *, inside: Mapping[str, Any] | None = None) -> bool:
        """Insert a step already `running`. With conditions on its run in `inside`, only where they hold: a pass that
        was lost starts nothing."""
        durable = is_last(1, step.max_attempts)
        return self._add(step, claimed(claim, attempt=1), claim.at, inside, durable=durable)

    def add_many(self, steps: Sequence[NewStep], *, at: datetime, due_at: datetime, inside: Mapping[str, Any]) -> bool:
        """Insert steps whose messages are about to be sent (one, or a fan-out): `scheduled` from the start, which saves
        changing them all when they are with the broker. `inside` as in `start`."""
        state = {"status": StepStatus.SCHEDULED.value, "due_at": due_at}
        return self._add_many([(step, state) for step in steps], at, inside)

    def add_awaiting(
        self, steps: Sequence[NewStep], *, at: datetime, due_at: datetime, inside: Mapping[str, Any]
    ) -> bool:
        """Insert steps that runs of their own will do: `running`, with the runs' ids noted before there are the runs.
        `inside` as in `start`."""
        return self._add_many([(step, awaiting(step.id, attempt=1, due_at=due_at)) for step in steps], at, inside)

    def _add_many(
        self, steps: Sequence[tuple[NewStep, Mapping[str, Any]]], at: datetime, inside: Mapping[str, Any]
    ) -> bool:
        rows = insert_of(self.model, [step_row(step, state, at) for step, state in steps])
        attempts = insert_of(history_model(), [attempt_row(step.id, 1, state, at) for step, state in steps])
        with self.engine.savepoint():
            return bool(self._apply(self._guard(steps[0][0].run_id, inside), rows, attempts)[0])

    def take_back(self, step_ids: Sequence[str], *, at: datetime, due_at: datetime) -> int:
        """What `add_many` said too early: no broker took the messages of these steps. Those that a worker has begun
        nevertheless stay as they are."""
        return self._reschedule(step_ids, StepStatus.SCHEDULED, StepStatus.PENDING, at, due_at, scheduled_at=None)

    def copied(self, steps: Sequence[StepState], *, run_id: str, at: datetime) -> list[Operation]:
        """Copies of settled steps for a new run, as operations, to happen together with its insertion. What failed is
        copied with its last attempt, as one that has no attempts left."""
        if not steps:
            return []
        rows, attempts = [], []
        for step in steps:
            copy = NewStep(
                # The same however often it is copied, as the run's id is.
                id=copied_id(step.step_id, run_id, step.step_name),
                run_id=run_id,
                step_name=step.step_name,
                rpc_name=step.rpc_name,
                data=step.data,
                max_attempts=1 if step.status == StepStatus.FAILED else step.max_attempts,
                retries=step.retries,
                retry_delay=step.retry_delay,
                from_step_name=step.from_step_name,
                queue=step.queue,
                group=step.group,
                timeout_ms=step.timeout_ms,
            )
            outcome = {"status": step.status, "result": step.result, "error": step.error}
            kept = {"child_run_id": step.child_run_id, "branch_taken": step.branch_taken}
            rows.append(step_row(copy, {**outcome, **kept}, at))
            ended = {
                "succeeded_at": at if step.status == StepStatus.SUCCEEDED else None,
                "failed_at": at if step.status == StepStatus.FAILED else None,
            }
            attempts.append({**attempt_row(copy.id, 1, outcome, at), **outcome, **ended})
        return [insert_of(self.model, rows), insert_of(history_model(), attempts)]

    def _add(
        self,
        step: NewStep,
        state: Mapping[str, Any],
        at: datetime,
        inside: Mapping[str, Any] | None,
        *,
        durable: bool = True,
    ) -> bool:
        operations = [
            Insert(self.model, step_row(step, state, at)),
            Insert(history_model(), attempt_row(step.id, 1, state, at)),
        ]
        with self.engine.savepoint():
            if inside is None:
                return bool(self._apply(*operations, durable=durable)[0])
            return bool(self._apply(self._guard(step.run_id, inside), *operations, durable=durable)[0])

    # -- claiming ------------------------------------------------------------------------------------------------------

    def claim(self, step: StepState, claim: Claim, *, inside: Mapping[str, Any] | None = None) -> StepState | None:
        """Take a step for one worker: the step as it is in that claim, or `None` if somebody else was faster.

        A pending or scheduled attempt goes on; a failed step begins its next attempt. Both hold only while the step
        still is what the caller saw, so of many claims one wins, and only where the conditions on its run in `inside`
        hold.
        """
        return self._begin(step, claimed(claim, attempt=self._next_attempt(step)), claim.at, inside)

    def hand_over(
        self, step: StepState, *, at: datetime, due_at: datetime, inside: Mapping[str, Any] | None = None
    ) -> StepState | None:
        """As `claim`, but nobody holds the step: a run of its own does the attempt."""
        return self._begin(step, awaiting(step.step_id, attempt=self._next_attempt(step), due_at=due_at), at, inside)

    def _next_attempt(self, step: StepState) -> int:
        """The number of the attempt that a claim of the step begins, or goes on with."""
        begun = step.attempt_count
        # Not to be asked for of one that nobody has changed: it is in its first.
        if step.updated_at != step.created_at:
            begun = self.engine.at_least(begun, history_model(), {"step_id": step.step_id})
        return begun + 1 if step.status == StepStatus.FAILED else begun

    def _begin(
        self, step: StepState, state: Mapping[str, Any], at: datetime, inside: Mapping[str, Any] | None
    ) -> StepState | None:
        attempt = state["current_attempt"]
        is_retry = step.status == StepStatus.FAILED
        before = [StepStatus.FAILED.value] if is_retry else step_statuses_before(StepStatus.RUNNING)
        where = {"id": step.step_id, "status": before, "current_attempt": saw(step.attempt_count)}
        taken = Update(self.model, where, {**state, "result": None, "error": None, "updated_at": at})
        guard = [] if inside is None else [self._guard(step.run_id, inside)]
        durable = is_last(attempt, step.max_attempts)
        if is_retry:
            begun = Insert(history_model(), attempt_row(step.step_id, attempt, state, at))
            won = self._apply(*guard, taken, begun, durable=durable)[len(guard)]
        else:
            running = {"status": StepStatus.RUNNING.value, "running_at": at, "worker": state["claimed_by"]}
            won = self._move(step.step_id, taken, running, at=at, attempt=attempt, guard=guard, durable=durable)
        if not won:
            return None
        return replace(
            step,
            status=StepStatus.RUNNING.value,
            attempt_count=attempt,
            claim_token=state["claim_token"],
            claimed_by=state["claimed_by"],
            child_run_id=state.get("child_run_id", step.child_run_id),
            due_at=state["due_at"],
            redrives=None,
            result=None,
            error=None,
            updated_at=at,
        )

    def _guard(self, run_id: str, inside: Mapping[str, Any]) -> Guard:
        run_model = self.model._meta.get_field("run").related_model
        return Guard(run_model, {"id": run_id, **inside})

    def renew(self, step_id: str, token: str, *, until: datetime) -> bool:
        """Prolong a claim; `False` if it is over."""
        where = {"id": step_id, "claim_token": token, "status": StepStatus.RUNNING.value}
        return bool(self._apply(Update(self.model, where, {"due_at": until}), durable=False)[0])

    def give_up(self, step_id: str, token: str, *, at: datetime) -> bool:
        """End a claim whose outcome will not come: the relay ends its attempt as lost from `at` on, and whatever its
        worker still writes is too late."""
        where = {"id": step_id, "claim_token": token, "status": StepStatus.RUNNING.value}
        change = Update(self.model, where, {"claim_token": None, "due_at": at})
        return bool(self._apply(change, durable=False)[0])

    def run_by_hand(self, step_id: str, *, at: datetime, until: datetime) -> bool:
        """Mark a waiting step running without a claim (contract `setStepRunning`: two writes, no read)."""
        where = {"id": step_id, "status": step_statuses_before(StepStatus.RUNNING)}
        values = {
            "status": StepStatus.RUNNING.value,
            "current_attempt": KeepOr(1),
            "due_at": until,
            "claim_token": None,
            "updated_at": at,
        }
        running = {"status": StepStatus.RUNNING.value, "running_at": at}
        return self._move(step_id, Update(self.model, where, values), running, at=at, attempt=None)

    def schedule(self, step_ids: Sequence[str], *, at: datetime, due_at: datetime) -> int:
        """Note that the messages of pending steps are with the broker; answers how many were still pending."""
        return self._reschedule(step_ids, StepStatus.PENDING, StepStatus.SCHEDULED, at, due_at, scheduled_at=at)

    def _reschedule(
        self,
        step_ids: Sequence[str],
        before: StepStatus,
        after: StepStatus,
        at: datetime,
        due_at: datetime,
        *,
        scheduled_at: datetime | None,
    ) -> int:
        where = {"id": list(step_ids), "status": before.value}
        values = {"status": after.value, "due_at": due_at, "updated_at": at}
        attempts = {"step_id": list(step_ids), "status": before.value}
        return self._apply(
            Update(self.model, where, values),
            Update(history_model(), attempts, {"status": after.value, "scheduled_at": scheduled_at}),
            durable=False,
        )[0]

    # -- ending --------------------------------------------------------------------------------------------------------

    def succeed(
        self,
        step_id: str,
        result: Json,
        *,
        at: datetime,
        attempt: int | None = None,
        token: str | None = None,
        branch: str | None = None,
        wake: Update | None = None,
    ) -> bool:
        """End the open attempt with a result, and the branch that was chosen; with `attempt` and `token`, only if it is
        that claim's. `wake` happens with it."""
        values = {"status": StepStatus.SUCCEEDED.value, "result": result, "error": None, "due_at": None}
        if branch is not None:
            values["branch_taken"] = branch
        return self._finish(step_id, values, "succeeded_at", at, attempt, token, wake)

    def fail(
        self,
        step_id: str,
        error: Json,
        *,
        at: datetime,
        attempt: int | None = None,
        token: str | None = None,
        retry_at: datetime | None = None,
        seen_due: datetime | None = None,
        wake: Update | None = None,
    ) -> bool:
        """End the open attempt with an error. `retry_at` is when the next one is due, `None` if this was the last.

        With `seen_due`, only while the lease is the one the caller saw (the relay's guard against a worker that renewed
        it).
        """
        values = {"status": StepStatus.FAILED.value, "result": None, "error": error, "due_at": retry_at}
        return self._finish(step_id, values, "failed_at", at, attempt, token, wake, seen_due)

    def _finish(
        self,
        step_id: str,
        values: dict[str, Any],
        stamp: str,
        at: datetime,
        attempt: int | None,
        token: str | None,
        wake: Update | None,
        seen_due: datetime | None = None,
    ) -> bool:
        where: dict[str, Any] = {"id": step_id, "status": step_statuses_before(StepStatus(values["status"]))}
        attempt_values = {name: values[name] for name in ("status", "result", "error")} | {stamp: at}
        values |= {"claim_token": None, "redrives": None, "updated_at": at, "current_attempt": attempt or KeepOr(1)}
        if attempt is not None or token is not None:
            where |= {"status": StepStatus.RUNNING.value, "claim_token": token}
        if attempt is not None:
            where["current_attempt"] = saw(attempt)
        if seen_due is not None:
            where["due_at"] = seen_due
        change = Update(self.model, where, values)
        return self._move(step_id, change, attempt_values, at=at, attempt=attempt, also=wake)

    def begin_retry(
        self, step: StepState, *, at: datetime, due_at: datetime | None, claim: Claim | None = None
    ) -> bool:
        """Begin the next attempt of a failed step: pending, or running under `claim` (contract
        `createRetryAttempt`)."""
        attempt, step_id = self._next_attempt(step), step.step_id
        pending = {"status": StepStatus.PENDING.value, "due_at": due_at, "current_attempt": attempt}
        state = pending if claim is None else claimed(claim, attempt=attempt)
        where = {"id": step_id, "status": StepStatus.FAILED.value, "current_attempt": saw(step.attempt_count)}
        values = {**state, "result": None, "error": None, "updated_at": at}
        return bool(
            self._apply(
                Update(self.model, where, values), Insert(history_model(), attempt_row(step_id, attempt, state, at))
            )[0]
        )

    # -- deleting ------------------------------------------------------------------------------------------------------

    def remove(self, step_ids: Sequence[str], *, made_by: datetime | None) -> int:
        """Delete these steps, their attempts first, or those that were made by that time if one is given; answers how
        many steps this call deleted. Those of a run that was begun anew under the same id stay."""
        made = {} if made_by is None else {"created_at": Expired(made_by)}
        self._apply(Delete(history_model(), {"step_id": list(step_ids), **made}))
        return self._apply(Delete(self.model, {"id": list(step_ids), **made}))[0]

    # -- looking after -------------------------------------------------------------------------------------------------

    def postpone(self, step_id: str, *, seen: datetime | None, due_at: datetime | None, redrives: int) -> bool:
        """Move the due time on, for the one relay that saw it (compare-and-swap)."""
        where = {"id": step_id, "due_at": seen}
        change = Update(self.model, where, {"due_at": due_at, "redrives": redrives})
        return bool(self._apply(change, durable=False)[0])

    def gates_due(self, run_id: str, at: datetime) -> Update:
        """The run ends: its open gates are due, so that the relay closes them. An operation, to happen with that."""
        where = {"run_id": run_id, "rpc_name": list(GATE_RPCS), "status": StepStatus.RUNNING.value}
        return Update(self.model, where, {"due_at": at, "redrives": None})

    def gate_waits(self, step_id: str) -> Update:
        """The run is suspended at this gate: nothing of it is due. An operation, to happen with that."""
        where = {"id": step_id, "status": StepStatus.RUNNING.value}
        return Update(self.model, where, {"due_at": None, "redrives": None})

    def hurry(self, step_id: str, *, at: datetime) -> bool:
        """Make a failed step's next attempt due now."""
        where = {"id": step_id, "status": StepStatus.FAILED.value, "due_at": NOT_NULL}
        return bool(self._apply(Update(self.model, where, {"due_at": at, "updated_at": at}))[0])

    def hurry_queued(self, run_ids: Sequence[str], *, at: datetime) -> int:
        """Make due now what the queues of these runs had, and nobody was to carry out."""
        queued = {"run_id": list(run_ids), "queue": NOT_NULL, "due_at": NOT_NULL}
        ready = (
            {"status": [StepStatus.PENDING.value, StepStatus.SCHEDULED.value]},
            {"status": StepStatus.FAILED.value, "redrives": NOT_NULL},
        )
        return sum(self._apply(Update(self.model, {**queued, **where}, {"due_at": at}))[0] for where in ready)

    def settle_idle(self, run_id: str) -> int:
        """Nothing of an ended run is due any more, but for what still runs."""
        idle = [StepStatus.PENDING.value, StepStatus.SCHEDULED.value, StepStatus.FAILED.value]
        where = {"run_id": run_id, "status": idle, "due_at": NOT_NULL}
        return self._apply(Update(self.model, where, {"due_at": None}))[0]

    def is_group_open(self, run_id: str, group: str) -> bool:
        """Whether any step of a fan-out is not settled yet."""
        where = {"run_id": run_id, "group": group, "due_at": NOT_NULL}
        return bool(self.engine.read(self.model, where, ("id",), limit=1))

    def note(self, step_id: str, *, at: datetime, **values: str) -> bool:
        """Set what no transition guards: `child_run_id`, `branch_taken`."""
        return bool(self._apply(Update(self.model, {"id": step_id}, {**values, "updated_at": at}))[0])

    def _move(
        self,
        step_id: str,
        change: Update,
        attempt_values: Mapping[str, Any],
        *,
        at: datetime,
        attempt: int | None,
        guard: Sequence[Guard] = (),
        also: Update | None = None,
        durable: bool = True,
    ) -> bool:
        """Change a step and its open attempt together."""
        history = history_model()
        whose: Mapping[str, Any] = {"step_id": step_id}
        if attempt is not None:
            own = {"id": history.id_of(step_id, attempt)}
            whose = self.engine.found_by(own, {"step_id": step_id, "attempt": OrNull(attempt)})
        open_attempt = {**whose, "status": UNSETTLED_ATTEMPT}
        operations: list[Operation] = [*guard, change, Update(history, open_attempt, attempt_values)]
        if also is not None:
            operations.append(also)
        moved, followed = self._apply(*operations, durable=durable)[len(guard) : len(guard) + 2]
        if moved and not followed:
            self._mend_history(step_id, attempt, attempt_values, at)
        return bool(moved)

    def _mend_history(self, step_id: str, attempt: int | None, attempt_values: Mapping[str, Any], at: datetime) -> None:
        """The attempt's row was missing: another program lost it, or a crash on an engine without transactions came
        between."""
        if attempt is None:
            attempt = self.filter(pk=step_id).values_list("current_attempt", flat=True).get() or 1
        values = {**attempt_row(step_id, attempt, {}, at), **attempt_values}
        try:
            with self.engine.savepoint():
                self._apply(Insert(history_model(), values))
        except IntegrityError:
            # It is there, and ended: what it says was written by whoever owned the attempt.
            return
