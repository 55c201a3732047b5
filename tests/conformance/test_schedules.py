"""Schedules: what is due by the clock is started once, whatever dies and however late the relay is."""

import itertools
import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from asgiref.sync import async_to_sync
from django.core.checks import run_checks
from pytest_django import Settings

from pikku_storage.db import clock, engine
from pikku_storage.exceptions import (
    PayloadError,
    ScheduleNotFoundError,
    WorkflowError,
    WorkflowInputError,
    WorkflowNotFoundError,
)
from pikku_storage.workflows import Limits, workflow
from pikku_storage.workflows.engine import versions
from pikku_storage.workflows.flow import Flow
from pikku_storage.workflows.models import WorkflowRun, WorkflowSchedule
from pikku_storage.workflows.records import Run, Schedule
from pikku_storage.workflows.registry import registry
from pikku_storage.workflows.schedules import synchronising
from pikku_storage.workflows.schedules.firing import MOST_CAUGHT_UP
from pikku_storage.workflows.schedules.service import ScheduleService
from pikku_storage.workflows.service import WorkflowService
from tests.conformance.failing import WAYS, Way, failing
from tests.conformance.recording import RecordingDispatcher
from tests.conformance.support import DATABASE, MINUTE, SECOND, connection, nothing_is_stored, undeployed

pytestmark = pytest.mark.django_db(transaction=True)

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


@pytest.fixture
def schedules() -> ScheduleService:
    return ScheduleService()


@pytest.fixture(autouse=True)
def report() -> Any:
    """The workflow that is scheduled here."""

    @workflow
    def report(flow: Flow, region: str = "north") -> Any:
        return {"region": region, "at": flow.fire_time and flow.fire_time.isoformat()}

    return report


def at(moment: datetime) -> AbstractContextManager[None]:
    """The clock shows that moment."""
    return clock.travel(moment - engine(DATABASE).now())


def stored(name: str = "nightly") -> Schedule:
    schedule = ScheduleService().get(name)
    assert schedule is not None
    return schedule


def due(name: str = "nightly") -> datetime:
    """When the schedule fires next."""
    moment = stored(name).next_fire_at
    assert moment is not None
    return moment


def fired(workflow_name: str = "report", *, schedule: str | None = None) -> list[str]:
    """The fires that have a run, in their order."""
    wires: Any = WorkflowRun.objects.filter(workflow=workflow_name).values_list("wire", flat=True)
    return sorted(wire["fireTime"] for wire in wires if schedule in {None, wire["schedule"]})


