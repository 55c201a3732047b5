"""Everything the dashboard shows, and the short version of it on the admin's front page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from django.apps import apps
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext

from console.formatting import absolute, ago, duration
from console.gate import WORKFLOWS
from console.tabs import bounded, count_bounded
from console.workflows.dashboard import reads
from console.workflows.dashboard.bars import Chart, chart_of
from console.workflows.dashboard.periods import PERIODS, Period, period_of
from console.workflows.runurls import RunUrls
from pikku_storage.conf import settings
from pikku_storage.workflows.models import WorkflowRun
from pikku_storage.workflows.statuses import RunStatus

GRACE = timedelta(seconds=30)
"""What is due for longer than this is late: nobody seems to look."""
FAILURES_SHOWN = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """A number with what it is; `kind` colours it."""

    label: str
    value: str
    note: str = ""
    title: str = ""
    url: str = ""
    kind: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """A worker, how it is known, and how many steps and passes it has."""

    name: str
    known: str
    under_way: int


class Summary:
    """Counts, failures, and what waits longest. Eight queries."""

    def __init__(self, runs: QuerySet[WorkflowRun], *, now: datetime, site: str, inbox: str = "") -> None:
        self._runs, self._now, self._site, self._inbox = runs, now, site, inbox
        self.due = reads.read_due(runs.db, late_since=now - GRACE, default_queue=settings.QUEUE)
        self.oldest_runs: list[reads.LiveRun] = []
        approvals = reads.read_approvals(runs)
        self.tiles = [
            *(self._live(status) for status in (RunStatus.RUNNING, RunStatus.SUSPENDED)),
            self._failures(),
            self._approvals(approvals),
            self._relay(),
        ]

    def list_url(self, **filters: str) -> str:
        """The list of runs, filtered."""
        url = reverse("admin:pikku_workflows_workflowrun_changelist", current_app=self._site)
        return f"{url}?{urlencode(filters)}"

    def _live(self, status: RunStatus) -> Tile:
        count, oldest = count_bounded(self._runs.filter(status=status)), reads.read_oldest(self._runs, status)
        self.oldest_runs = [*self.oldest_runs, *([] if oldest is None else [oldest])]
        label = {RunStatus.RUNNING: gettext("Running"), RunStatus.SUSPENDED: gettext("Suspended")}[status]
        return Tile(
            label=label,
            value=bounded(count),
            note=""
            if oldest is None
            else gettext("oldest began %(when)s") % {"when": ago(oldest.created_at, self._now)},
            title="" if oldest is None else absolute(oldest.created_at),
            url=self.list_url(status=status.value),
            kind=status.value,
        )

    def _failures(self) -> Tile:
        failed = self._runs.filter(status=RunStatus.FAILED, created_at__gte=self._now - timedelta(days=1))
        count = count_bounded(failed)
        return Tile(
            label=gettext("Failed"),
            value=bounded(count),
            note=gettext("begun within 24 hours"),
            url=self.list_url(status="failed", started="24h"),
            kind="failed" if count else "",
        )

    def _approvals(self, approvals: reads.Approvals) -> Tile:
        oldest = approvals.oldest
        return Tile(
            label=gettext("Approvals"),
            value=bounded(approvals.count),
            note="" if oldest is None else gettext("first asked %(when)s") % {"when": ago(oldest, self._now)},
            title="" if oldest is None else absolute(oldest),
            url=self._inbox if approvals.count else "",
            kind="suspended" if approvals.count else "",
        )

    def _relay(self) -> Tile:
        due = self.due
        if not due.overdue or due.first_due is None:
            return Tile(label=gettext("Relay"), value=gettext("keeps up"), note=gettext("nothing is overdue"))
        late = duration(self._now - due.first_due)
        number = str(due.overdue) if due.is_all else f"{due.overdue}+"
        return Tile(
            label=gettext("Relay"),
            value=gettext("late"),
            note=gettext("%(n)s overdue, by up to %(late)s. Does it run?") % {"n": number, "late": late},
            kind="failed",
        )


class Board(Summary):
    """The whole dashboard: a chart, failures by workflow, the oldest runs, queues and workers. A number of queries that
    does not depend on what there is."""

    def __init__(
        self,
        runs: QuerySet[WorkflowRun],
        *,
        now: datetime,
        site: str,
        period: Period,
        sees_deployments: bool,
        inbox: str = "",
    ) -> None:
        super().__init__(runs, now=now, site=site, inbox=inbox)
        self.period, starts = period, period.starts(now)
        self.chart: Chart = chart_of(reads.read_histogram(runs, starts), period, starts)
        self.failures = reads.read_failures(runs, starts[0])
        self.workers = self._workers(reads.read_workers_of_runs(runs, now), sees_deployments=sees_deployments)
        self.periods = [(each.key, each.label, each == period) for each in PERIODS.values()]
        self.most_counted = reads.MOST_COUNTED

    @property
    def failed_workflows(self) -> list[tuple[str, int, str]]:
        """Workflow, failures, and where they are listed."""
        found = self.failures.by_workflow[:FAILURES_SHOWN]
        return [(name, count, self.list_url(workflow=name, status="failed")) for name, count in found]

    @property
    def oldest(self) -> list[dict[str, Any]]:
        """The oldest live run of each status."""
        return [
            {
                "run": run,
                "url": RunUrls(run.id, self._site).page,
                "age": ago(run.created_at, self._now),
            }
            for run in self.oldest_runs
        ]

    @property
    def queues(self) -> list[dict[str, Any]]:
        """Queues in which something waits, the longest wait first."""
        return [
            {
                "name": lag.queue,
                "waiting": str(lag.waiting) if self.due.is_all else f"{lag.waiting}+",
                "lag": duration(self._now - lag.since),
                "is_late": self._now - lag.since > GRACE,
            }
            for lag in self.due.lags
        ]

    def _workers(self, of_runs: Mapping[str, datetime], *, sees_deployments: bool) -> Sequence[Worker]:
        known = {name: gettext("had a run %(when)s") % {"when": ago(at, self._now)} for name, at in of_runs.items()}
        known |= {name: gettext("holds a lease") for name in self.due.under_way}
        if sees_deployments:
            known |= {
                name: gettext("heartbeat %(when)s") % {"when": ago(at, self._now)} for name, at in _heartbeats().items()
            }
        under_way = self.due.under_way
        return [Worker(name=name, known=text, under_way=under_way.get(name, 0)) for name, text in sorted(known.items())]


def _heartbeats() -> dict[str, datetime]:
    """By Celery worker that registers itself, its last heartbeat."""
    from pikku_storage.deployments.announcing import WORKER_SCHEME
    from pikku_storage.deployments.service import DeploymentService

    return {
        each.deployment_id: each.last_heartbeat
        for each in DeploymentService().list_deployments()
        if each.endpoint.startswith(f"{WORKER_SCHEME}:")
    }


def summary_of(request: HttpRequest) -> Summary | None:
    """The short version; `None` for those who may not see workflows."""
    runs = _visible(request)
    return None if runs is None else Summary(runs, now=timezone.now(), site=_site(request), inbox=_inbox(request))


def board_of(request: HttpRequest) -> Board | None:
    """The dashboard; `None` for those who may not see workflows."""
    runs = _visible(request)
    if runs is None:
        return None
    return Board(
        runs,
        now=timezone.now(),
        site=_site(request),
        period=period_of(request.GET.get("chart")),
        sees_deployments=apps.is_installed("pikku_storage.deployments"),
        inbox=_inbox(request),
    )


def _visible(request: HttpRequest) -> QuerySet[WorkflowRun] | None:
    site = admin.site
    pages = site._registry.get(WorkflowRun)
    # Another admin site of the project uses the same templates, and has no pages of ours.
    if pages is None or _site(request) != site.name or not pages.has_view_permission(request):
        return None
    runs: QuerySet[WorkflowRun] = pages.get_queryset(request).order_by()
    return runs


def _inbox(request: HttpRequest) -> str:
    """Where approvals are answered; empty for those who may answer none."""
    if not apps.is_installed("pikku_storage.agents") or not WORKFLOWS.may(request, "manage"):
        return ""
    return reverse("admin:pikku_agents_agentapproval_changelist", current_app=_site(request))


def _site(request: HttpRequest) -> str:
    return getattr(request, "current_app", None) or admin.site.name
