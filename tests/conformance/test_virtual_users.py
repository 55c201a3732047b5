"""Runs and schedules of virtual users (contract services.md §17)."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import connections

from pikku_storage.db import engine
from pikku_storage.db.clock import travel
from pikku_storage.exceptions import PayloadError, VirtualUserInputError
from pikku_storage.virtual_users.models import VirtualUserRun, VirtualUserRunStep
from pikku_storage.virtual_users.records import VirtualUserSchedule, VirtualUserStep
from pikku_storage.virtual_users.service import VirtualUserRunStore, VirtualUserScheduleStore
from pikku_storage.virtual_users.ticking import Outcome, Ticked, next_run_at, tick
from tests.conformance.support import DATABASE

pytestmark = pytest.mark.django_db
HOUR = timedelta(hours=1)


@pytest.fixture
def runs() -> VirtualUserRunStore:
    return VirtualUserRunStore()


@pytest.fixture
def schedules() -> VirtualUserScheduleStore:
    return VirtualUserScheduleStore()


def schedule_of(persona: str) -> VirtualUserSchedule:
    found = VirtualUserScheduleStore().get(persona)
    assert found is not None
    return found


# -- runs --------------------------------------------------------------------------------------------------------------


@pytest.mark.contract("VU-02", "VU-03", "VU-04", "VU-07")
def test_a_run_begins(runs: VirtualUserRunStore) -> None:
    run_id = runs.start("ada", "auditor", 2**60 + 1, goals=["buy", {"n": 1}], memory={"k": [1]}, started_by="eve")
    run = runs.get(run_id)
    assert run is not None
    assert (run.run_id, run.persona, run.disposition, run.seed) == (run_id, "ada", "auditor", 2**60 + 1)
    assert (run.status, run.goals, run.memory, run.started_by) == ("running", ["buy", {"n": 1}], {"k": [1]}, "eve")
    assert (run.findings, run.intents, run.tally, run.finished_at, run.error) == ([], [], None, None, None)
    assert runs.get("unknown") is None


@pytest.mark.contract("VU-05", "VU-12", "VU-13", "VU-14", "VU-15")
def test_a_run_ends_with_its_transcript(runs: VirtualUserRunStore) -> None:
    run_id = runs.start("ada", "realistic", 1, memory={"old": 1})
    bare = VirtualUserStep(step_index=120, action={"do": "wait"})
    full = {"stepIndex": 0, "intentId": "i", "status": 201, "ok": True, "response": "ok", "findingKinds": ["slow"]}
    many = [{"stepIndex": index, "action": {"n": index}, "tokensIn": index} for index in range(119, 0, -1)]
    assert runs.complete(
        run_id,
        findings=[{"kind": "slow"}],
        tally={"steps": 121},
        memory={"new": 1},
        intents=[{"id": "i"}],
        stopped_by="budget",
        steps=[bare, full, *many],
    )
    run = runs.get(run_id)
    assert run is not None
    assert (run.status, run.findings, run.tally, run.memory) == (
        "completed",
        [{"kind": "slow"}],
        {"steps": 121},
        {"new": 1},
    )
    assert (run.intents, run.stopped_by) == ([{"id": "i"}], "budget")
    assert run.finished_at is not None
    steps = runs.steps(run_id)
    assert [step.step_index for step in steps] == list(range(121))
    assert steps[-1] == bare
    assert steps[0] == VirtualUserStep(
        step_index=0, intent_id="i", status=201, ok=True, response="ok", finding_kinds=["slow"]
    )
    assert (steps[7].action, steps[7].tokens_in) == ({"n": 7}, 7)
    assert [step.step_index for step in runs.steps(run_id, limit=2, after=50)] == [51, 52]


@pytest.mark.contract("VU-06", "VU-10")
def test_only_a_running_run_ends_and_only_once(runs: VirtualUserRunStore) -> None:
    run_id = runs.start("ada", "realistic", 1, memory={"kept": 1})
    assert runs.fail(run_id, "out of budget")
    assert not runs.complete(run_id, findings=["late"], steps=[{"stepIndex": 0}])
    assert not runs.fail(run_id, "again")
    run = runs.get(run_id)
    assert run is not None
    assert (run.status, run.error, run.findings, run.memory) == ("failed", "out of budget", [], {"kept": 1})
    assert not runs.complete("unknown", findings=["f"], steps=[{"stepIndex": 0}])
    assert not runs.fail("unknown", "x")
    assert (VirtualUserRun.objects.count(), VirtualUserRunStep.objects.count()) == (1, 0)


@pytest.mark.contract("VU-08", "VU-09")
def test_runs_are_listed_newest_first(runs: VirtualUserRunStore) -> None:
    ids = [runs.start("ada" if number % 2 else "eve", "realistic", number) for number in range(5)]
    runs.fail(ids[1], "x")
    assert [run.run_id for run in runs.list()] == ids[::-1]
    assert [run.run_id for run in runs.list(persona="ada")] == [ids[3], ids[1]]
    assert [run.run_id for run in runs.list(persona="ada", status="running")] == [ids[3]]
    first = runs.list(limit=2)
    rest = runs.list(before=(first[-1].created_at, first[-1].run_id))
    assert [run.run_id for run in (*first, *rest)] == ids[::-1]


@pytest.mark.parametrize(
    ("begin", "path"),
    [
        ({"persona": ""}, r"\$persona"),
        ({"disposition": "grumpy"}, r"\$disposition: one of realistic"),
        ({"seed": 1.5}, r"\$seed"),
        ({"goals": "buy"}, r"\$goals"),
        ({"memory": []}, r"\$memory"),
        ({"started_by": "a\x00"}, r"\$started_by"),
    ],
)
def test_what_cannot_be_stored_is_refused(runs: VirtualUserRunStore, begin: dict[str, Any], path: str) -> None:
    with pytest.raises((VirtualUserInputError, PayloadError), match=path):
        runs.start(**{"persona": "ada", "disposition": "realistic", "seed": 1, **begin})
    assert runs.list() == []


@pytest.mark.parametrize(
    ("step", "path"),
    [
        ({"action": 1}, r"\$steps\[1\]: there is no step_index"),
        ({"stepIndex": 1, "ok": 1}, r"\$steps\[1\].ok"),
        ({"stepIndex": 1, "kind": "x"}, r"\$steps\[1\]: unknown kind"),
        ({"stepIndex": 0}, r"\$steps: an index stands there twice"),
        (7, r"\$steps\[1\]: must be a mapping"),
    ],
)
def test_a_transcript_of_a_wrong_shape_ends_nothing(runs: VirtualUserRunStore, step: Any, path: str) -> None:
    run_id = runs.start("ada", "realistic", 1)
    with pytest.raises(VirtualUserInputError, match=path):
        runs.complete(run_id, steps=[{"stepIndex": 0}, step])
    assert [run.status for run in runs.list()] == ["running"]


# -- schedules ---------------------------------------------------------------------------------------------------------


@pytest.mark.contract("VU-16", "VU-17", "VU-18", "VU-24")
def test_a_schedule_is_made_changed_and_removed(schedules: VirtualUserScheduleStore) -> None:
    assert schedules.get("ada") is None
    schedules.set("ada")
    made = schedule_of("ada")
    assert (made.enabled, made.disposition, made.goals, made.budget) == (False, "realistic", [], None)
    assert (made.min_interval_ms, made.max_interval_ms) == (6 * 3_600_000, 24 * 3_600_000)
    assert made.next_run_at <= engine(DATABASE).now()
    assert (made.last_run_id, made.last_run_at) == (None, None)
    schedules.set("ada", goals=["buy"], budget={"usd": 1})
    schedules.set("ada", enabled=True)
    schedules.set("ada")
    changed = schedule_of("ada")
    assert (changed.enabled, changed.goals, changed.budget) == (True, ["buy"], {"usd": 1})
    assert changed.next_run_at == made.next_run_at
    schedules.set("eve", disposition="auditor")
    assert [each.persona for each in schedules.list()] == ["ada", "eve"]
    assert (schedules.remove("ada"), schedules.remove("ada")) == (True, False)
    assert [each.persona for each in schedules.list()] == ["eve"]


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"every": 1}, "Unknown every"),
        ({"enabled": 1}, r"\$enabled"),
        ({"min_interval_ms": -1}, r"\$min_interval_ms"),
        ({"next_run_at": "now"}, r"\$next_run_at"),
    ],
)
def test_a_schedule_that_makes_no_sense(schedules: VirtualUserScheduleStore, changes: Any, path: str) -> None:
    with pytest.raises(VirtualUserInputError, match=path):
        schedules.set("ada", **changes)
    assert schedules.list() == []


@pytest.mark.contract("VU-19", "VU-20", "VU-21", "VU-25")
def test_what_is_due_and_claimed(schedules: VirtualUserScheduleStore) -> None:
    now = engine(DATABASE).now()
    schedules.set("due", enabled=True, next_run_at=now)
    schedules.set("later", enabled=True, next_run_at=now + HOUR)
    schedules.set("off", next_run_at=now - HOUR)
    assert [each.persona for each in schedules.due(now)] == ["due"]
    assert schedules.claim("due", now, now + HOUR, "run 1", at=now)
    assert schedules.claim("due", now + HOUR, now + 2 * HOUR)
    claimed = schedule_of("due")
    assert (claimed.next_run_at, claimed.last_run_id, claimed.last_run_at) == (now + 2 * HOUR, "run 1", now)
    assert schedules.due(now) == []
    assert not schedules.claim("unknown", now, now + HOUR)
    with pytest.raises(VirtualUserInputError, match="another time"):
        schedules.claim("due", claimed.next_run_at, claimed.next_run_at)


def side_by_side(work: Callable[[], Any], times: int) -> list[Any]:
    barrier = Barrier(times)

    def begin(_: int) -> Any:
        try:
            barrier.wait(30)
            return work()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(times) as pool:
        return list(pool.map(begin, range(times)))


@pytest.mark.django_db(transaction=True)
@pytest.mark.contract("VU-22", "VU-33")
def test_of_racing_claims_and_ticks_one_wins(schedules: VirtualUserScheduleStore) -> None:
    now = engine(DATABASE).now()
    schedules.set("ada", enabled=True, next_run_at=now)
    assert sorted(side_by_side(lambda: schedules.claim("ada", now, now + HOUR), 8)) == [False] * 7 + [True]
    schedules.set("ada", next_run_at=now)
    dispatched: list[str] = []
    side_by_side(lambda: tick(lambda schedule: dispatched.append(schedule.persona)), 4)
    assert dispatched == ["ada"]


# -- ticks -------------------------------------------------------------------------------------------------------------


@pytest.mark.contract("VU-26", "VU-27", "VU-28")
@pytest.mark.parametrize("bounds", [(1_000, 3_000), (3_000, 1_000), (2_000, 2_000), (0, 0)])
def test_the_next_run_lies_within_the_interval(schedules: VirtualUserScheduleStore, bounds: tuple[int, int]) -> None:
    now = engine(DATABASE).now()
    schedules.set("ada", min_interval_ms=bounds[0], max_interval_ms=bounds[1], next_run_at=now)
    schedule = schedule_of("ada")
    found = {(next_run_at(schedule, now) - now) // timedelta(milliseconds=1) for _ in range(200)}
    assert min(found) >= max(1, min(bounds))
    assert max(found) <= max(1, *bounds)
    assert (len(found) == 1) is (bounds[0] == bounds[1])


@pytest.mark.contract("VU-29", "VU-32", "VU-34")
def test_a_tick_moves_the_time_before_it_dispatches(schedules: VirtualUserScheduleStore) -> None:
    for persona in ("bad", "good"):
        schedules.set(persona, enabled=True)
    seen: list[bool] = []

    def dispatch(schedule: VirtualUserSchedule) -> str:
        seen.append(schedule_of(schedule.persona).next_run_at > schedule.next_run_at + 5 * HOUR)
        if schedule.persona == "bad":
            raise ConnectionError("no broker")
        return "run 1"

    assert {(each.persona, each.outcome, each.run_id) for each in tick(dispatch)} == {
        ("bad", Outcome.FAILED, None),
        ("good", Outcome.DISPATCHED, "run 1"),
    }
    assert seen == [True, True]
    assert tick(dispatch) == []
    assert (schedule_of("good").last_run_id, schedule_of("bad").last_run_id) == ("run 1", None)


@pytest.mark.contract("VU-30", "VU-31")
def test_a_running_persona_is_skipped_and_a_stranded_run_failed(
    runs: VirtualUserRunStore, schedules: VirtualUserScheduleStore
) -> None:
    schedules.set("ada", enabled=True)
    run_id = runs.start("ada", "realistic", 1)
    assert tick(lambda schedule: "x") == [Ticked(persona="ada", outcome=Outcome.IN_FLIGHT, run_id=run_id)]
    with travel(timedelta(hours=2, minutes=1)):
        (ticked,) = tick(lambda schedule: "x")
    assert ticked.outcome == Outcome.DISPATCHED
    reaped = runs.get(run_id)
    assert reaped is not None
    assert (reaped.status, reaped.error) == ("failed", "Reaped: it was running for more than 2:00:00")


def test_async_twins(runs: VirtualUserRunStore, schedules: VirtualUserScheduleStore) -> None:
    async def use() -> Any:
        run_id = await runs.astart("ada", "realistic", 1)
        await schedules.aset("ada", enabled=True)
        return await runs.acomplete(run_id), len(await schedules.adue())

    assert async_to_sync(use)() == (True, 1)
