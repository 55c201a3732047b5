"""What must hold of stored runs at any moment (engine.md §6). Reads only; used by tests and by operators on a live
database."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from itertools import groupby, pairwise

from pikku_storage.conf import settings
from pikku_storage.json import Json
from pikku_storage.workflows.engine.runtime import Runtime
from pikku_storage.workflows.errors import RPC_NOT_FOUND, VERSION_CONFLICT, WORKFLOW_NOT_FOUND
from pikku_storage.workflows.gates import SUSPEND_RPC, Approval
from pikku_storage.workflows.reads import attempts_of
from pikku_storage.workflows.records import Answer, StepState
from pikku_storage.workflows.statuses import (
    LIVE_RUN_STATUSES,
    TERMINAL_RUN_STATUSES,
    RunStatus,
    StepStatus,
    Verdict,
)

BATCH = 200
_WAITS_FOR_CODE = {RPC_NOT_FOUND, WORKFLOW_NOT_FOUND, VERSION_CONFLICT}
_STAMPS = ("created_at", "scheduled_at", "running_at", "succeeded_at", "failed_at")


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """Something that must never be. `rule` is a short name that stays the same, `detail` says what was found."""

    rule: str
    run_id: str
    step_name: str | None
    detail: str

    def __str__(self) -> str:
        where = f"run {self.run_id}" if self.step_name is None else f"run {self.run_id}, step {self.step_name!r}"
        return f"{self.rule}: {where}: {self.detail}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Attempt:
    step_id: str
    attempt: int | None
    status: str
    stamps: dict[str, datetime | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    id: str
    status: str
    due_at: datetime | None
    pass_token: str | None
    pass_until: datetime | None
    parent_run_id: str | None
    wire: dict[str, Json] | None
    gate_opened_at: datetime | None
    error: dict[str, Json] | None
    line: str | None

    @property
    def parent_step_id(self) -> str:
        """The step that the run does, if it is a child."""
        return str((self.wire or {}).get("parentStepId"))


_RUN_COLUMNS = tuple(each.name for each in fields(_Run))


def find_violations(using: str | None = None, run_ids: Iterable[str] | None = None) -> Iterator[Violation]:
    """Check all runs, or these, in batches. A database that workers are writing to may show a row between two reads:
    ask twice."""
    runtime = Runtime(using)
    wanted = None if run_ids is None else list(run_ids)
    last = ""
    while True:
        runs = runtime.runs.filter(pk__gt=last).order_by("pk")
        if wanted is not None:
            runs = runs.filter(pk__in=wanted)
        batch = [_Run(**row) for row in runs.values(*_RUN_COLUMNS)[:BATCH]]
        if not batch:
            for rule, run_id, detail in _check_slots(runtime, wanted):
                yield Violation(rule=rule, run_id=run_id, step_name=None, detail=detail)
            return
        yield from _check_batch(runtime, batch)
        last = batch[-1].id


def _check_batch(runtime: Runtime, runs: list[_Run]) -> Iterator[Violation]:
    now = runtime.now()
    ids = [run.id for run in runs]
    steps = runtime.steps.filter(run_id__in=ids).order_by("run_id", "created_at", "id")
    by_run = {
        run_id: [StepState.from_row(row) for row in rows]
        for run_id, rows in groupby(steps.values(*StepState.COLUMNS), key=lambda row: row["run_id"])
    }
    history = (
        attempts_of(runtime.using, ids)
        .order_by("step_id", "created_at", "attempt")
        .values("step_id", "attempt", "status", *_STAMPS)
    )
    attempts: dict[str, list[_Attempt]] = {}
    for row in history:
        stamps = {name: row[name] for name in _STAMPS}
        entry = _Attempt(step_id=row["step_id"], attempt=row["attempt"], status=row["status"], stamps=stamps)
        attempts.setdefault(entry.step_id, []).append(entry)
    yield from _check_children(runtime, [run for run in runs if run.parent_run_id is not None], now)
    answers = runtime.answers.filter(run_id__in=ids).order_by("run_id", "step_name", "ordinal")
    trails: dict[str, dict[str, list[Answer]]] = {}
    for row in answers.values(*Answer.COLUMNS):
        trails.setdefault(row["run_id"], {}).setdefault(row["step_name"], []).append(Answer(**row))
    for run in runs:
        yield from _check_run(run, by_run.get(run.id, []), now)
        for step_name, trail in trails.get(run.id, {}).items():
            for rule, detail in _check_trail(trail, is_live=run.status in LIVE_RUN_STATUSES):
                yield Violation(rule=rule, run_id=run.id, step_name=step_name, detail=detail)
        for step in by_run.get(run.id, []):
            for rule, detail in _check_step(step, attempts.get(step.step_id, [])):
                yield Violation(rule=rule, run_id=run.id, step_name=step.step_name, detail=detail)


def _check_run(run: _Run, steps: list[StepState], now: datetime) -> Iterator[Violation]:
    def violation(rule: str, detail: str, step_name: str | None = None) -> Violation:
        return Violation(rule=rule, run_id=run.id, step_name=step_name, detail=detail)

    is_live = run.status in LIVE_RUN_STATUSES
    if (run.pass_token is None) != (run.pass_until is None):
        yield violation("pass-lease", "a pass without a lease, or a lease without a pass")
    if run.pass_token is not None and not is_live:
        yield violation("terminal-run-entered", f"a pass is inside although the run is {run.status}")
    if is_live and run.due_at is None and not _waits_for_a_person(run, steps) and not any(s.due_at for s in steps):
        yield violation("stuck-run", "nothing of this live run will ever be due")
    if run.gate_opened_at is not None and run.status != RunStatus.SUSPENDED:
        yield violation("gate-over", f"{run.status} and still listed among the runs that ask for an approval")
    if run.status in TERMINAL_RUN_STATUSES:
        if run.due_at is not None:
            yield violation("terminal-run-due", f"{run.status} and still due at {run.due_at:%Y-%m-%d %H:%M:%S}")
        if run.line is not None:
            yield violation("terminal-run-in-line", f"{run.status} and still in line before a limit")
        grace = timedelta(milliseconds=settings.LEASE)
        for step in steps:
            if step.status == StepStatus.RUNNING and step.due_at is not None and step.due_at < now - grace:
                yield violation("abandoned-step", f"runs in a {run.status} run, its lease long over", step.step_name)
            if step.is_open_gate and step.due_at is None:
                yield violation("open-gate", f"waits for a person in a {run.status} run", step.step_name)


def _waits_for_a_person(run: _Run, steps: list[StepState]) -> bool:
    """Whether it is suspended for as long as that takes: not for code, and not until an approval expires."""
    if run.status != RunStatus.SUSPENDED or (run.error or {}).get("code") in _WAITS_FOR_CODE:
        return False
    approvals = [step for step in steps if step.is_open_gate and step.rpc_name != SUSPEND_RPC]
    return all(Approval.of(step).expires_at is None for step in approvals)


def _check_trail(trail: list[Answer], *, is_live: bool) -> Iterator[tuple[str, str]]:
    if [entry.ordinal for entry in trail] != list(range(len(trail))):
        yield "answers-counted", f"the entries of its trail are {', '.join(str(entry.ordinal) for entry in trail)}"
    if any(entry.verdict != Verdict.REFUSED for entry in trail[:-1]):
        yield "one-outcome", f"the verdicts of its trail are {', '.join(str(entry.verdict) for entry in trail)}"
    if is_live and any(entry.verdict is None and entry.due_at is None for entry in trail):
        yield "forgotten-answer", "an answer is to be judged and will never be due"


def _check_children(runtime: Runtime, runs: list[_Run], now: datetime) -> Iterator[Violation]:
    if not runs:
        return
    # A parent may have been deleted, and then nobody awaits anything.
    parents = set(runtime.runs.filter(pk__in={run.parent_run_id for run in runs}).values_list("id", flat=True))
    rows = runtime.steps.filter(pk__in={run.parent_step_id for run in runs}).values(*StepState.COLUMNS)
    steps = {step.step_id: step for step in map(StepState.from_row, rows)}
    late = now - timedelta(milliseconds=settings.LEASE)
    for run in runs:
        if run.parent_run_id not in parents:
            continue

        def violation(rule: str, detail: str, run_id: str = run.id) -> Violation:
            return Violation(rule=rule, run_id=run_id, step_name=None, detail=detail)

        step = steps.get(run.parent_step_id)
        if step is None or step.run_id != run.parent_run_id:
            yield violation("child-link", f"run {run.parent_run_id} has no step {run.parent_step_id}")
            continue
        is_awaited = step.awaits_child and step.child_run_id == run.id
        if run.status in LIVE_RUN_STATUSES and not is_awaited:
            yield violation("orphan-child", f"step {step.step_name!r} of run {step.run_id} does not await it")
        if run.status in TERMINAL_RUN_STATUSES and is_awaited and step.due_at is not None and step.due_at < late:
            yield violation("unheard-child", f"step {step.step_name!r} of run {step.run_id} still awaits it")


def _check_step(step: StepState, attempts: list[_Attempt]) -> Iterator[tuple[str, str]]:
    succeeded = [entry for entry in attempts if entry.status == StepStatus.SUCCEEDED]
    if len(succeeded) > 1 or (succeeded and attempts[-1] is not succeeded[0]):
        yield "succeeded-once", f"attempts are {', '.join(entry.status for entry in attempts)}"
    if not attempts or attempts[-1].status != step.status:
        newest = attempts[-1].status if attempts else "missing"
        yield "history-agrees", f"the step is {step.status}, its newest attempt {newest}"
    numbered = [entry.attempt for entry in attempts]
    # Another program does not number them.
    if None not in numbered and numbered != list(range(1, step.attempt_count + 1)):
        numbers = ", ".join(map(str, numbered))
        yield "attempts-counted", f"current attempt is {step.attempt_count}, attempts are {numbers or 'none'}"
    if step.attempt_count > step.max_attempts:
        yield "budget-kept", f"attempt {step.attempt_count} of {step.max_attempts}"
    if any(entry.status != StepStatus.FAILED for entry in attempts[:-1]):
        yield "retried-only-failed", f"attempts are {', '.join(entry.status for entry in attempts)}"
    if (step.claim_token is not None) and step.status != StepStatus.RUNNING:
        yield "claim-over", f"{step.status} and still claimed by {step.claimed_by}"
    for entry in attempts:
        stamps = [stamp for name in _STAMPS if (stamp := entry.stamps[name]) is not None]
        if any(later < earlier for earlier, later in pairwise(stamps)):
            yield "time-order", f"attempt {entry.attempt}: {', '.join(str(stamp) for stamp in stamps)}"


def _check_slots(runtime: Runtime, run_ids: list[str] | None) -> Iterator[tuple[str, str, str]]:
    slots = runtime.slots.order_by("id")
    if run_ids is not None:
        slots = slots.filter(run_id__in=run_ids)
    held = list(slots.values("scope", "number", "workflow", "run_id"))
    holders = {slot["run_id"] for slot in held}
    statuses = dict(runtime.runs.filter(pk__in=sorted(holders)).values_list("id", "status"))
    seen: set[tuple[str, str]] = set()
    for slot in held:
        run_id, what = slot["run_id"], f"slot {slot['number']} of {slot['workflow']}"
        if run_id not in statuses:
            yield "gone-run-holds-slot", run_id, what
        elif statuses[run_id] in TERMINAL_RUN_STATUSES:
            yield "ended-run-holds-slot", run_id, f"{what}, and the run is {statuses[run_id]}"
        if (slot["scope"], run_id) in seen:
            yield "one-slot-of-a-limit", run_id, f"{what}, and another one"
        seen.add((slot["scope"], run_id))