def text(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def run_of(run_id: str | None) -> Run:
    run = WorkflowService().get_run(run_id or "")
    assert run is not None
    return run


# -- fires -------------------------------------------------------------------------------------------------------------


def test_a_fire_starts_one_run_that_says_what_it_is_for(
    schedules: ScheduleService, service: WorkflowService, outbox: RecordingDispatcher
) -> None:
    schedules.create("nightly", "report", "0 3 * * *", timezone="Asia/Tokyo", data={"region": "south"}, owner="ada")
    first = due()
    assert (first.hour, first.minute) == (18, 0)
    assert schedules.next_fires("nightly") == [first + days * DAY for days in range(5)]

    with at(first - SECOND):
        assert service.relay() == []
    with at(first + SECOND):
        (run_id,) = service.relay()
        assert service.relay() == []
        outbox.deliver()

    run = run_of(run_id)
    assert run.wire == {
        "type": "schedule",
        "schedule": "nightly",
        "fireTime": text(first),
        "timezone": "Asia/Tokyo",
        "pikkuUserId": "ada",
    }
    assert (run.owner_id, run.input, run.status) == ("ada", {"region": "south"}, "completed")
    local = first.astimezone(ZoneInfo("Asia/Tokyo"))
    assert run.output == {"region": "south", "at": f"{local:%Y-%m-%d}T03:00:00+09:00"}
    assert run.idempotency_key == f"schedule/nightly/{text(first)}"
    schedule = stored()
    assert (schedule.last_fire_at, schedule.last_run_id, schedule.next_fire_at) == (first, run_id, first + DAY)


def region_key(region: str) -> str:
    if region == "nowhere":
        raise ValueError("There is no such region")
    return region


def test_its_run_takes_part_in_flow_control(
    schedules: ScheduleService, service: WorkflowService, outbox: RecordingDispatcher
) -> None:
    @workflow(
        limits=Limits(concurrency_per_key=1, concurrency_key=region_key),
        priority=lambda region: 9 if region == "south" else 1,
        deadline="5s",
    )
    def urgent(flow: Flow, region: str) -> None: ...

    schedules.create("nightly", "urgent", "@daily", data={"region": "south"})
    with at(due()):
        (run_id,) = service.relay()
    run = run_of(run_id)
    assert (run.priority, run.concurrency_key) == (9, "south")
    assert run.deadline_at == run.due_at == run.created_at + 5 * SECOND
    assert [message.priority for message in outbox.sent] == [9]


def test_an_input_that_flow_control_cannot_use_is_refused(schedules: ScheduleService) -> None:
    @workflow(limits=Limits(concurrency_per_key=1, concurrency_key=region_key))
    def urgent(flow: Flow, region: str) -> None: ...

    with pytest.raises(WorkflowInputError, match="no such region"):
        schedules.create("nightly", "urgent", "@daily", data={"region": "nowhere"})
    schedules.create("nightly", "urgent", "@daily", data={"region": "south"})
    with pytest.raises(WorkflowInputError, match="no such region"):
        schedules.update("nightly", data={"region": "nowhere"})


@pytest.mark.parametrize("is_known", [True, False])
def test_a_run_whose_flow_control_cannot_be_told_is_started_all_the_same(
    is_known: bool, schedules: ScheduleService, service: WorkflowService, caplog: pytest.LogCaptureFixture
) -> None:
    regions = {"south": "s"}

    @workflow(limits=Limits(concurrency_per_key=1, concurrency_key=lambda region: regions[region]), priority=9)
    def urgent(flow: Flow, region: str) -> None: ...

    schedules.create("nightly", "urgent", "@daily", data={"region": "south"})
    del regions["south"]
    with nullcontext() if is_known else undeployed("urgent"), at(due()):
        (run_id,) = service.relay()
    assert (run_of(run_id).priority, run_of(run_id).concurrency_key) == (None, None)
    assert ("Flow control of workflow 'urgent'" in caplog.text) == is_known


def test_a_run_that_no_schedule_started_has_no_fire_time(report: Any) -> None:
    assert report.run().output == {"region": "north", "at": None}


def test_the_version_that_a_run_starts_with_is_stored(
    schedules: ScheduleService, service: WorkflowService, report: Any
) -> None:
    schedules.create("nightly", "report", "@daily")
    with at(due()):
        (run_id,) = service.relay()
    assert run_of(run_id).graph_hash == report.graph_hash
    assert service.get_workflow_version("report", report.graph_hash) is not None


def test_a_message_that_is_lost_costs_time_only(
    schedules: ScheduleService, service: WorkflowService, outbox: RecordingDispatcher
) -> None:
    schedules.create("nightly", "report", "@daily")
    with at(due()):
        (run_id,) = service.relay()
        outbox.lose_everything()
        with clock.travel(MINUTE):
            service.relay()
            outbox.deliver()
    assert run_of(run_id).status == "completed"


@pytest.mark.usefixtures("no_broker")
def test_without_a_broker_the_relay_carries_the_run_out(schedules: ScheduleService, service: WorkflowService) -> None:
    schedules.create("nightly", "report", "@daily")
    with at(due()):
        (run_id,) = service.relay()
    assert run_of(run_id).status == "completed"


def test_times_that_the_clock_skips_and_repeats(schedules: ScheduleService, service: WorkflowService) -> None:
    with at(datetime(2028, 3, 24, tzinfo=UTC)):
        schedules.create("nightly", "report", "30 2 * * *", timezone="Europe/Berlin")
    for day in range(24, 29):
        with at(datetime(2028, 3, day, 12, tzinfo=UTC)):
            service.relay()
    with at(datetime(2028, 10, 28, 2, tzinfo=UTC)):
        service.relay()
    for minute in range(0, 180, 10):
        with at(datetime(2028, 10, 29, tzinfo=UTC) + minute * MINUTE):
            service.relay()
    assert fired() == [
        *("2028-03-24T01:30:00Z", "2028-03-25T01:30:00Z"),
        "2028-03-26T01:00:00Z",  # 2:30 is skipped: at 3:00, as soon as it is over
        *("2028-03-27T00:30:00Z", "2028-03-28T00:30:00Z"),
        "2028-10-28T00:30:00Z",
        "2028-10-29T00:30:00Z",  # 2:30 comes twice: the first time
    ]


# -- what is missed ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("catch_up", "started"), [("skip", []), ("latest", [3]), ("all", [0, 1, 2, 3])], ids=["skip", "latest", "all"]
)
def test_what_is_started_of_the_fires_that_were_missed(
    schedules: ScheduleService, service: WorkflowService, catch_up: str, started: list[int]
) -> None:
    schedules.create("nightly", "report", "@daily", catch_up=catch_up, timezone="UTC")
    first = due()
    with at(first + 3 * DAY + 5 * MINUTE):
        assert len(service.relay()) == len(started)
        assert due() == first + 4 * DAY
        assert service.relay() == []
    assert fired() == [text(first + days * DAY) for days in started]


