"""Runs of agents: the list, and the page of a run."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import capfirst
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from console.agents import reads
from console.agents.addresses import ThreadUrls
from console.agents.admin.filters import (
    ResourceFilter,
    RunAgentFilter,
    RunStatusFilter,
    StartedFilter,
    ThreadFilter,
)
from console.agents.admin.owned import OwnedRowAdmin
from console.agents.lookups import search_runs
from console.agents.resources import name_of, resource_names
from console.agents.runpage import RunPage
from console.agents.visibility import visible
from console.base import EmptyState
from console.formatting import duration, number, short_id, shorten
from console.gate import WORKFLOWS, has_model_permission
from console.keyset import KeysetChangeList
from console.tabs import StatusTab
from console.templatetags.pikku_console import pill, since
from pikku_storage.agents import reads as agent_reads
from pikku_storage.agents.models import AgentRun, AgentThread
from pikku_storage.agents.statuses import AgentRunStatus
from pikku_storage.workflows.models import WorkflowRun

_ERROR_SHOWN = 90
_TITLE_SHOWN = 50


@dataclass(frozen=True, slots=True)
class _RowFacts:
    """What the list knows of a run beside its own columns."""

    owner: str
    thread: str
    now: datetime


@admin.register(AgentRun)
class AgentRunAdmin(OwnedRowAdmin):
    """The runs that the caller may see, the newest first."""

    keyset = ("-created_at", "-run_id")
    cheap_columns = (
        "run_id",
        "agent_name",
        "thread_id",
        "resource_id",
        "status",
        "error_message",
        "suspend_reason",
        "usage_input_tokens",
        "usage_output_tokens",
        "usage_model",
        "created_at",
        "updated_at",
    )
    list_display = (
        "status_pill",
        "agent_name",
        "short_id",
        "thread_link",
        "owner",
        "started",
        "took",
        "tokens",
        "usage_model",
        "why",
    )
    list_display_links = ("agent_name", "short_id")
    list_filter = (RunStatusFilter, RunAgentFilter, StartedFilter, ResourceFilter, ThreadFilter)
    search_fields = ("run_id",)
    search_help_text = _("Beginning of a run id, or a whole agent, owner or thread id.")

    # -- the list ----------------------------------------------------------------------------------------------------

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[AgentRun], search_term: str
    ) -> tuple[QuerySet[AgentRun], bool]:
        """By indexes only."""
        return search_runs(queryset, search_term), False

    def prepare_page(self, request: HttpRequest, rows: list[AgentRun]) -> None:
        """Owners and titles of the threads of all rows at once: two queries."""
        names = resource_names(row.resource_id for row in rows)
        threads = AgentThread.everyones.using(self.get_queryset(request).db).filter(
            visible(request).condition("resource_id"), pk__in={row.thread_id for row in rows}
        )
        titles: dict[str, str | None] = dict(threads.order_by().values_list("pk", "title")) if rows else {}
        now = timezone.now()
        for row in rows:
            # A run of one's own may lie in a thread of somebody else.
            title = (titles[row.thread_id] or short_id(row.thread_id)) if row.thread_id in titles else ""
            row.__dict__["console_facts"] = _RowFacts(name_of(row.resource_id, names), title, now)

    def list_context(self, request: HttpRequest, changes: KeysetChangeList) -> dict[str, Any]:
        """With the tabs."""
        chosen = request.GET.get("status", "")
        tabs = [StatusTab(gettext("All"), "", "", changes.get_query_string(remove=["status"]), not chosen)]
        for status, label in AgentRunStatus.choices:
            url = changes.get_query_string({"status": status})
            tabs.append(StatusTab(capfirst(str(label)), status, "", url, chosen == status))
        return {**super().list_context(request, changes), "tabs": tabs}

    def empty_state(self, changes: KeysetChangeList) -> EmptyState:
        """Says how to get a first run."""
        if changes.is_first_page and not (changes.query or changes.has_active_filters):
            return EmptyState(
                gettext("No agent has run yet."),
                gettext("Runs appear here as soon as create_run() of an AgentAccess records one."),
            )
        return super().empty_state(changes)

    @admin.display(description=_("status"))
    def status_pill(self, run: AgentRun) -> SafeString:
        """The status in its colour."""
        return pill(run.status)

    @admin.display(description=_("id"))
    def short_id(self, run: AgentRun) -> SafeString:
        """Both ends of the id; the whole one on hover."""
        return format_html('<code title="{}">{}</code>', run.pk, short_id(run.pk))

    @admin.display(description=_("thread"), empty_value="—")
    def thread_link(self, run: AgentRun) -> SafeString | None:
        """The thread's title."""
        title = _facts(run).thread
        url = ThreadUrls(run.thread_id, self.admin_site.name).page
        return format_html('<a href="{}">{}</a>', url, shorten(title, _TITLE_SHOWN)) if title else None

    @admin.display(description=_("owner"))
    def owner(self, run: AgentRun) -> str:
        """The owner's name, with the partition."""
        return shorten(_facts(run).owner, 40)

    @admin.display(description=_("started"))
    def started(self, run: AgentRun) -> str:
        """How long ago; the time on hover."""
        return since(run.created_at, _facts(run).now)

    @admin.display(description=_("duration"))
    def took(self, run: AgentRun) -> str:
        """From the start to the last change, or to now."""
        end = _facts(run).now if run.status == AgentRunStatus.RUNNING else run.updated_at
        return duration(end - run.created_at)

    @admin.display(description=_("tokens"))
    def tokens(self, run: AgentRun) -> SafeString:
        """In and out; each on hover."""
        read, written = run.usage_input_tokens or 0, run.usage_output_tokens or 0
        title = gettext("%(in)d in, %(out)d out") % {"in": read, "out": written}
        return format_html('<span title="{}">{}</span>', title, number(read + written))

    @admin.display(description=_("why"), empty_value="")
    def why(self, run: AgentRun) -> SafeString | None:
        """The error, or what it waits for."""
        text = run.error_message or run.suspend_reason
        if not text:
            return None
        kind = "pk-error" if run.error_message else "pk-quiet"
        shown = shorten(text, _ERROR_SHOWN)
        return format_html('<span class="pk-summary {}" title="{}">{}</span>', kind, text[:1000], shown)

    # -- the page ----------------------------------------------------------------------------------------------------

    def row_page(self, request: HttpRequest, row_id: str) -> HttpResponse:
        """What is known of a run."""
        rows = self.visible_rows(request)
        if not rows.filter(pk=row_id).exists() or (run := agent_reads.run(rows.db, row_id)) is None:
            raise self.not_found()
        sees_workflows = WORKFLOWS.may_view(request) and has_model_permission(request, "view", WorkflowRun._meta)
        page = RunPage(
            rows.db,
            run,
            visible=visible(request),
            sees_workflows=sees_workflows,
            now=timezone.now(),
            site=self.admin_site.name,
        )
        title = f"{run.agent_name} · {short_id(run.run_id)}"
        return self.render(request, "agents/run.html", {"page": page, "title": title, "most_scores": reads.SCORES})


def _facts(run: AgentRun) -> _RowFacts:
    facts: _RowFacts = run.__dict__["console_facts"]
    return facts
