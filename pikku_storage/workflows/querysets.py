"""Every state change of runs and steps, each one guarded write that answers who won.

A method returns `True` to the one caller whose WHERE still held; whoever gets `False` was too late and does nothing.
Statuses come from `statuses.py`; what must happen together goes to the database's engine as one list of operations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from django.apps import apps
from django.db import IntegrityError, models, transaction

from pikku_storage.db import Engine, engine
from pikku_storage.db.operations import Expired, Guard, Insert, KeepOr, Operation, OrNull, Update
from pikku_storage.ids import derived_id, new_id, new_token
from pikku_storage.json import Json
from pikku_storage.workflows.records import StepState
from pikku_storage.workflows.statuses import (
    LIVE_RUN_STATUSES,
    TERMINAL_RUN_STATUSES,
    RunStatus,
    StepStatus,
    run_statuses_before,
    step_statuses_before,
)

if TYPE_CHECKING:
    from pikku_storage.workflows.models import (
        WorkflowRun,  # noqa: F401 - named in a base class as text, which ruff does not see
        WorkflowStep,
        WorkflowStepHistory,
        WorkflowVersion,  # noqa: F401 - as above
    )

Row = TypeVar("Row", bound=models.Model)

LIVE = sorted(status.value for status in LIVE_RUN_STATUSES)
UNSETTLED_ATTEMPT = [StepStatus.PENDING.value, StepStatus.RUNNING.value, StepStatus.SCHEDULED.value]
"""Statuses of the one attempt of a step that is still open, if any."""


@dataclass(frozen=True, slots=True)
class NewStep:
    """A step that does not exist yet."""

    run_id: str
    step_name: str
    rpc_name: str | None
    data: Json
    max_attempts: int
    retries: int | None = None
    retry_delay: str | None = None
    from_step_name: str | None = None
    queue: str | None = None
    group: str | None = None
    timeout_ms: int | None = None
    id: str = field(default_factory=new_id)


@dataclass(frozen=True, slots=True)
class Claim:
    """One worker's hold on one attempt: nobody else can write its outcome, and it ends by itself at `until`."""

    worker: str
    at: datetime
    until: datetime
    token: str = field(default_factory=new_token)


class EngineQuerySet(models.QuerySet[Row]):
    """What the querysets of engine rows share."""

    @property
    def engine(self) -> Engine:
        """The engine of the database this queryset writes to."""
        self._for_write = True
        return engine(self.db)


