"""Threads: the list, the page of a thread, and what the page loads and leads to."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_http_methods, require_safe

from console.agents import reads
from console.agents.addresses import approvals_url, threads_url
from console.agents.admin.filters import (
    WAITING,
    ActivityFilter,
    ResourceFilter,
    ThreadAgentFilter,
    WaitingFilter,
)
from console.agents.admin.owned import OwnedRowAdmin
from console.agents.lookups import search_threads
from console.agents.resources import name_of, resource_names
from console.agents.threadpage import ThreadPage, place_of
from console.agents.visibility import answerable, visible
from console.base import EmptyState
from console.formatting import number, short_id, shorten
from console.gate import WORKFLOWS, has_model_permission
from console.keyset import KeysetChangeList
from console.plain import json_file, json_text, plain_text
from console.tabs import COUNT_UP_TO, StatusTab, bounded
from console.templatetags.pikku_console import since
from pikku_storage.agents.models import AgentMessage, AgentThread, AgentToolCall
from pikku_storage.agents.service import AgentStorageService
from pikku_storage.agents.statuses import MemoryScope
from pikku_storage.exceptions import ThreadNotFoundError
from pikku_storage.workflows.models import WorkflowRun

_TITLE_SHOWN = 80
_CALL_PARTS = ("args", "result")
_METADATA = "metadata"


@dataclass(frozen=True, slots=True)
class _RowFacts:
    """What the list knows of a thread beside its own columns."""

    facts: reads.ThreadFacts
    owner: str
    now: datetime


@admin.register(AgentThread)
class ThreadAdmin(OwnedRowAdmin):
    """The threads that the caller may see, the one that changed last first."""

    keyset = ("-updated_at", "-id")
    cheap_columns = ("id", "resource_id", "title", "created_at", "updated_at")
    list_display = ("title_shown", "agent", "owner", "waiting", "last_activity", "message_count", "tokens", "short_id")
    list_display_links = ("title_shown",)
    list_filter = (WaitingFilter, ThreadAgentFilter, ActivityFilter, ResourceFilter)
    search_fields = ("id",)
    search_help_text = _("Beginning of a thread id, or a whole owner, agent, run id or tool call id.")

    # -- the list ----------------------------------------------------------------------------------------------------

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[AgentThread], search_term: str
    ) -> tuple[QuerySet[AgentThread], bool]:
        """By indexes only."""
        return search_threads(queryset, search_term), False

    def prepare_page(self, request: HttpRequest, rows: list[AgentThread]) -> None:
        """Facts and owners of all rows at once: five queries."""
        facts = reads.read_facts(self.get_queryset(request).db, [row.pk for row in rows])
        names = resource_names(row.resource_id for row in rows)
        now = timezone.now()
        for row in rows:
            owner = name_of(row.resource_id, names)
            row.__dict__["console_facts"] = _RowFacts(facts.get(row.pk, reads.ThreadFacts()), owner, now)

    def list_context(self, request: HttpRequest, changes: KeysetChangeList) -> dict[str, Any]:
        """With the tabs."""
        chosen = request.GET.get("status", "")
        waiting = reads.count_waiting(self.get_queryset(request).db, visible(request))
        all_url = changes.get_query_string(remove=["status"])
        waiting_url = changes.get_query_string({"status": WAITING})
        tabs = [
            StatusTab(gettext("All"), "", "", all_url, not chosen),
            StatusTab(
                gettext("Waits for an answer"), WAITING, bounded(waiting) if waiting else "", waiting_url, bool(chosen)
            ),
            StatusTab(gettext("Approvals"), "", "", approvals_url(self.admin_site.name), is_chosen=False),
        ]
        context = {**super().list_context(request, changes), "tabs": tabs}
        if context["empty_state"] and _is_whole(changes) and visible(request).owners is not None:
            text = gettext("Here are the threads that belong to you. To see those of others takes the scope %(scope)s.")
            own = EmptyState(gettext("You have no threads."), text % {"scope": self.area.named("read")})
            context["empty_state"] = own
        return context

    def empty_state(self, changes: KeysetChangeList) -> EmptyState:
        """Says how to get a first thread."""
        if _is_whole(changes):
            return EmptyState(
                gettext("No agent has kept a thread yet."),
                gettext("Threads appear here as soon as AgentAccess or AgentStorageService creates one."),
            )
        return super().empty_state(changes)

    @admin.display(description=_("title"))
    def title_shown(self, thread: AgentThread) -> str:
        """The beginning of the title."""
        return shorten(thread.title or "", _TITLE_SHOWN) or gettext("Without a title")

    @admin.display(description=_("id"))
    def short_id(self, thread: AgentThread) -> SafeString:
        """Both ends of the id; the whole one on hover."""
        return format_html('<code title="{}">{}</code>', thread.pk, short_id(thread.pk))

    @admin.display(description=_("owner"))
    def owner(self, thread: AgentThread) -> SafeString:
        """The owner's name, with the partition; it leads to what else is theirs."""
        url = threads_url(self.admin_site.name, resource=thread.resource_id)
        return format_html('<a href="{}" title="{}">{}</a>', url, thread.resource_id, shorten(_facts(thread).owner, 40))

    @admin.display(description=_("agent"), empty_value="—")
    def agent(self, thread: AgentThread) -> str | None:
        """The agent that ran last."""
        return _facts(thread).facts.agent or None

    @admin.display(description=_("messages"))
    def message_count(self, thread: AgentThread) -> str:
        """How many messages; of a long thread that it is long."""
        count = _facts(thread).facts.messages
        return bounded(COUNT_UP_TO + 1) if count is None else str(count)

    @admin.display(description=_("tokens"))
    def tokens(self, thread: AgentThread) -> str:
        """Of all runs, in and out."""
        count = _facts(thread).facts.tokens
        return "…" if count is None else number(count)

    @admin.display(description=_("pending"), empty_value="")
    def waiting(self, thread: AgentThread) -> SafeString | None:
        """How many approvals wait for an answer."""
        count = _facts(thread).facts.waiting
        if not count:
            return None
        text = ngettext("%(n)d approval", "%(n)d approvals", count) % {"n": count}
        return format_html('<span class="pk-pill pk-is-pending">{}</span>', text)

    @admin.display(description=_("last activity"))
    def last_activity(self, thread: AgentThread) -> str:
        """How long ago; the time on hover."""
        return since(thread.updated_at, _facts(thread).now)

    # -- the page ----------------------------------------------------------------------------------------------------

    def object_urls(self, name: str) -> list[URLPattern]:
        """What the page loads and leads to. A quoted id holds no slash."""
        wrap = self.admin_site.admin_view
        asked = require_http_methods(["GET", "HEAD", "POST"])
        return [
            path("<str:object_id>/live/", wrap(require_safe(self.live_view)), name=f"{name}_live"),
            path("<str:object_id>/export/", wrap(require_safe(self.export_view)), name=f"{name}_export"),
            path("<str:object_id>/delete/", wrap(asked(self.delete_view)), name=f"{name}_delete"),
            path("<str:object_id>/memory/<str:scope>/", wrap(require_safe(self.memory_view)), name=f"{name}_memory"),
            path(
                "<str:object_id>/messages/<str:message_id>/",
                wrap(require_safe(self.message_view)),
                name=f"{name}_message",
            ),
            path(
                "<str:object_id>/calls/<str:call_id>/<str:part>/",
                wrap(require_safe(self.call_view)),
                name=f"{name}_call",
            ),
        ]

    def row_page(self, request: HttpRequest, row_id: str) -> HttpResponse:
        """The whole page."""
        return self.render(request, "agents/thread.html", self._context(request, self._page(request, row_id)))

    def live_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """What changes on the page; 204 if the caller has seen it all."""
        page = self._page(request, unquote(object_id))
        if request.GET.get("seen") == page.fingerprint:
            return HttpResponse(status=204)
        return self.render(request, "agents/live.html", self._context(request, page))

    def _page(self, request: HttpRequest, thread_id: str) -> ThreadPage:
        thread = self._thread(request, thread_id, *self.cheap_columns, _METADATA)
        return ThreadPage(
            self.get_queryset(request).db,
            thread,
            place_of(request.GET),
            visible=visible(request),
            sees_workflows=WORKFLOWS.may_view(request) and has_model_permission(request, "view", WorkflowRun._meta),
            now=timezone.now(),
            site=self.admin_site.name,
        )

    def _context(self, request: HttpRequest, page: ThreadPage) -> dict[str, Any]:
        may_answer = answerable(request).covers(page.thread.resource_id)
        return {
            "page": page,
            "title": page.title,
            "may_answer": may_answer and has_model_permission(request, "change", self.opts),
            "may_delete": self.may(request, "manage", "delete"),
        }

    def _thread(self, request: HttpRequest, thread_id: str, *columns: str) -> AgentThread:
        thread: AgentThread | None = self.visible_rows(request).filter(pk=thread_id).only(*columns).first()
        if thread is None:
            raise self.not_found()
        return thread

    # -- what the page leads to --------------------------------------------------------------------------------------

    def message_view(self, request: HttpRequest, object_id: str, message_id: str) -> HttpResponse:
        """The content of a message, whole."""
        thread = self._thread(request, unquote(object_id), "id")
        messages_of = AgentMessage.everyones.using(thread._state.db).filter(thread_id=thread.pk)
        row = messages_of.filter(pk=unquote(message_id)).values("content").first()
        if row is None:
            raise self.not_found()
        return plain_text(row["content"]) if isinstance(row["content"], str) else json_text(row["content"])

    def call_view(self, request: HttpRequest, object_id: str, call_id: str, part: str) -> HttpResponse:
        """The arguments or the result of a tool call, whole."""
        thread = self._thread(request, unquote(object_id), "id")
        calls = AgentToolCall.everyones.using(thread._state.db).filter(thread_id=thread.pk, pk=unquote(call_id))
        row = calls.values(part).first() if part in _CALL_PARTS else None
        if row is None:
            raise self.not_found()
        return json_text(row[part]) if part == "args" else plain_text(row[part] or "")

    def memory_view(self, request: HttpRequest, object_id: str, scope: str) -> HttpResponse:
        """What is remembered of the thread or of its owner, or what the program keeps with the thread; whole."""
        thread = self._thread(request, unquote(object_id), "id", "resource_id", _METADATA)
        if scope == _METADATA:
            return json_text(thread.metadata)
        found = reads.read_memories(thread._state.db or "", thread.pk, thread.resource_id)
        if scope not in MemoryScope.values or scope not in found:
            raise self.not_found()
        return json_text(found[scope])

    def export_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """The thread with all that belongs to it, as a file."""
        thread = self._thread(request, unquote(object_id), "id")
        try:
            text = AgentStorageService(thread._state.db).export_thread(thread.pk)
        except ThreadNotFoundError:
            raise self.not_found() from None
        return json_file(text, "thread.json")

    def delete_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Ask, and delete the thread with all that belongs to it."""
        thread = self._thread(request, unquote(object_id), *self.cheap_columns)
        if not self.may(request, "manage", "delete"):
            raise PermissionDenied
        using = thread._state.db
        if request.method == "POST":
            title = shorten(thread.title or "", _TITLE_SHOWN) or short_id(thread.pk)
            if AgentStorageService(using).delete_thread(thread.pk, by=request.user):
                self.log_deletions(request, cast("QuerySet[Any]", [thread]))
                messages.success(request, gettext("The thread %(title)s was deleted.") % {"title": title})
            else:
                messages.warning(request, gettext("Somebody else deleted the thread %(title)s.") % {"title": title})
            return HttpResponseRedirect(threads_url(self.admin_site.name))
        context = {
            "thread": thread,
            "facts": reads.read_facts(using or "", [thread.pk]).get(thread.pk, reads.ThreadFacts()),
            "owner": name_of(thread.resource_id, resource_names([thread.resource_id])),
            "most": COUNT_UP_TO,
            "title": gettext("Delete a thread"),
        }
        return self.render(request, "agents/delete.html", context)


def _is_whole(changes: KeysetChangeList) -> bool:
    return changes.is_first_page and not (changes.query or changes.has_active_filters)


def _facts(thread: AgentThread) -> _RowFacts:
    facts: _RowFacts = thread.__dict__["console_facts"]
    return facts
