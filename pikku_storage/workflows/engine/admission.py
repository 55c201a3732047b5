"""Flow control: which run may be inside, and who comes next.

A concurrency limit has as many slots as it says. A slot is a row whose id is made from the limit and a number, held by
the run that inserted it, so there is no counter to get wrong. A rate limit is one row with the times of the last
starts, changed by compare-and-swap. A run that is not let in leaves its pass, stands in the *line* before what it
lacks, and says so in `waits_for`.

* **Whoever gives something back calls the first in the line**, as many as there is room for; and whoever has just lined
  up looks once more. One of the two sees the other, so no free slot is missed. What a crash cuts off is found by the
  relay (slots of ended runs), and by the waiting run's own due time.
* **Nobody overtakes**: a run is let in only if its place is among the first ones, as many as there is room for.
* **A lowered limit drains.** With slots held at numbers beyond it, only so many of the lower numbers may be taken that
  there are never more than the limit (`_free_numbers`).
* The slot of the key is taken before that of the workflow, and kept while waiting for it: nobody can wait in a circle,
  and a key with a thousand runs stands in the workflow's line with as many as its own limit lets through.
* A run that waits for its children gives its slots back, as one that sleeps does: a child may need them, and two runs
  could otherwise wait for the slots of each other. Where a run keeps them nevertheless (inline, or because it is
  declared so), a run below it is let in under its slot.
* A rate limit is looked at first and taken last, so that a run that must wait for it holds no slot meanwhile.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, Protocol

from pikku_storage.exceptions import PassLostError
from pikku_storage.ids import derived_id
from pikku_storage.json import Json
from pikku_storage.workflows.engine.rules import Rules, current_pause, rules_of
from pikku_storage.workflows.engine.runtime import Runtime
from pikku_storage.workflows.engine.waits import CONCURRENCY, PAUSED, RATE_LIMIT, waits
from pikku_storage.workflows.limits import RateLimit
from pikku_storage.workflows.querysets import LIVE
from pikku_storage.workflows.records import Control, Run
from pikku_storage.workflows.statuses import RunStatus

BATCH = 500
_TRIES = 20
"""How often a run tries to take a slot before it lines up; each time another one was faster."""


class Subject(Protocol):
    """What says which limits concern a run."""

    @property
    def workflow(self) -> str: ...
    @property
    def concurrency_key(self) -> str | None: ...
    @property
    def rate_limit_key(self) -> str | None: ...


class Keys(NamedTuple):
    """A subject that is no run."""

    workflow: str
    concurrency_key: str | None = None
    rate_limit_key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a run is not let in: the line it stands in, and what it says."""

    line: str
    since: datetime
    waits_for: dict[str, Json]


@dataclass(frozen=True, slots=True)
class Slots:
    """A concurrency limit. Its line has the id of its scope."""

    line: str
    workflow: str
    key: str | None
    limit: int

    def refusal(self, run: Run, at: datetime) -> Refusal:
        """What a run says that got none."""
        number = "one run" if self.limit == 1 else f"{self.limit} runs"
        text = f"At most {number} of {self.workflow}{_of(self.key)} may be inside at once"
        return _refusal(run, self.line, at, CONCURRENCY, text, limit=self.limit, key=self.key)


@dataclass(frozen=True, slots=True)
class Starts:
    """A rate limit. Its line has the id of its row."""

    line: str
    workflow: str
    key: str | None
    rate: RateLimit

    def refusal(self, run: Run, at: datetime) -> Refusal:
        """What a run says whose turn it is not."""
        text = f"At most {self.rate.text} runs of {self.workflow}{_of(self.key)} may begin"
        return _refusal(run, self.line, at, RATE_LIMIT, text, limit=self.rate.text, key=self.key)


def _of(key: str | None) -> str:
    return "" if key is None else f" with the key {key}"


def _refusal(run: Run, line: str, at: datetime, kind: str, text: str, **more: Json) -> Refusal:
    since = run.lined_up_at if run.line == line and run.lined_up_at is not None else at
    return Refusal(line=line, since=since, waits_for=waits(kind, text, since, **more))


# -- coming in ---------------------------------------------------------------------------------------------------------


def admit(runtime: Runtime, run: Run, token: str) -> Refusal | None:
    """Let a run in that a pass has entered, or say why not. Without limits this costs nothing."""
    rules = rules_of(runtime, run.workflow)
    refusal = _ask(runtime, run, token, rules)
    if refusal is not None:
        # This process may remember an older limit, or a pause that is over.
        fresh = rules_of(runtime, run.workflow, fresh=True)
        if fresh != rules:
            rules, refusal = fresh, _ask(runtime, run, token, fresh)
    is_news = run.line is not None or (rules.are_any and run.admitted_at is None)
    if refusal is None and is_news:
        if not runtime.runs.admit(run.id, token, at=run.admitted_at or runtime.now()):
            raise PassLostError
        if run.line is not None:
            # There may be room for more, or a time at which there will be.
            call_next(runtime, run)
    return refusal