def test_a_fire_that_is_hardly_late_is_not_missed(
    schedules: ScheduleService, service: WorkflowService, settings: Settings
) -> None:
    schedules.create("nightly", "report", "@daily", catch_up="skip")
    first = due()
    with at(first + 59 * SECOND):
        service.relay()
    settings.PIKKU_STORAGE = {**settings.PIKKU_STORAGE, "RELAY_INTERVAL": "10min"}
    with at(first + DAY + 19 * MINUTE):
        service.relay()
    assert fired() == [text(first), text(first + DAY)]


def test_there_is_a_bound_to_what_is_caught_up(schedules: ScheduleService, service: WorkflowService) -> None:
    schedules.create("often", "report", "* * * * *", catch_up="all")
    now = due("often") + 500 * MINUTE
    with at(now + SECOND):
        assert len(service.relay()) == MOST_CAUGHT_UP
        assert service.relay() == []
    assert fired() == [text(now - number * MINUTE) for number in reversed(range(MOST_CAUGHT_UP))]


# -- overlap -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("overlap", ["allow", "skip"])
def test_a_fire_while_the_previous_run_is_live(
    schedules: ScheduleService, service: WorkflowService, outbox: RecordingDispatcher, overlap: str
) -> None:
    schedules.create("hourly", "report", "@hourly", overlap=overlap)
    first = due("hourly")
    with at(first):
        service.relay()
    with at(first + HOUR):
        service.relay()
        assert due("hourly") == first + 2 * HOUR
        assert len(fired()) == (2 if overlap == "allow" else 1)
        outbox.deliver()
    with at(first + 2 * HOUR):
        service.relay()
    assert fired()[-1] == text(first + 2 * HOUR)


def test_caught_up_fires_overlap_as_others_do(schedules: ScheduleService, service: WorkflowService) -> None:
    schedules.create("hourly", "report", "@hourly", overlap="skip", catch_up="all")
    first = due("hourly")
    with at(first + 5 * HOUR):
        assert len(service.relay()) == 1
    assert fired() == [text(first)]


# -- whatever dies -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_a_relay_that_fails_at_any_statement_neither_loses_nor_doubles_a_fire(
    schedules: ScheduleService, service: WorkflowService, outbox: RecordingDispatcher, way: Way
) -> None:
    for number in itertools.count(1):
        name = f"schedule {number}"
        versions.stored_versions.clear()
        schedules.create(name, "report", "0 3 * * *", timezone="UTC")
        first = due(name)
        with at(first + SECOND):
            with failing(number, way) as failure:
                service.relay()
            with clock.travel(MINUTE):
                # MongoDB's second write may be left to the next look at the declared schedules.
                synchronising._last_looks.clear()
                service.relay()
                outbox.deliver()
            assert fired(schedule=name) == [text(first)], f"statement {number}: {failure.reached}"
            assert due(name) == first + DAY
        schedules.delete(name)
        outbox.reset()
        if failure.reached is None:
            break
    assert number > 4
    assert set(WorkflowRun.objects.values_list("status", flat=True)) == {"completed"}


