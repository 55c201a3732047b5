"""The nightly report: by hand for a day, and by its schedule for the day before."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from pytest_django import Settings
from rich.console import Console

from example_project.orders.demo import report
from example_project.orders.steps import SHOP_TIMEZONE
from example_project.orders.workflows import nightly_report
from pikku_storage.db import clock
from pikku_storage.workflows.models import WorkflowRun
from pikku_storage.workflows.schedules.service import ScheduleService
from pikku_storage.workflows.service import WorkflowService
from tests.example.conftest import Fulfil, PlaceOrder

pytestmark = pytest.mark.django_db


def test_a_day_is_summed_up(place_order: PlaceOrder, fulfil: Fulfil) -> None:
    for order in (place_order("A1", POT=1, CUP=4), place_order("A2", POT=1, courier="swift")):
        assert fulfil(order).status == "completed"
    today = datetime.now(ZoneInfo(SHOP_TIMEZONE)).date()
    run = nightly_report.run({"day": today.isoformat()})
    assert run.output == {"day": today.isoformat(), "taken_cents": 10_000, "refunded_cents": 0, "parcels": 2}
    before = (today - timedelta(days=2)).isoformat()
    assert nightly_report.run({"day": before}).output == {
        "day": before,
        "taken_cents": 0,
        "refunded_cents": 0,
        "parcels": 0,
    }


@pytest.mark.django_db(transaction=True)
def test_the_schedule_looks_back_on_the_day_before(settings: Settings) -> None:
    settings.PIKKU_STORAGE = {**settings.PIKKU_STORAGE, "DISPATCHER": None}
    ScheduleService().synchronise()
    console = Console(record=True, width=120)
    report.print_schedules(console)
    assert "Scheduled: nightly_report, next on" in console.export_text()

    (fire, *_later) = ScheduleService().next_fires("nightly_report")
    with clock.travel(fire - datetime.now(UTC) + timedelta(seconds=1)):
        WorkflowService().relay()
    run = WorkflowRun.objects.get(workflow="nightly_report")
    assert (run.status, run.wire["schedule"]) == ("completed", "nightly_report")
    assert run.output["day"] == (fire - timedelta(days=1)).date().isoformat()
