"""Many relays, one run for each fire: threads and processes that see the same schedules due at the same time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

import pytest
from pytest_django.fixtures import Settings

from pikku_storage.db.clock import travel
from pikku_storage.workflows import workflow
from pikku_storage.workflows.flow import Flow
from pikku_storage.workflows.models import WorkflowRun, WorkflowSchedule
from pikku_storage.workflows.registry import registry
from pikku_storage.workflows.schedules.fires import Fires
from pikku_storage.workflows.schedules.service import ScheduleService
from pikku_storage.workflows.service import WorkflowService
from tests.races.together import answers_of_processes, in_threads

SCHEDULES = 10
MISSED = 5
RELAYS = 8
PROCESSES = 4

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("no_messages")]


@workflow(name="races.tick")
def tick(flow: Flow) -> None: ...


@pytest.fixture
def no_messages(settings: Settings) -> None:
    settings.PIKKU_STORAGE = {"DISPATCHER": "tests.races.test_starts.Nowhere"}


def missed(catch_up: str, overlap: str = "allow") -> dict[str, list[str]]:
    """Schedules that have missed some fires each; their names, and these fires."""
    with travel(-MISSED * timedelta(hours=1)):
        made = [
            ScheduleService().create(f"s{number}", tick.name, "@hourly", catch_up=catch_up, overlap=overlap)
            for number in range(SCHEDULES)
        ]
    due = [schedule.next_fire_at for schedule in made if schedule.next_fire_at is not None]
    fires = Fires("@hourly", "UTC").between(due[0], due[0] + (MISSED - 1) * timedelta(hours=1))
    times = [written(fire) for fire in fires]
    return {schedule.name: times for schedule in made}


def written(fire: datetime) -> str:
    return f"{fire:%Y-%m-%dT%H:%M:%SZ}"


def assert_one_run_each(expected: dict[str, list[str]], started: Iterable[list[str]]) -> None:
    runs = {run.pk: run.wire for run in WorkflowRun.objects.filter(workflow=tick.name)}
    found: dict[str, list[str]] = {name: [] for name in expected}
    for wire in runs.values():
        found[wire["schedule"]].append(wire["fireTime"])
    assert {name: sorted(times) for name, times in found.items()} == expected
    # One relay says of each that it started it.
    assert Counter(run_id for ids in started for run_id in ids) == Counter(dict.fromkeys(runs, 1))
    assert all(schedule.next_fire_at > schedule.last_fire_at for schedule in WorkflowSchedule.objects.all())


@pytest.mark.parametrize("catch_up", ["latest", "all"])
def test_of_many_threads_one_starts_each_fire(catch_up: str) -> None:
    fires = missed(catch_up)
    expected = fires if catch_up == "all" else {name: times[-1:] for name, times in fires.items()}

    started = in_threads(lambda index: WorkflowService(worker=f"w{index}").relay(), threads=RELAYS)

    assert_one_run_each(expected, started)


def test_of_many_threads_one_starts_a_run_that_may_not_overlap() -> None:
    fires = missed("all", overlap="skip")
    started = in_threads(lambda index: WorkflowService(worker=f"w{index}").relay(), threads=RELAYS)
    assert_one_run_each({name: times[:1] for name, times in fires.items()}, started)


def test_of_many_processes_one_starts_each_fire(process_env: dict[str, str]) -> None:
    fires = missed("all")
    started = answers_of_processes("tests.races.relayer", [[]] * PROCESSES, process_env)
    assert_one_run_each(fires, started)


def test_backfills_and_relays_that_meet_start_each_fire_once() -> None:
    fires = missed("all")
    (first, *_rest), last = next(iter(fires.values())), next(iter(fires.values()))[-1]
    start, end = datetime.fromisoformat(first), datetime.fromisoformat(last)

    def act(index: int) -> list[str]:
        if index % 2:
            return WorkflowService(worker=f"w{index}").relay() and []
        for name in fires:
            ScheduleService().backfill(name, start=start, end=end)
        return []

    in_threads(act, threads=RELAYS)
    runs: Any = WorkflowRun.objects.filter(workflow=tick.name).values_list("wire", flat=True)
    assert Counter((wire["schedule"], wire["fireTime"]) for wire in runs) == Counter(
        {(name, fire): 1 for name, times in fires.items() for fire in times}
    )
    assert not WorkflowSchedule.objects.filter(next_fire_at__lte=end).exists()


def test_processes_that_start_together_declare_each_schedule_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "workflows", dict(registry.workflows))

    @workflow(name="races.declared", schedule="@daily")
    def declared(flow: Flow) -> None: ...

    changed = in_threads(lambda index: ScheduleService().synchronise(), threads=RELAYS)
    assert WorkflowSchedule.objects.filter(name=declared.name).count() == 1
    assert sum(changed) == WorkflowSchedule.objects.count()