def pause_of(runtime: Runtime, run: Run) -> Refusal | None:
    """The pause of its workflow, before a step of the run begins."""
    control = current_pause(runtime, run.workflow)
    return None if control is None else _paused(run, control, runtime.now())


def holds_back(runtime: Runtime, run: Run) -> bool:
    """Whether a queued step of the run must wait because its workflow is paused; then the run says so."""
    refusal = pause_of(runtime, run)
    if refusal is not None:
        runtime.runs.line_up(run, refusal.line, since=refusal.since, waits_for=refusal.waits_for)
    return refusal is not None


def _ask(runtime: Runtime, run: Run, token: str, rules: Rules) -> Refusal | None:
    at = runtime.now()
    if rules.paused is not None:
        return _paused(run, rules.paused, at)
    inside = {"pass_token": token, "status": LIVE}
    starts = _starts_of(run, rules) if run.admitted_at is None else None
    if starts is not None and not _is_turn_of(runtime, run, starts.line, _room(runtime, starts, at)):
        return _without_slots(runtime, run, inside, rules, starts.refusal(run, at))
    gates = _slots_of(run, rules)
    keeps = rules.keep_while_waiting or run.inline
    held = runtime.slots.held([gate.line for gate in gates]) if gates else []
    for gate in gates:
        if not _take(runtime, run, gate, held, inside, keeps=keeps):
            return gate.refusal(run, at)
    if starts is not None and not _begin(runtime, starts):
        return _without_slots(runtime, run, inside, rules, starts.refusal(run, at))
    return None


def _take(
    runtime: Runtime, run: Run, gate: Slots, held: list[dict[str, Any]], inside: Mapping[str, Any], *, keeps: bool
) -> bool:
    """Hold a slot of this limit; `False` if there is none for this run. `held` is what was read of it last. `keeps`:
    those who wait for their children keep theirs."""
    is_swept = False
    for _ in range(_TRIES):
        of_gate = [slot for slot in held if slot["scope"] == gate.line]
        if any(slot["run_id"] == run.id for slot in of_gate) or (keeps and _is_below(runtime, run, of_gate)):
            return True
        free = _free_numbers([slot["number"] for slot in of_gate], gate.limit)
        if _is_turn_of(runtime, run, gate.line, len(free)):
            number = random.choice(free)  # noqa: S311 - no secret; many who come at once take different ones
            taken = runtime.slots.take(
                gate.line, number, run.id, workflow=run.workflow, key=gate.key, at=runtime.now(), inside=inside
            )
            if taken is None:
                raise PassLostError
            if taken:
                return True
        elif is_swept or not _sweep(runtime, of_gate):
            return False
        else:
            is_swept = True
        held = runtime.slots.held([gate.line])
    return False


def _is_below(runtime: Runtime, run: Run, held: Sequence[Mapping[str, Any]]) -> bool:
    """Whether one of these slots is held for a run that waits for this one, directly or not."""
    holders = {slot["run_id"] for slot in held}
    above: Run | None = run
    while holders and above is not None and above.parent_run_id is not None:
        if above.parent_run_id in holders:
            return True
        above = runtime.read_run(above.parent_run_id)
    return False


def _free_numbers(held: Sequence[int], limit: int) -> list[int]:
    """The numbers that may be taken, where these are held.

    They are the free ones below the largest bound for which the bound, and what is held beyond it, are not more than
    the limit. Whoever takes one by an older, smaller bound therefore never makes it more; see the test.
    """
    taken = sorted(held)
    bound = limit
    while bound > 0 and bound + sum(number >= bound for number in taken) > limit:
        bound -= 1
    return [number for number in range(bound) if number not in set(taken)]


def _sweep(runtime: Runtime, held: Sequence[Mapping[str, Any]]) -> int:
    """Free the slots whose run has ended or is gone; how many there were."""
    holders = {slot["run_id"] for slot in held}
    if not holders:
        return 0
    live = set(runtime.runs.filter(pk__in=sorted(holders), status__in=LIVE).values_list("pk", flat=True))
    return runtime.slots.clear(holders - live)