class RunQuerySet(EngineQuerySet["WorkflowRun"]):
    """State changes of runs."""

    def create_run(self, values: Mapping[str, Any]) -> bool:
        """Insert a run; `False` if there is one with this id already."""
        try:
            with self.engine.savepoint():
                self.engine.apply(Insert(self.model, values))
        except IntegrityError:
            if self.filter(pk=values["id"]).exists():
                return False
            raise
        return True

    def enter(self, run_id: str, token: str, *, worker: str, at: datetime, until: datetime) -> bool:
        """Let a pass into a live run, unless another one is inside (engine.md §2)."""
        return self._change(
            {"id": run_id, "status": LIVE, "pass_until": Expired(at)},
            pass_token=token,
            pass_until=until,
            due_at=until,
            status=RunStatus.RUNNING.value,
            error=None,
            last_worker=worker,
            updated_at=at,
        )

    def leave(
        self,
        run_id: str,
        token: str,
        *,
        seen_wake: str | None,
        at: datetime,
        due_at: datetime | None,
        suspended_for: Json = None,
        redrives: int | None = None,
    ) -> bool:
        """End a pass that waits; `False` if the run was woken meanwhile, or is not this pass's any more.

        With an error in `suspended_for` the run becomes suspended and shows it.
        """
        status = RunStatus.RUNNING if suspended_for is None else RunStatus.SUSPENDED
        return self._change(
            {"id": run_id, "pass_token": token, "wake_token": seen_wake, "status": RunStatus.RUNNING.value},
            pass_token=None,
            pass_until=None,
            due_at=due_at,
            status=status.value,
            error=suspended_for,
            redrives=redrives,
            updated_at=at,
        )

    def settle(self, run_id: str, token: str, status: RunStatus, *, at: datetime, output: Json, error: Json) -> bool:
        """End a run from inside its pass."""
        return self._set_status({"pass_token": token}, run_id, status, at, output, error, None)

    def set_status(
        self, run_id: str, status: RunStatus, *, at: datetime, output: Json, error: Json, due_at: datetime | None
    ) -> bool:
        """Set a live run's status from outside; a terminal one stays as it is. A pass inside is shut out and starts
        nothing more."""
        return self._set_status({}, run_id, status, at, output, error, due_at)

    def _set_status(
        self,
        fence: Mapping[str, Any],
        run_id: str,
        status: RunStatus,
        at: datetime,
        output: Json,
        error: Json,
        due_at: datetime | None,
    ) -> bool:
        return self._change(
            {"id": run_id, "status": run_statuses_before(status), **fence},
            status=status.value,
            output=output,
            error=error,
            due_at=None if status in TERMINAL_RUN_STATUSES else due_at,
            pass_token=None,
            pass_until=None,
            updated_at=at,
        )

    def wake(self, run_id: str, *, at: datetime) -> bool:
        """Give a live run a reason to look again, which no pass inside can miss (engine.md §2)."""
        return bool(self.engine.apply(self.wake_up(run_id, at))[0])

    def wake_up(self, run_id: str, at: datetime) -> Update:
        """`wake` as an operation, to happen together with another one. The redrive count 0 tells the relay that this is
        no mere check."""
        return Update(
            self.model, {"id": run_id, "status": LIVE}, {"wake_token": new_token(), "due_at": at, "redrives": 0}
        )

    def renew(self, run_id: str, token: str, *, until: datetime) -> bool:
        """Prolong a pass; `False` if it is over."""
        return self._change({"id": run_id, "pass_token": token, "status": LIVE}, pass_until=until, due_at=until)

    def give_up(self, run_id: str, token: str, *, due_at: datetime) -> bool:
        """End a pass that could not go on; the run is looked at again at `due_at`."""
        where = {"id": run_id, "pass_token": token, "status": LIVE}
        return self._change(where, pass_token=None, pass_until=None, due_at=due_at, redrives=0)

    def postpone(self, run_id: str, *, seen: datetime, due_at: datetime, redrives: int | None) -> bool:
        """Move the due time on, for the one relay that saw it (compare-and-swap)."""
        return self._change({"id": run_id, "due_at": seen, "status": LIVE}, due_at=due_at, redrives=redrives)

    def merge_state(self, run_id: str, key: str, value: Json, *, at: datetime) -> bool:
        """Set one key of the run's state in the database; concurrent keys never lose each other."""
        return bool(self.engine.merge_json_key(self.model, run_id, "state", key, value, at))

    def _change(self, where: Mapping[str, Any], /, **values: Any) -> bool:
        return bool(self.engine.apply(Update(self.model, where, values))[0])


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
        """Insert a step with its first attempt: `pending`, or `scheduled` for a sleep. `inside` as in `start`."""
        return self._add(step, {"status": status.value, "due_at": due_at}, at, inside)

    def start(self, step: NewStep, claim: Claim, *, inside: Mapping[str, Any] | None = None) -> bool:
        """Insert a step already `running`. With conditions on its run in `inside`, only where they hold: a pass that
        was lost starts nothing."""
        return self._add(step, _claimed(claim, attempt=1), claim.at, inside)

    def add_many(self, steps: Sequence[NewStep], *, at: datetime, due_at: datetime) -> None:
        """Insert pending steps in bulk (a fan-out)."""
        state = {"status": StepStatus.PENDING.value, "due_at": due_at}
        rows = [self.model(**_row(step, state, at)) for step in steps]
        attempts = [_history_model()(**_attempt(step.id, 1, state, at)) for step in steps]
        self._bulk_insert(rows, attempts)

    def add_succeeded(self, steps: Sequence[StepState], *, run_id: str, at: datetime) -> None:
        """Insert copies of succeeded steps into another run, in bulk."""
        rows, attempts = [], []
        for step in steps:
            copy = NewStep(
                run_id=run_id,
                step_name=step.step_name,
                rpc_name=step.rpc_name,
                data=step.data,
                max_attempts=step.max_attempts or 1,
                retries=step.retries,
                retry_delay=step.retry_delay,
                from_step_name=step.from_step_name,
                queue=step.queue,
                group=step.group,
                timeout_ms=step.timeout_ms,
            )
            outcome = {"status": StepStatus.SUCCEEDED.value, "result": step.result}
            rows.append(self.model(**_row(copy, outcome, at)))
            attempts.append(_history_model()(**_attempt(copy.id, 1, outcome, at), result=step.result, succeeded_at=at))
        self._bulk_insert(rows, attempts)

    def _bulk_insert(self, rows: Sequence[WorkflowStep], attempts: Sequence[WorkflowStepHistory]) -> None:
        self._for_write = True
        with transaction.atomic(using=self.db):
            self.bulk_create(rows)
            _history_model()._default_manager.using(self.db).bulk_create(attempts)

    def _add(self, step: NewStep, state: Mapping[str, Any], at: datetime, inside: Mapping[str, Any] | None) -> bool:
        operations = [
            Insert(self.model, _row(step, state, at)),
            Insert(_history_model(), _attempt(step.id, 1, state, at)),
        ]
        with self.engine.savepoint():
            if inside is None:
                return bool(self.engine.apply(*operations)[0])
            return bool(self.engine.apply(self._guard(step.run_id, inside), *operations)[0])

    # -- claiming ------------------------------------------------------------------------------------------------------

    def claim(self, step: StepState, claim: Claim, *, inside: Mapping[str, Any] | None = None) -> StepState | None:
        """Take a step for one worker: the step as it is in that claim, or `None` if somebody else was faster.

        A pending or scheduled attempt goes on; a failed step begins its next attempt. Both hold only while the step
        still is what the caller saw, so of many claims one wins, and only where the conditions on its run in `inside`
        hold.
        """
        is_retry = step.status == StepStatus.FAILED
        attempt = step.attempt_count + 1 if is_retry else step.attempt_count
        before = [StepStatus.FAILED.value] if is_retry else step_statuses_before(StepStatus.RUNNING)
        where = {"id": step.step_id, "status": before, "current_attempt": _saw(step.attempt_count)}
        state = _claimed(claim, attempt=attempt)
        taken = Update(self.model, where, {**state, "result": None, "error": None, "updated_at": claim.at})
        guard = [] if inside is None else [self._guard(step.run_id, inside)]
        if is_retry:
            begun = Insert(_history_model(), _attempt(step.step_id, attempt, state, claim.at))
            won = self.engine.apply(*guard, taken, begun)[len(guard)]
        else:
            running = {"status": StepStatus.RUNNING.value, "running_at": claim.at, "worker": claim.worker}
            won = self._move(step.step_id, taken, running, at=claim.at, attempt=attempt, guard=guard)
        if not won:
            return None
        return replace(
            step,
            status=StepStatus.RUNNING.value,
            attempt_count=attempt,
            claim_token=claim.token,
            claimed_by=claim.worker,
            due_at=claim.until,
            redrives=None,
            result=None,
            error=None,
            updated_at=claim.at,
        )

    def _guard(self, run_id: str, inside: Mapping[str, Any]) -> Guard:
        run_model = self.model._meta.get_field("run").related_model
        return Guard(run_model, {"id": run_id, **inside})

    def renew(self, step_id: str, token: str, *, until: datetime) -> bool:
        """Prolong a claim; `False` if it is over."""
        where = {"id": step_id, "claim_token": token, "status": StepStatus.RUNNING.value}
        return bool(self.engine.apply(Update(self.model, where, {"due_at": until}))[0])

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
        where = {"id": list(step_ids), "status": StepStatus.PENDING.value}
        values = {"status": StepStatus.SCHEDULED.value, "due_at": due_at, "updated_at": at}
        attempts = {"step_id": list(step_ids), "status": StepStatus.PENDING.value}
        return self.engine.apply(
            Update(self.model, where, values),
            Update(_history_model(), attempts, {"status": StepStatus.SCHEDULED.value, "scheduled_at": at}),
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
        wake: Update | None = None,
    ) -> bool:
        """End the open attempt with a result; with `attempt` and `token`, only if it is that claim's. `wake` happens
        with it."""
        values = {"status": StepStatus.SUCCEEDED.value, "result": result, "error": None, "due_at": None}
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
            where["current_attempt"] = _saw(attempt)
        if seen_due is not None:
            where["due_at"] = seen_due
        change = Update(self.model, where, values)
        return self._move(step_id, change, attempt_values, at=at, attempt=attempt, also=wake)

    def begin_retry(
        self, step_id: str, *, seen_attempt: int, at: datetime, due_at: datetime | None, claim: Claim | None = None
    ) -> bool:
        """Begin the next attempt of a failed step: pending, or running under `claim` (contract
        `createRetryAttempt`)."""
        attempt = seen_attempt + 1
        pending = {"status": StepStatus.PENDING.value, "due_at": due_at, "current_attempt": attempt}
        state = pending if claim is None else _claimed(claim, attempt=attempt)
        where = {"id": step_id, "status": StepStatus.FAILED.value, "current_attempt": _saw(seen_attempt)}
        values = {**state, "result": None, "error": None, "updated_at": at}
        return bool(
            self.engine.apply(
                Update(self.model, where, values), Insert(_history_model(), _attempt(step_id, attempt, state, at))
            )[0]
        )

    # -- looking after -------------------------------------------------------------------------------------------------

    def postpone(self, step_id: str, *, seen: datetime | None, due_at: datetime | None, redrives: int) -> bool:
        """Move the due time on, for the one relay that saw it (compare-and-swap)."""
        where = {"id": step_id, "due_at": seen}
        return bool(self.engine.apply(Update(self.model, where, {"due_at": due_at, "redrives": redrives}))[0])

    def hurry(self, step_id: str, *, at: datetime) -> bool:
        """Make a failed step's next attempt due now."""
        return bool(
            self.filter(pk=step_id, status=StepStatus.FAILED, due_at__isnull=False).update(due_at=at, updated_at=at)
        )

    def settle_idle(self, run_id: str) -> int:
        """Nothing of an ended run is due any more, but for what still runs."""
        idle = [StepStatus.PENDING, StepStatus.SCHEDULED, StepStatus.FAILED]
        return self.filter(run_id=run_id, status__in=idle, due_at__isnull=False).update(due_at=None)

    def note(self, step_id: str, *, at: datetime, **values: str) -> bool:
        """Set what no transition guards: `child_run_id`, `branch_taken`."""
        return bool(self.engine.apply(Update(self.model, {"id": step_id}, {**values, "updated_at": at}))[0])

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
    ) -> bool:
        """Change a step and its open attempt together."""
        history = _history_model()
        open_attempt: dict[str, Any] = {"step_id": step_id, "status": UNSETTLED_ATTEMPT}
        if attempt is not None:
            open_attempt = {"id": history.id_of(step_id, attempt), "status": UNSETTLED_ATTEMPT}
        operations: list[Operation] = [*guard, change, Update(history, open_attempt, attempt_values)]
        if also is not None:
            operations.append(also)
        moved, followed = self.engine.apply(*operations)[len(guard) : len(guard) + 2]
        if moved and not followed:
            self._mend_history(step_id, attempt, attempt_values, at)
        return bool(moved)

    def _mend_history(self, step_id: str, attempt: int | None, attempt_values: Mapping[str, Any], at: datetime) -> None:
        """The attempt's row was missing: another program lost it, or a crash on an engine without transactions came
        between."""
        if attempt is None:
            attempt = self.filter(pk=step_id).values_list("current_attempt", flat=True).get() or 1
        values = {**_attempt(step_id, attempt, {}, at), **attempt_values}
        try:
            with self.engine.savepoint():
                self.engine.apply(Insert(_history_model(), values))
        except IntegrityError:
            # It is there, and ended: what it says was written by whoever owned the attempt.
            return


