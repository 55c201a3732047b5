"""Filters of the lists of agents; their conditions have an index, and their choices are cheap to find."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.contrib import admin
from django.contrib.admin import ModelAdmin
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from console.agents.reads import read_agent_names, read_waiting_thread_ids
from console.agents.resources import resource_names
from console.agents.visibility import visible
from console.filters import HIDDEN, MENU, PeriodFilter
from pikku_storage.access.ownership import Ownership
from pikku_storage.agents.models import AgentRun
from pikku_storage.agents.statuses import AgentRunStatus
from pikku_storage.db import engine

WAITING = "waiting"


class _AgentFilter(admin.SimpleListFilter):
    """By agent: those that ran lately, in what the caller may see."""

    title = _("agent")
    parameter_name = "agent"
    template = MENU

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin[Any]) -> Iterable[tuple[str, Any]]:
        """The names, sorted."""
        ownership = visible(request)
        runs = AgentRun.everyones.filter(ownership.condition("resource_id"))
        names = [] if ownership.owners == () else read_agent_names(runs)
        chosen = request.GET.get(self.parameter_name)
        return [(name, name) for name in sorted({*names, *([chosen] if chosen else [])})]


class ThreadAgentFilter(_AgentFilter):
    """Threads in which an agent ran."""

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """See above."""
        return queryset.filter(ran_in(queryset.db, self.value() or "")) if self.value() else queryset


class RunAgentFilter(_AgentFilter):
    """Runs of an agent."""

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """See above."""
        return queryset.filter(agent_name=self.value()) if self.value() else queryset


class _GivenFilter(admin.SimpleListFilter):
    """By a value that a link gives; it shows once it is chosen, to be taken back."""

    def __init__(self, request: HttpRequest, params: Any, model: Any, model_admin: ModelAdmin[Any]) -> None:
        super().__init__(request, params, model, model_admin)
        self.template = MENU if self.value() else HIDDEN

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin[Any]) -> Iterable[tuple[str, Any]]:
        """What is chosen. A filter without choices would not be asked at all."""
        chosen = request.GET.get(self.parameter_name or "", "")
        return [(chosen, self.label(chosen))]

    def label(self, value: str) -> str:
        """How the value reads."""
        return value


class ResourceFilter(_GivenFilter):
    """By owner, with the owner's partitions."""

    title = _("owner")
    parameter_name = "resource"

    def label(self, value: str) -> str:
        """By name, if it is a user."""
        return resource_names([value]).get(value, value)

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Rows of that owner."""
        value = self.value()
        return queryset.filter(Ownership.given([value]).condition("resource_id")) if value else queryset


class ThreadFilter(_GivenFilter):
    """By thread."""

    title = _("thread")
    parameter_name = "thread"

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Runs of that thread."""
        return queryset.filter(thread_id=self.value()) if self.value() else queryset


class ActivityFilter(PeriodFilter):
    """By the last activity."""

    title = _("last activity")
    parameter_name = "active"
    column = "updated_at"


class StartedFilter(PeriodFilter):
    """By when the run was started."""

    title = _("started")
    parameter_name = "started"
    column = "created_at"


class WaitingFilter(admin.SimpleListFilter):
    """Threads in which something waits for an answer; shown as a tab over the list and not as a menu."""

    title = _("status")
    parameter_name = "status"
    template = HIDDEN

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin[Any]) -> Iterable[tuple[str, Any]]:
        """The only one."""
        return [(WAITING, _("waits for an answer"))]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Those threads; none for a value that does not exist."""
        if not self.value():
            return queryset
        if self.value() != WAITING:
            return queryset.none()
        return queryset.filter(pk__in=read_waiting_thread_ids(queryset.db, visible(request)))


class RunStatusFilter(admin.SimpleListFilter):
    """By the run's status; shown as tabs over the list and not as a menu."""

    title = _("status")
    parameter_name = "status"
    template = HIDDEN

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin[Any]) -> Iterable[tuple[str, Any]]:
        """Every status."""
        return AgentRunStatus.choices

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Runs of that status; none of one that does not exist."""
        value = self.value()
        if not value:
            return queryset
        return queryset.filter(status=value) if value in AgentRunStatus.values else queryset.none()


def ran_in(using: str, agent_name: str) -> Q:
    """The threads in which that agent ran."""
    runs = AgentRun.everyones.using(using).filter(agent_name=agent_name).order_by()
    return engine(using).referred_to(runs, "thread")