def test_a_relay_that_is_late_fires_nothing_that_others_have_dealt_with(
    schedules: ScheduleService, service: WorkflowService
) -> None:
    """It has read the schedule, and is stopped; when it goes on, nothing is as it saw it."""
    stale = schedules.create("nightly", "report", "@daily")
    with at(due()):
        service.relay()
    WorkflowRun.objects.all().delete()
    changes: list[Callable[[], object]] = [
        lambda: None,
        lambda: schedules.pause("nightly"),
        lambda: (schedules.delete("nightly"), schedules.create("nightly", "report", "@hourly")),
        lambda: schedules.delete("nightly"),
    ]
    for change in changes:
        change()
        assert stale.next_fire_at is not None
        moved = WorkflowSchedule.objects.fire(stale, next_fire_at=stale.next_fire_at + DAY, at=engine(DATABASE).now())
        assert moved is False


def test_a_fire_that_was_backfilled_is_not_run_again(
    schedules: ScheduleService, service: WorkflowService, outbox: RecordingDispatcher
) -> None:
    schedules.create("nightly", "report", "@daily", timezone="UTC")
    first = due()
    with at(first + SECOND):
        (fire,) = schedules.backfill("nightly", start=first, end=first)
        outbox.deliver()
        assert service.relay() == [fire.run_id]
        outbox.deliver()
    assert fired() == [text(first)]
    assert (stored().last_run_id, due()) == (fire.run_id, first + DAY)