class VersionQuerySet(EngineQuerySet["WorkflowVersion"]):
    """Workflow versions never change once stored, but for their status."""

    def add(self, workflow_name: str, graph_hash: str, graph: Json, source: str, status: str, *, at: datetime) -> bool:
        """Store a version unless it is there already."""
        values = {
            "id": derived_id(workflow_name, graph_hash),
            "workflow_name": workflow_name,
            "graph_hash": graph_hash,
            "graph": graph,
            "source": source,
            "status": status,
            "created_at": at,
        }
        try:
            with self.engine.savepoint():
                self.engine.apply(Insert(self.model, values))
        except IntegrityError:
            return False
        return True


def _history_model() -> type[WorkflowStepHistory]:
    model: type[WorkflowStepHistory] = apps.get_model("pikku_workflows", "WorkflowStepHistory")
    return model


def _saw(attempt: int) -> Any:
    # A step that another program wrote may lack the number; that is its first attempt.
    return OrNull(1) if attempt == 1 else attempt


def _claimed(claim: Claim, *, attempt: int) -> dict[str, Any]:
    return {
        "status": StepStatus.RUNNING.value,
        "current_attempt": attempt,
        "claim_token": claim.token,
        "claimed_by": claim.worker,
        "due_at": claim.until,
        "redrives": None,
    }


def _row(step: NewStep, state: Mapping[str, Any], at: datetime) -> dict[str, Any]:
    return {
        "id": step.id,
        "run_id": step.run_id,
        "step_name": step.step_name,
        "rpc_name": step.rpc_name,
        "data": step.data,
        "retries": step.retries,
        "retry_delay": step.retry_delay,
        "from_step_name": step.from_step_name,
        "max_attempts": step.max_attempts,
        "group": step.group,
        "queue": step.queue,
        "timeout_ms": step.timeout_ms,
        "current_attempt": 1,
        "created_at": at,
        "updated_at": at,
        **state,
    }


def _attempt(step_id: str, attempt: int, state: Mapping[str, Any], at: datetime) -> dict[str, Any]:
    status = state.get("status", StepStatus.PENDING.value)
    return {
        "id": _history_model().id_of(step_id, attempt),
        "step_id": step_id,
        "attempt": attempt,
        "status": status,
        "created_at": at,
        "running_at": at if status == StepStatus.RUNNING else None,
        "scheduled_at": at if status == StepStatus.SCHEDULED else None,
        "worker": state.get("claimed_by"),
    }
