"""Runs: the list, the page of a run, and what the page loads while it is looked at."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from functools import partial
from typing import Any
from urllib.parse import urlencode

from django.apps import apps
from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.urls import URLPattern, path
from django.utils import timezone
from django.utils.html import format_html
from django.utils.http import content_disposition_header
from django.utils.safestring import SafeString
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_safe

from console.base import EmptyState
from console.formatting import duration, short_id, shorten
from console.keyset import KeysetChangeList
from console.moments import since
from console.owners import owner_names
from console.plain import json_text
from console.tabs import status_tabs
from console.templatetags.pikku_console import pill
from console.workflows import reads
from console.workflows.admin.answers import AnsweredRunAdmin
from console.workflows.admin.filters import OwnerFilter, RunStatusFilter, StartedFilter, TriggerFilter, WorkflowFilter
from console.workflows.export import written
from console.workflows.listening import listening_on
from console.workflows.lookups import search_runs
from console.workflows.pagequery import PageQuery
from console.workflows.runpage import RunPage
from pikku_storage.access.actors import actor_of
from pikku_storage.auditing import AuditEvent, record
from pikku_storage.workflows.models import WorkflowRun
from pikku_storage.workflows.statuses import TERMINAL_RUN_STATUSES, RunStatus, StepStatus

_ERROR_SHOWN = 90
_RUN_PARTS = ("input", "output", "state", "error")
EXPORTED = "workflow.run.exported"
"""The type of the event in the audit trail."""


@dataclass(frozen=True, slots=True)
class _RowFacts:
    """What the list knows of a run beside its own columns."""

    counts: reads.RunCounts
    owner: str
    now: datetime


@admin.register(WorkflowRun)
class RunAdmin(AnsweredRunAdmin):
    """Every run of every workflow, the newest first."""

    cheap_columns = ("id", "workflow", "status", "owner_id", "created_at", "updated_at")
    list_display = (
        "status_pill",
        "workflow",
        "short_id",
        "owner",
        "started",
        "took",
        "steps_done",
        "attempts",
        "error_summary",
    )
    list_display_links = ("workflow", "short_id")
    list_filter = (RunStatusFilter, WorkflowFilter, OwnerFilter, StartedFilter, TriggerFilter)
    search_fields = ("id",)
    search_help_text = _("Beginning of a run id, or a whole workflow name, owner or idempotency key.")

    # -- the list ----------------------------------------------------------------------------------------------------

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[WorkflowRun], search_term: str
    ) -> tuple[QuerySet[WorkflowRun], bool]:
        """By indexes only."""
        return search_runs(queryset, search_term), False

    def prepare_page(self, request: HttpRequest, rows: list[WorkflowRun]) -> None:
        """Counts, errors and owners of all rows at once: three queries."""
        counts = reads.read_counts(self.get_queryset(request).db, [row.pk for row in rows])
        names = owner_names(row.owner_id for row in rows)
        now = timezone.now()
        for row in rows:
            owner = names.get(row.owner_id or "", row.owner_id or "")
            row.__dict__["console_facts"] = _RowFacts(counts[row.pk], owner, now)

    def list_context(self, request: HttpRequest, changes: KeysetChangeList) -> dict[str, Any]:
        """With the tabs, and whether anything listed goes on."""
        is_active = any(row.status not in TERMINAL_RUN_STATUSES for row in changes.result_list)
        tabs = status_tabs(changes, self.get_queryset(request), RunStatus)
        return {**super().list_context(request, changes), "tabs": tabs, "is_active": is_active}

    def empty_state(self, changes: KeysetChangeList) -> EmptyState:
        """Says how to get a first run."""
        if changes.is_first_page and not (changes.query or changes.has_active_filters):
            return EmptyState(
                gettext("No workflow has run yet."),
                gettext(
                    "Runs appear here as soon as something calls .start() or .run() of a function marked @workflow."
                ),
            )
        return super().empty_state(changes)

    @admin.display(description=_("status"))
    def status_pill(self, run: WorkflowRun) -> SafeString:
        """The status in its colour."""
        return pill(run.status)

    @admin.display(description=_("id"))
    def short_id(self, run: WorkflowRun) -> SafeString:
        """Both ends of the id; the whole one on hover."""
        return format_html('<code title="{}">{}</code>', run.pk, short_id(run.pk))

    @admin.display(description=_("owner"), empty_value="—")
    def owner(self, run: WorkflowRun) -> SafeString | None:
        """The owner's name, or id, which leads to all runs of theirs."""
        if not run.owner_id:
            return None
        url = f"?{urlencode({OwnerFilter.parameter_name: run.owner_id})}"
        return format_html('<a href="{}" title="{}">{}</a>', url, run.owner_id, _facts(run).owner)

    @admin.display(description=_("started"))
    def started(self, run: WorkflowRun) -> SafeString:
        """How long ago; the time on hover."""
        return since(run.created_at, _facts(run).now)

    @admin.display(description=_("duration"))
    def took(self, run: WorkflowRun) -> str:
        """From the start to the end, or to now."""
        is_live = run.status in {RunStatus.RUNNING, RunStatus.SUSPENDED}
        return duration((_facts(run).now if is_live else run.updated_at) - run.created_at)

    @admin.display(description=_("steps"))
    def steps_done(self, run: WorkflowRun) -> str:
        """Succeeded steps of those there are so far, and how many failed for good."""
        counts = _facts(run).counts
        text = f"{counts.done}/{counts.steps}"
        # While a run lives, a failed step may have another attempt before it.
        failed = counts.by_status.get(StepStatus.FAILED.value, 0) if run.status in TERMINAL_RUN_STATUSES else 0
        failures = gettext("%(n)d failed") % {"n": failed}
        return f"{text} · {failures}" if failed else text

    @admin.display(description=_("attempts"))
    def attempts(self, run: WorkflowRun) -> SafeString:
        """All attempts, and how many were repetitions."""
        counts = _facts(run).counts
        again = counts.attempts - counts.steps
        if not again:
            return format_html("{}", counts.attempts)
        title = gettext("%(n)d of them because an earlier one failed") % {"n": again}
        return format_html(
            '<span title="{}">{} <span class="pk-quiet">(+{})</span></span>', title, counts.attempts, again
        )

    @admin.display(description=_("error"), empty_value="")
    def error_summary(self, run: WorkflowRun) -> SafeString | None:
        """Code and the beginning of the message; of a waiting or cancelled run, its reason."""
        counts = _facts(run).counts
        if not (counts.message or counts.code):
            return None
        kind = "pk-error" if run.status == RunStatus.FAILED else "pk-quiet"
        return format_html(
            '<span class="pk-summary {}" title="{}">{}{}</span>',
            kind,
            counts.message,
            format_html("<code>{}</code> ", counts.code) if counts.code else "",
            shorten(counts.message, _ERROR_SHOWN),
        )

    # -- the page ----------------------------------------------------------------------------------------------------

    def object_urls(self, name: str) -> list[URLPattern]:
        """What the page loads. A quoted id holds no slash."""
        wrap = self.admin_site.admin_view
        return [
            *super().object_urls(name),
            path("<str:object_id>/live/", wrap(require_safe(self.live_view)), name=f"{name}_live"),
            path("<str:object_id>/events/", wrap(require_safe(self.events_view)), name=f"{name}_events"),
            path("<str:object_id>/payload/<str:part>/", wrap(require_safe(self.payload_view)), name=f"{name}_payload"),
            path("<str:object_id>/steps/<str:step_id>/", wrap(require_safe(self.step_view)), name=f"{name}_step"),
            path(
                "<str:object_id>/steps/<str:step_id>/<str:part>/",
                wrap(require_safe(self.step_payload_view)),
                name=f"{name}_step_payload",
            ),
            path("<str:object_id>/workers/", wrap(require_safe(self.workers_view)), name=f"{name}_workers"),
            path("<str:object_id>/export/", wrap(require_safe(self.export_view)), name=f"{name}_export"),
        ]

    def row_page(self, request: HttpRequest, row_id: str) -> HttpResponse:
        """The whole page."""
        page = self._page(request, row_id)
        title = f"{page.run.workflow} · {short_id(page.run.id)}"
        return self.render(request, "workflows/run.html", {"title": title, **self._shown(request, page)})

    def live_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """What changes on the page; 204 if the caller has seen it all, unless `grow` asks for bars up to now."""
        page = self._page(request, unquote(object_id))
        using = self.get_queryset(request).db
        changed = request.GET.get("seen") != reads.read_fingerprint(using, page.run)
        if not changed and "grow" not in request.GET:
            return HttpResponse(status=204)
        return self.render(request, "workflows/live.html", {"changed": changed, **self._shown(request, page)})

    def _shown(self, request: HttpRequest, page: RunPage) -> dict[str, Any]:
        """What depends on who looks; only whoever may operate is offered anything to do."""
        may_operate = self.has_operate_permission(request)
        return {
            "page": page,
            "may_operate": may_operate,
            "operations": page.operations if may_operate else [],
            # Read only where the template shows them, which a page that merely grows does not.
            "gate": partial(page.gate_for, request.user) if may_operate else None,
            "agents": partial(self._agents, request, page),
        }

    def workers_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Who listens on the queues that the run waits for. Asking takes a second, so no other page does it."""
        page = self._page(request, unquote(object_id))
        queues = page.awaited_queues
        context = {
            "page": page,
            "queues": queues,
            "listening": listening_on(queues),
            "title": gettext("Workers"),
            "is_part": "part" in request.GET,
        }
        return self.render(request, "workflows/workers.html", context)

    def export_view(self, request: HttpRequest, object_id: str) -> StreamingHttpResponse:
        """The run with all of its payloads, as a file."""
        rows = self.visible_rows(request)
        run = rows.defer(None).filter(pk=unquote(object_id)).first()
        if run is None:
            raise self.not_found()
        page = self._page(request, run.pk)
        record(
            AuditEvent(
                type=EXPORTED,
                outcome="success",
                actor=actor_of(request.user),
                wire_type="workflow",
                metadata={"runId": run.pk},
            )
        )
        return StreamingHttpResponse(
            written(run, page.timeline.events, using=rows.db),
            content_type="application/json; charset=utf-8",
            headers={
                "Content-Disposition": content_disposition_header(True, f"run-{run.pk}.json") or "attachment",
                "X-Content-Type-Options": "nosniff",
            },
        )

    def events_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """All events: in columns for the slider, or with `raw` as one reads them."""
        page = self._page(request, unquote(object_id))
        if "raw" in request.GET:
            return JsonResponse([_plain(asdict(event)) for event in page.timeline.events], safe=False)
        return JsonResponse(page.travel_data)

    def step_view(self, request: HttpRequest, object_id: str, step_id: str) -> HttpResponse:
        """The panel of a step."""
        page = self._page(request, unquote(object_id))
        panel = page.panel_of(unquote(step_id))
        if panel is None:
            raise self.not_found()
        may_operate = self.has_operate_permission(request)
        context = {"page": page, "panel": panel, "may_operate": may_operate}
        return self.render(request, "workflows/parts/panel.html", context)

    def payload_view(self, request: HttpRequest, object_id: str, part: str) -> HttpResponse:
        """A payload of the run, whole, as text."""
        runs = self.visible_rows(request)
        row = runs.filter(pk=unquote(object_id)).values(part).first() if part in _RUN_PARTS else None
        if row is None:
            raise self.not_found()
        return json_text(row[part])

    def step_payload_view(self, request: HttpRequest, object_id: str, step_id: str, part: str) -> HttpResponse:
        """A payload of a step, whole, as text."""
        using = self.visible_rows(request).db
        is_known = part in reads.STEP_PARTS
        found = reads.read_step_payload(using, unquote(object_id), unquote(step_id), part) if is_known else None
        if found is None:
            raise self.not_found()
        return json_text(found[0])

    def _agents(self, request: HttpRequest, page: RunPage) -> list[Any]:
        if not apps.is_installed("pikku_storage.agents"):
            return []
        # Without that app there are no such models.
        from console.agents.relations import related_to

        run = page.run
        thread_id, site = run.from_wire("threadId"), self.admin_site.name
        return list(related_to(request, run.id, run.idempotency_key, thread_id, site=site))

    def _page(self, request: HttpRequest, run_id: str) -> RunPage:
        runs = self.visible_rows(request)
        run = reads.read_run(runs, run_id)
        if run is None:
            raise self.not_found()
        query = PageQuery.from_params(request.GET)
        return RunPage(runs, run, query, now=timezone.now(), site=self.admin_site.name)


def _facts(run: WorkflowRun) -> _RowFacts:
    facts: _RowFacts = run.__dict__["console_facts"]
    return facts


def _plain(event: dict[str, Any]) -> dict[str, Any]:
    # Payloads are not read for it, so their keys would only mislead. `number` is the one of the page and its address.
    kept = {name: value for name, value in event.items() if name not in {"result", "error"}}
    return {"number": event["seq"] + 1, **kept}