def test_a_row_that_cannot_be_read_does_not_keep_the_others_from_firing(
    schedules: ScheduleService, service: WorkflowService, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("bad", "good"):
        schedules.create(name, "report", "@daily")
    WorkflowSchedule.objects.filter(name="bad").update(timezone="Mars/Phobos")
    with at(due("good")), caplog.at_level(logging.ERROR):
        assert len(service.relay()) == 1
    assert "The relay could not drive schedule bad on" in caplog.text


def test_a_workflow_that_is_not_deployed_yet_waits_with_its_run(
    schedules: ScheduleService, service: WorkflowService, outbox: RecordingDispatcher
) -> None:
    schedules.create("nightly", "report", "@daily")
    with at(due()):
        with undeployed("report"):
            (run_id,) = service.relay()
            outbox.deliver()
            assert run_of(run_id).status == "suspended"
        with clock.travel(HOUR):
            service.relay()
            outbox.deliver()
    assert run_of(run_id).status == "completed"


def test_an_input_that_fits_no_more_suspends_the_run_and_says_so(
    schedules: ScheduleService, service: WorkflowService, outbox: RecordingDispatcher
) -> None:
    schedules.create("nightly", "report", "@daily", data={"region": "west"})
    registry.workflows.pop("report")

    @workflow
    def report(flow: Flow) -> None: ...

    with at(due()):
        (run_id,) = service.relay()
        outbox.deliver()
    run = run_of(run_id)
    assert run.status == "suspended"
    assert "unexpected 'region'" in (run.error or {})["message"]


# -- operators ---------------------------------------------------------------------------------------------------------


def test_a_paused_schedule_does_not_fire_and_catches_nothing_up(
    schedules: ScheduleService, service: WorkflowService
) -> None:
    schedules.create("nightly", "report", "@daily", catch_up="all")
    first = due()
    assert (schedules.pause("nightly"), schedules.pause("nightly")) == (True, False)
    assert schedules.next_fires("nightly") == []
    with at(first + 3 * DAY + HOUR):
        assert service.relay() == []
        assert (schedules.resume("nightly"), schedules.resume("nightly")) == (True, False)
        assert service.relay() == []
        assert due() == first + 4 * DAY


def test_a_schedule_may_be_made_paused(schedules: ScheduleService) -> None:
    schedule = schedules.create("nightly", "report", "@daily", enabled=False)
    assert (schedule.is_active, schedule.next_fire_at) == (False, None)


def test_what_is_changed_and_what_stays(schedules: ScheduleService) -> None:
    before = schedules.create("nightly", "report", "0 3 * * *", timezone="UTC", owner="ada", data={"region": "south"})

    assert schedules.update("nightly", catch_up="all", overlap="skip").next_fire_at == before.next_fire_at
    moved = schedules.update("nightly", cron="0 4 * * *")
    assert moved.next_fire_at is not None
    assert moved.next_fire_at.hour == 4
    assert (moved.owner_id, moved.input, moved.catch_up, moved.overlap) == ("ada", {"region": "south"}, "all", "skip")
    moved = schedules.update("nightly", timezone="Asia/Tokyo", owner="", data={})
    assert moved.next_fire_at is not None
    assert (moved.next_fire_at.hour, moved.owner_id, moved.input) == (19, None, {})

    schedules.pause("nightly")
    assert schedules.update("nightly", cron="0 5 * * *").next_fire_at is None


def test_a_change_that_meets_a_fire_sees_it(
    schedules: ScheduleService, service: WorkflowService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The relay fires between the read and the write of an edit: the edit is done again on what there is then."""
    schedules.create("nightly", "report", "@daily")
    first = due()
    read, relays = ScheduleService._read, iter([service.relay])

    def reading(self: ScheduleService, name: str) -> Schedule:
        seen = read(self, name)
        for relay in relays:
            relay()
        return seen

    monkeypatch.setattr(ScheduleService, "_read", reading)
    with at(first):
        schedule = schedules.update("nightly", overlap="skip")
    assert (schedule.overlap, schedule.last_fire_at) == ("skip", first)
    assert schedule.next_fire_at == first + DAY


def test_schedules_are_listed_by_name(schedules: ScheduleService) -> None:
    for name in ("b", "a", "B"):
        schedules.create(name, "report", "@daily")
    assert [schedule.name for schedule in schedules.list()] == ["B", "a", "b"]


def test_a_deleted_schedule_leaves_its_runs(schedules: ScheduleService, service: WorkflowService) -> None:
    schedules.create("nightly", "report", "@daily")
    with at(due()):
        service.relay()
    assert schedules.delete("nightly") is True
    assert (schedules.list(), len(fired())) == ([], 1)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"workflow": "no such"}, WorkflowNotFoundError),
        ({"cron": "61 * * * *"}, WorkflowInputError),
        ({"cron": "* " * 200}, WorkflowInputError),
        ({"cron": None}, WorkflowInputError),
        ({"timezone": "Mars/Phobos"}, WorkflowInputError),
        ({"catch_up": "some"}, WorkflowInputError),
        ({"overlap": "maybe"}, WorkflowInputError),
        ({"data": {"colour": "red"}}, WorkflowInputError),
        ({"data": {"region": {1, 2}}}, PayloadError),
        ({"data": ["north"]}, PayloadError),
        ({"name": ""}, PayloadError),
        ({"name": "n" * 201}, PayloadError),
        ({"owner": object()}, WorkflowInputError),
        ({"name": "taken"}, WorkflowInputError),
        ({"name": "declared"}, WorkflowInputError),
    ],
)
def test_what_cannot_be_used_is_refused(
    schedules: ScheduleService, changes: dict[str, Any], error: type[WorkflowError]
) -> None:
    workflow(name="declared", schedule="@daily")(lambda flow: None)
    schedules.create("taken", "report", "@daily")
    values: dict[str, Any] = {"name": "nightly", "workflow": "report", "cron": "@daily", **changes}
    with pytest.raises(error):
        schedules.create(values.pop("name"), values.pop("workflow"), values.pop("cron"), **values)
    if not {"workflow", "name", "cron"} & changes.keys():
        with pytest.raises(error):
            schedules.update("taken", **changes)
    assert [schedule.name for schedule in schedules.list()] == ["taken"]


def test_a_name_that_is_none_is_said_so(schedules: ScheduleService) -> None:
    assert schedules.get("nightly") is None
    with pytest.raises(ScheduleNotFoundError, match="nightly"):
        schedules.update("nightly")
    for operation in (schedules.pause, schedules.resume, schedules.delete, schedules.next_fires):
        with pytest.raises(ScheduleNotFoundError):
            operation("nightly")


def test_every_operation_has_its_twin(schedules: ScheduleService) -> None:
    async def story() -> list[Any]:
        await schedules.acreate("nightly", "report", "@daily")
        return [await schedules.apause("nightly"), await schedules.anext_fires("nightly"), await schedules.alist()]

    paused, fires, found = async_to_sync(story)()
    assert (paused, fires, [schedule.name for schedule in found]) == (True, [], ["nightly"])


# -- backfill ----------------------------------------------------------------------------------------------------------


def test_a_backfill_starts_what_has_no_run_yet(
    schedules: ScheduleService, outbox: RecordingDispatcher, service: WorkflowService
) -> None:
    schedules.create("nightly", "report", "@daily", timezone="UTC", overlap="skip", enabled=False)
    start = datetime(2026, 3, 1, tzinfo=UTC)

    planned = schedules.backfill("nightly", start=start, end=start + 2 * DAY, dry_run=True)
    assert nothing_is_stored()
    done = schedules.backfill("nightly", start=start, end=start + 2 * DAY)
    assert [(fire.fire_at, fire.created) for fire in done] == [(start + days * DAY, True) for days in range(3)]
    assert planned == done

    outbox.deliver()
    longer = schedules.backfill("nightly", start=start - DAY, end=start + 3 * DAY)
    assert [fire.created for fire in longer] == [True, False, False, False, True]
    outbox.deliver()
    assert len(fired()) == 5
    assert {run.status for run in WorkflowRun.objects.all()} == {"completed"}
    assert run_of(done[0].run_id).output["at"] == "2026-03-01T00:00:00+00:00"
    assert stored().last_fire_at is None


@pytest.mark.parametrize(
    ("start", "end"),
    [
        (datetime(2026, 3, 2, tzinfo=UTC), datetime(2026, 3, 1, tzinfo=UTC)),
        (datetime(2026, 3, 1, tzinfo=UTC), datetime(2999, 1, 1, tzinfo=UTC)),
        (datetime(2026, 3, 1), datetime(2026, 3, 2)),  # noqa: DTZ001 - that is what is refused
    ],
    ids=["backwards", "future", "naive"],
)
def test_a_backfill_is_of_the_past(schedules: ScheduleService, start: datetime, end: datetime) -> None:
    schedules.create("nightly", "report", "@daily")
    with pytest.raises(WorkflowInputError):
        schedules.backfill("nightly", start=start, end=end)


# -- what the code declares --------------------------------------------------------------------------------------------


@pytest.fixture
def declare() -> Callable[..., None]:
    """Deploy a version of `nightly_report` with that schedule, or without one; its relay looks at once."""
    registry.workflows = {name: each for name, each in registry.workflows.items() if each.schedule is None}

    def deploy(**options: Any) -> None:
        registry.workflows.pop("nightly_report", None)
        workflow(name="nightly_report", **options)(lambda flow: None)
        synchronising._last_looks.clear()

    return deploy


Declare = Callable[..., None]


def test_a_declared_schedule_fires(
    declare: Declare, service: WorkflowService, outbox: RecordingDispatcher, settings: Settings
) -> None:
    settings.TIME_ZONE = "Asia/Tokyo"
    declare(schedule="0 3 * * *", catch_up="all", overlap="skip")
    assert service.relay() == []
    schedule = stored("nightly_report")
    assert (schedule.workflow, schedule.source, schedule.is_active) == ("nightly_report", "code", True)
    assert (schedule.timezone, schedule.catch_up, schedule.overlap) == ("Asia/Tokyo", "all", "skip")
    with at(due("nightly_report")):
        (run_id,) = service.relay()
        outbox.deliver()
    assert run_of(run_id).status == "completed"


def test_what_the_code_says_now_counts(declare: Declare, service: WorkflowService) -> None:
    declare(schedule="0 3 * * *", timezone="UTC")
    service.relay()
    first = due("nightly_report")
    declare(schedule="0 3 * * *", timezone="UTC", catch_up="skip")
    service.relay()
    assert (due("nightly_report"), stored("nightly_report").catch_up) == (first, "skip")
    declare(schedule="0 4 * * *", timezone="UTC")
    service.relay()
    assert due("nightly_report").hour == 4


def test_looking_again_writes_nothing(declare: Declare, schedules: ScheduleService) -> None:
    declare(schedule="0 3 * * *")
    assert [schedules.synchronise() for _ in range(2)] == [1, 0]


def test_what_an_operator_paused_stays_paused(
    declare: Declare, service: WorkflowService, schedules: ScheduleService
) -> None:
    declare(schedule="0 3 * * *")
    service.relay()
    schedules.pause("nightly_report")
    for options in ({"schedule": "0 4 * * *"}, {}, {"schedule": "0 5 * * *"}):
        declare(**options)
        service.relay()
        assert (stored("nightly_report").enabled, stored("nightly_report").next_fire_at) == (False, None)
    assert schedules.resume("nightly_report")
    assert stored("nightly_report").is_active


def test_what_is_gone_from_the_code_does_not_fire(
    declare: Declare, service: WorkflowService, schedules: ScheduleService
) -> None:
    declare(schedule="@daily", timezone="UTC")
    service.relay()
    first = due("nightly_report")
    assert schedules.delete("nightly_report") is False
    declare()
    with at(first + HOUR):
        assert service.relay() == []
        schedule = stored("nightly_report")
        assert (schedule.enabled, schedule.undeclared, schedule.is_active) == (True, True, False)
        assert schedules.next_fires("nightly_report") == []
        # An old process was the last to look, in the middle of a deployment: the fire is only late.
        declare(schedule="@daily", timezone="UTC")
        assert len(service.relay()) == 1
    assert fired("nightly_report") == [text(first)]
    declare()
    service.relay()
    assert schedules.delete("nightly_report") is True


def test_what_the_code_declares_is_changed_there(
    declare: Declare, service: WorkflowService, schedules: ScheduleService
) -> None:
    declare(schedule="@daily")
    service.relay()
    with pytest.raises(WorkflowInputError, match="declared in the code"):
        schedules.update("nightly_report", cron="@hourly")


def test_a_name_that_an_operator_took_first_stays_his(
    declare: Declare, service: WorkflowService, schedules: ScheduleService, caplog: pytest.LogCaptureFixture
) -> None:
    schedules.create("nightly_report", "report", "@hourly")
    declare(schedule="@daily")
    service.relay()
    assert (stored("nightly_report").source, stored("nightly_report").cron) == ("operator", "@hourly")
    assert "is not in force" in caplog.text


def test_the_relay_looks_now_and_then(declare: Declare, service: WorkflowService) -> None:
    declare(schedule="@daily")
    service.relay()
    WorkflowSchedule.objects.all().delete()
    service.relay()
    assert not WorkflowSchedule.objects.exists()
    synchronising._last_looks[DATABASE] -= synchronising.AGAIN_AFTER
    service.relay()
    assert WorkflowSchedule.objects.exists()


def test_a_declaration_that_cannot_be_used_does_not_keep_the_relay_from_its_work(
    declare: Declare, service: WorkflowService, schedules: ScheduleService, caplog: pytest.LogCaptureFixture
) -> None:
    schedules.create("nightly", "report", "@daily", timezone="UTC")
    declare(schedule="@daily")
    with at(due()), pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(registry.workflows["nightly_report"].schedule), "zone", "Mars/Phobos")
        assert len(service.relay()) == 1
    assert "The relay could not drive the declared schedules on" in caplog.text


def test_an_answer_that_is_lost_is_no_second_declaration(declare: Declare, schedules: ScheduleService) -> None:
    declare(schedule="@daily")
    for number in itertools.count(1):
        with failing(number, "unanswered") as failure:
            schedules.synchronise()
        schedules.synchronise()
        assert [schedule.name for schedule in schedules.list()] == ["nightly_report"]
        if failure.reached is None:
            break
        WorkflowSchedule.objects.all().delete()
        connection.close()


# -- system checks -----------------------------------------------------------------------------------------------------


def checked(*databases: str) -> list[tuple[str, str]]:
    messages = run_checks(tags=["pikku"], databases=databases, include_deployment_checks=False)
    return [(str(message.id), message.msg) for message in messages if message.id in {"pikku.E007", "pikku.W004"}]


def test_a_declared_schedule_whose_workflow_needs_input_is_an_error(declare: Declare) -> None:
    declare(schedule="@daily")
    assert checked() == []
    workflow(name="needy", schedule="@daily")(lambda flow, region: None)
    ((found, message),) = checked()
    assert found == "pikku.E007"
    assert "missing 'region'" in message


def test_schedules_whose_runs_would_wait_are_warned_of(declare: Declare, schedules: ScheduleService) -> None:
    for name in ("fine", "changed", "paused"):
        schedules.create(name, "report", "@daily", data={} if name == "fine" else {"region": "west"})
    schedules.pause("paused")
    assert checked(DATABASE) == []

    registry.workflows.pop("report")
    workflow(name="report")(lambda flow: None)
    ((found, message),) = checked(DATABASE)
    assert found == "pikku.W004"
    assert message.startswith("The schedule 'changed': ")
    # Without a database that may be asked, nothing is.
    assert checked() == []

    with undeployed("report"):
        assert [message.split(": ")[1] for _, message in checked(DATABASE)] == ["Workflow not found"] * 2