def _is_turn_of(runtime: Runtime, run: Run, line: str, room: int) -> bool:
    """Whether there is room for this run, counting those who stand before it in the line."""
    if room <= 0:
        return False
    first = runtime.runs.first_in(line, room)
    return len(first) < room or runtime.runs.place_of(run) <= first[-1]["line_place"]


def _begin(runtime: Runtime, starts: Starts) -> bool:
    """Count a start under a rate limit; `False` if there have been too many."""
    for _ in range(_TRIES):
        at = runtime.now()
        recent, seen = _recent(runtime, starts, at)
        if len(recent) >= starts.rate.starts:
            return False
        if runtime.rates.replace(
            starts.line,
            [*recent, _milliseconds(at)],
            seen=seen,
            workflow=starts.workflow,
            key=starts.key,
            at=at,
            over_at=at + starts.rate.period,
        ):
            return True
    return False


def _room(runtime: Runtime, starts: Starts, at: datetime) -> int:
    return starts.rate.starts - len(_recent(runtime, starts, at)[0])


def _recent(runtime: Runtime, starts: Starts, at: datetime) -> tuple[list[int], str | None]:
    """The starts of the last period, oldest first, and the version of the row."""
    times, version = runtime.rates.seen(starts.line)
    since = _milliseconds(at - starts.rate.period)
    return [time for time in times if time > since], version


# -- giving back -------------------------------------------------------------------------------------------------------


def give_back(runtime: Runtime, run: Run, token: str) -> bool:
    """Before a run leaves its pass to wait for a time or for somebody: others may have its slots meanwhile. Whether it
    gave any."""
    rules = rules_of(runtime, run.workflow)
    if rules.keep_while_waiting or not _slots_of(run, rules):
        return False
    return runtime.slots.give_back(run.id, where={"pass_token": token})


def give_back_suspended(runtime: Runtime, run: Run) -> None:
    """As `give_back`, after a run was suspended from outside."""
    rules = rules_of(runtime, run.workflow)
    if rules.keep_while_waiting or not _slots_of(run, rules):
        return
    if runtime.slots.give_back(run.id, where={"status": RunStatus.SUSPENDED.value}):
        call_next(runtime, run)


def leave_for_good(runtime: Runtime, run: Subject, run_id: str) -> None:
    """After a run has ended: call the next, and free what it held.

    In this order: a slot whose run has ended is what tells the relay of a process that died in between.
    """
    rules = rules_of(runtime, run.workflow)
    if rules.are_any:
        call_next(runtime, run, without=run_id)
        runtime.slots.clear([run_id])


def sweep(runtime: Runtime, *, limit: int = BATCH) -> None:
    """The relay's part: slots of ended runs, whose process died before it gave them back."""
    _free(runtime, runtime.slots.of_ended(limit))


def forget(runtime: Runtime, run_ids: Sequence[str]) -> None:
    """Before ended runs are deleted: free what they still hold, which nobody would find afterwards."""
    _free(runtime, runtime.slots.of(run_ids))


def _free(runtime: Runtime, found: Sequence[Mapping[str, Any]]) -> None:
    for subject in {Keys(slot["workflow"], slot["key"]) for slot in found}:
        ended = {slot["run_id"] for slot in found if (slot["workflow"], slot["key"]) == subject[:2]}
        runtime.slots.clear(ended)
        call_next(runtime, subject)


# -- calling -----------------------------------------------------------------------------------------------------------


def call_next(
    runtime: Runtime, of: Subject, *, without: str | None = None, sweeps: bool = False, again: bool = False
) -> None:
    """Wake those who stand first in the lines that this run has to do with, as many as there is room for.

    `without`: this run's slots count as free. `sweeps`: so do those of ended runs. `again`: also wake who was called
    already, because the limit has changed.
    """
    lines = [gate.line for gate in _gates_of(of, rules_of(runtime, of.workflow))]
    if not lines or not runtime.runs.is_anyone_in(lines):
        return
    # To call too few is to leave a slot idle.
    rules = rules_of(runtime, of.workflow, fresh=True)
    for gate in _slots_of(of, rules):
        held = runtime.slots.held([gate.line])
        if sweeps and _sweep(runtime, held):
            held = runtime.slots.held([gate.line])
        free = _free_numbers([slot["number"] for slot in held if slot["run_id"] != without], gate.limit)
        _call(runtime, gate.line, runtime.runs.first_in(gate.line, len(free)) if free else [], again=again)
    starts = _starts_of(of, rules)
    if starts is not None:
        _call_in_time(runtime, starts, again=again)


