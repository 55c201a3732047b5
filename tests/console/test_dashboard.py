"""The dashboard: what it counts, how far, for whom, and at what cost."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import OperationalError, connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from console.workflows.dashboard import reads
from console.workflows.dashboard.bars import HEIGHT, chart_of
from console.workflows.dashboard.board import Board, summary_of
from console.workflows.dashboard.periods import PERIODS, period_of
from console.workflows.dashboard.reads import Histogram
from pikku_storage.conf import settings
from pikku_storage.deployments.models import Deployment
from pikku_storage.workflows.models import WorkflowRun
from pikku_storage.workflows.statuses import RunStatus
from tests.console.conftest import client_of, context_of, staff_with
from tests.console.stories import Story, Try, failed_order, now, order_in_flight

pytestmark = pytest.mark.django_db

INDEX = "/admin/pikku_workflows/"
NOON = datetime(2026, 3, 29, 12, 30, tzinfo=UTC)
"""On this day Berlin changes its clocks."""


def board(at: datetime | None = None, chart: str = "24h") -> Board:
    return Board(
        WorkflowRun.objects.all(), now=at or now(), site="admin", period=period_of(chart), sees_deployments=True
    )


def begun(at: datetime, status: str = "completed", workflow: str = "w", **options: Any) -> str:
    return Story(workflow=workflow, status=status, started=at, ended=1, options=options).tell()


def test_buckets_are_the_viewers_hours_and_days() -> None:
    with timezone.override("Europe/Berlin"):
        hours, days = PERIODS["24h"].starts(NOON), PERIODS["14d"].starts(NOON)
        assert (len(hours), hours[-1], hours[1] - hours[0]) == (24, NOON.replace(minute=0), timedelta(hours=1))
        assert PERIODS["24h"].name_of(hours[-1]) == "14:00"
        names = [PERIODS["24h"].name_of(start) for start in hours]
        assert names[10:14] == ["00:00", "01:00", "03:00", "04:00"]
        assert days[-1] == datetime(2026, 3, 28, 23, tzinfo=UTC)
        assert PERIODS["14d"].name_of(days[0]) == "03-16"
    with timezone.override("Asia/Kolkata"):
        assert PERIODS["24h"].starts(NOON)[-1] == NOON.replace(minute=30)


def test_runs_are_counted_by_status_and_hour() -> None:
    at = NOON
    for hours, status in ((0, "completed"), (0, "failed"), (2, "completed"), (23, "cancelled"), (25, "failed")):
        begun(at - timedelta(hours=hours), status)
    chart = board(at).chart
    assert chart.total == 4, "what began before is no part of it"
    assert {status: count for status, _, count in chart.statuses if count} == {
        "completed": 2,
        "failed": 1,
        "cancelled": 1,
    }
    assert [(number, bar.total) for number, bar in enumerate(chart.bars) if bar.total] == [(0, 1), (21, 1), (23, 2)]
    assert [part.status for part in chart.bars[-1].parts] == ["completed", "failed"]
    assert not chart.is_partial
    assert [bar.total for bar in board(at, "14d").chart.bars][-2:] == [2, 3]


def test_of_very_many_runs_the_newest_are_counted_and_the_chart_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reads, "MOST_COUNTED", 3)
    for hours in (0, 1, 2, 3, 3, 5):
        begun(NOON - timedelta(hours=hours))
    begun(NOON - timedelta(hours=9), "failed")
    chart = board(NOON).chart
    assert [bar.total for bar in chart.bars][-6:] == [0, 0, 0, 1, 1, 1]
    assert [bar.is_partial for bar in chart.bars][-6:] == [True, True, True, False, False, False]
    # What is rare is counted all the same.
    assert chart.bars[-10].total == 1


def test_bars_stand_on_each_other_and_fit() -> None:
    counts = {status: [0, 1, 10_000] for status in RunStatus.values}
    starts = [NOON - timedelta(hours=back) for back in (2, 1, 0)]
    empty, small, high = chart_of(Histogram(counts, None), PERIODS["24h"], starts).bars
    assert empty.parts == []
    for bar in (small, high):
        edges = [(float(part.y), float(part.y) + float(part.height)) for part in bar.parts]
        assert edges[0][1] == pytest.approx(HEIGHT)
        assert all(lower[0] == pytest.approx(upper[1], abs=0.2) for lower, upper in itertools.pairwise(edges))
        assert edges[-1][0] >= 0
    assert float(small.parts[0].height) >= 2


def test_failures_by_workflow(monkeypatch: pytest.MonkeyPatch) -> None:
    for workflow, count in (("a", 1), ("b", 3), ("c", 2)):
        for minutes in range(count):
            begun(NOON - timedelta(minutes=minutes), "failed", workflow)
    begun(NOON - timedelta(days=3), "failed", "old")
    assert [(name, count) for name, count, _ in board(NOON).failed_workflows] == [("b", 3), ("c", 2), ("a", 1)]
    monkeypatch.setattr(reads, "MOST_READ", 4)
    found = board(NOON).failures
    assert (found.total, found.is_all) == (4, False)


def test_what_waits_and_who_works(monkeypatch: pytest.MonkeyPatch) -> None:
    at = now()
    began = at - timedelta(minutes=4)
    # A step that no worker has, one that a worker has, a sleep, and one that will be tried again.
    run = Story(status="running", started=began, options={"last_worker": "celery@a", "due_at": at + timedelta(hours=1)})
    run.step("label", [Try(60, scheduled=60)], function="f", due=300, queue="labels")
    run.step("charge", [Try(0, 1, worker="celery@b")], function="f", due=300, queue="money", claim_token="t")
    run.step("sleep", [Try(0, scheduled=0)], due=900)
    run.step("again", [Try(0, 1, 2, error={"message": "x"})], function="f", due=280, queue="money")
    run.tell()
    begun(at - timedelta(seconds=50), "running", due_at=at + timedelta(seconds=9))
    begun(at - timedelta(seconds=50), "running", due_at=at + timedelta(seconds=9), line="a limit")
    begun(at - timedelta(hours=3), "suspended", gate_opened_at=at - timedelta(hours=2))
    begun(at - timedelta(minutes=9), last_worker="celery@long-ago")
    Deployment.objects.put("celery@idle", "celery://celery@idle", [], at=at)
    Deployment.objects.put("web", "https://web.test", [], at=at)

    found = board(at)
    queues = {queue["name"]: (queue["waiting"], queue["lag"], queue["is_late"]) for queue in found.queues}
    assert queues == {"labels": ("1", "3 m 00 s", True), settings.QUEUE: ("1", "50.0 s", True)}
    workers = {worker.name: worker.under_way for worker in found.workers}
    assert workers == {"celery@a": 0, "celery@b": 1, "celery@idle": 0}
    tiles = {tile.label: tile for tile in found.tiles}
    assert [tiles[name].value for name in ("Running", "Suspended", "Failed", "Approvals", "Relay")] == [
        *("3", "1", "0", "1"),
        "keeps up",
    ]
    assert [each["run"].status for each in found.oldest] == ["running", "suspended"]
    late = {tile.label: tile for tile in board(at + timedelta(minutes=5)).tiles}["Relay"]
    # Of the four steps and two runs that are due by then, all but the sleep have been for more than half a minute.
    assert (late.value, late.note.split(",")[0]) == ("late", "5 overdue")


def test_who_sees_it(clerk: User, operator: User) -> None:
    failed_order(now()).tell()
    channels = staff_with("admin:channels:read", name="channels")
    for url in ("/admin/", INDEX):
        page = client_of(operator).get(url).content.decode()
        assert "pk-tiles" in page
        assert ("pk-chart" in page) == (url == INDEX)
    for user in (clerk, channels):
        assert "pk-tiles" not in client_of(user).get("/admin/").content.decode()
        assert client_of(user).get(INDEX).status_code == 404


def test_another_admin_site_has_none(rf: Any, superuser: User) -> None:
    request = rf.get("/")
    request.user = superuser
    assert summary_of(request) is not None
    request.current_app = "another"
    assert summary_of(request) is None


def test_a_database_that_fails_takes_no_other_page_with_it(
    root_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any, **options: Any) -> None:
        raise OperationalError("gone")

    monkeypatch.setattr(reads, "read_due", fail)
    for url in ("/admin/", INDEX):
        page = root_client.get(url)
        assert "could not be read" in page.content.decode()
        assert "workflowrun" in page.content.decode()


def test_other_apps_have_no_dashboard(root_client: Client) -> None:
    page = root_client.get("/admin/auth/")
    assert page.status_code == 200
    assert "pk-tiles" not in page.content.decode()


def test_it_costs_the_same_however_many_runs_there_are(root_client: Client) -> None:
    # What a new connection asks for is no part of it.
    root_client.get(INDEX)
    counts = []
    for runs in (3, 57):
        for index in range(runs):
            order_in_flight(now() - timedelta(minutes=index)).tell()
            begun(now() - timedelta(minutes=index), "failed", f"w{index}", last_worker=f"celery@{index}")
        with CaptureQueriesContext(connection) as captured:
            response = root_client.get(INDEX)
        counts.append(len(captured))
        assert len(response.content) < 300_000
    assert counts[0] == counts[1] <= 24


def test_names_are_text(root_client: Client) -> None:
    name = "<b>w</b> /_%'\"\U0001f375"
    begun(now(), "failed", name, last_worker="<i>celery</i>")
    page = root_client.get(f"{INDEX}?chart=<script>")
    assert "<b>w</b>" not in page.content.decode()
    assert "<i>celery" not in page.content.decode()
    (link,) = [url for workflow, _, url in board().failed_workflows if workflow == name]
    assert "w0" not in link
    assert context_of(root_client.get(link))["cl"].result_list[0].workflow == name


def test_an_empty_dashboard_says_why(root_client: Client) -> None:
    page = root_client.get(INDEX).content.decode()
    for text in ("No run began in this period.", "No run is alive.", "Nothing waits for a worker.", "keeps up"):
        assert text in page