def call_all(runtime: Runtime, workflow: str) -> None:
    """After a limit of the workflow has changed: call in each of its lines."""
    waiting = runtime.runs.filter(workflow=workflow, line__isnull=False, status__in=LIVE).order_by()
    keys = waiting.values_list("concurrency_key", "rate_limit_key").distinct()
    for concurrency_key, rate_limit_key in list(keys):
        call_next(runtime, Keys(workflow, concurrency_key, rate_limit_key), again=True)


def go_on(runtime: Runtime, workflow: str) -> None:
    """After the pause of a workflow: wake the runs that wait for its end, in the order of the line."""
    line = paused_line(workflow)
    while first := runtime.runs.first_in(line, BATCH):
        at = runtime.now()
        run_ids = [row["id"] for row in first]
        runtime.steps.hurry_queued(run_ids, at=at)
        runtime.runs.dissolve(run_ids, line, due_at=runtime.patience_end(at))
        _hint(runtime, first)
    call_all(runtime, workflow)


def _call(runtime: Runtime, line: str, first: Sequence[Mapping[str, Any]], *, again: bool) -> None:
    called = [row for row in first if again or row["redrives"] is None]
    for batch in _batches(called):
        runtime.runs.call([row["id"] for row in batch], line, due_at=runtime.patience_end(runtime.now()))
        _hint(runtime, batch)


def _call_in_time(runtime: Runtime, starts: Starts, *, again: bool) -> None:
    """Call for the starts that may be now, and one more for the moment at which the next one may be."""
    at = runtime.now()
    recent, _ = _recent(runtime, starts, at)
    room = max(starts.rate.starts - len(recent), 0)
    first = runtime.runs.first_in(starts.line, room + 1)
    _call(runtime, starts.line, first[:room], again=again)
    for row in first[room:]:
        if again or row["redrives"] is None:
            # As many as the limit may have begun; the oldest of them makes room.
            oldest = recent[len(recent) - starts.rate.starts] if len(recent) >= starts.rate.starts else None
            next_at = at if oldest is None else _moment(oldest) + starts.rate.period
            next_at = max(next_at, at)
            runtime.runs.call([row["id"]], starts.line, due_at=next_at)
            _hint(runtime, [row], delay=next_at - at)


def _hint(runtime: Runtime, rows: Iterable[Mapping[str, Any]], *, delay: timedelta | None = None) -> None:
    # A run that is carried out inline looks by itself, again and again.
    runtime.hint(
        *[runtime.message(row["id"], delay=delay, priority=row["priority"]) for row in rows if not row["inline"]]
    )


# -- names of limits ---------------------------------------------------------------------------------------------------


def paused_line(workflow: str) -> str:
    """The line of the runs that wait for the end of the workflow's pause."""
    return derived_id(PAUSED, workflow)


def _slots_of(of: Subject, rules: Rules) -> list[Slots]:
    """The concurrency limits of a run, in the order in which it passes them."""
    gates = []
    if rules.concurrency_per_key is not None and of.concurrency_key is not None:
        line = derived_id(CONCURRENCY, of.workflow, of.concurrency_key)
        gates.append(Slots(line, of.workflow, of.concurrency_key, rules.concurrency_per_key))
    if rules.concurrency is not None:
        gates.append(Slots(derived_id(CONCURRENCY, of.workflow), of.workflow, None, rules.concurrency))
    return gates


def _starts_of(of: Subject, rules: Rules) -> Starts | None:
    if rules.rate is None:
        return None
    key = of.rate_limit_key
    line = derived_id(RATE_LIMIT, of.workflow, *([] if key is None else [key]))
    return Starts(line, of.workflow, key, rules.rate)


def _gates_of(of: Subject, rules: Rules) -> list[Slots | Starts]:
    starts = _starts_of(of, rules)
    return [*_slots_of(of, rules), *([] if starts is None else [starts])]


def _paused(run: Run, control: Control, at: datetime) -> Refusal:
    by = f" by {control.paused_by}" if control.paused_by else ""
    why = f": {control.paused_reason}" if control.paused_reason else ""
    return _refusal(run, paused_line(run.workflow), at, PAUSED, f"The workflow {run.workflow} is paused{by}{why}")


def _without_slots(runtime: Runtime, run: Run, inside: Mapping[str, Any], rules: Rules, refusal: Refusal) -> Refusal:
    """Whoever waits for a rate limit holds no slot meanwhile."""
    if _slots_of(run, rules) and runtime.slots.give_back(run.id, where=inside):
        call_next(runtime, run)
    return refusal


def _batches(rows: Sequence[Mapping[str, Any]]) -> Iterator[Sequence[Mapping[str, Any]]]:
    for start in range(0, len(rows), BATCH):
        yield rows[start : start + BATCH]


def _milliseconds(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


def _moment(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
