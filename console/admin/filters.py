"""Filters whose choices cost nothing to find and whose conditions have an index."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from django.contrib import admin
from django.contrib.admin import ModelAdmin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from pikku_storage.workflows.models import WorkflowVersion
from pikku_storage.workflows.registry import registry
from pikku_storage.workflows.statuses import RunStatus

_PERIODS = {
    "1h": (_("Last hour"), timedelta(hours=1)),
    "24h": (_("Last 24 hours"), timedelta(days=1)),
    "7d": (_("Last 7 days"), timedelta(days=7)),
    "30d": (_("Last 30 days"), timedelta(days=30)),
}


MENU = "admin/pikku_workflows/parts/filter_menu.html"
HIDDEN = "admin/pikku_workflows/parts/no_filter.html"


class ChoicesMenu(admin.ChoicesFieldListFilter):
    """By a column with choices."""

    template = MENU


class ValuesMenu(admin.AllValuesFieldListFilter):
    """By the values of a column of a small table."""

    template = MENU


class StatusFilter(admin.SimpleListFilter):
    """By the run's status; shown as tabs over the list and not as a menu."""

    title = _("status")
    parameter_name = "status"
    template = HIDDEN

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin[Any]) -> Iterable[tuple[str, Any]]:
        """Every status."""
        return RunStatus.choices

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Runs of that status; none of one that does not exist."""
        value = self.value()
        if not value:
            return queryset
        return queryset.filter(status=value) if value in RunStatus.values else queryset.none()


class WorkflowFilter(admin.SimpleListFilter):
    """By workflow: those that this process knows, and those that have a stored version."""

    title = _("workflow")
    parameter_name = "workflow"
    template = MENU

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin[Any]) -> Iterable[tuple[str, Any]]:
        """The names, sorted. Versions are few; the distinct names of a million runs would be a long read."""
        stored = WorkflowVersion.objects.order_by().values_list("workflow_name", flat=True).distinct()
        names = {*registry.workflows, *stored}
        chosen = request.GET.get(self.parameter_name)
        return [(name, name) for name in sorted(names | ({chosen} if chosen else set()))]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Runs of that workflow."""
        return queryset.filter(workflow=self.value()) if self.value() else queryset


class StartedFilter(admin.SimpleListFilter):
    """By when the run was started."""

    title = _("started")
    parameter_name = "started"
    template = MENU

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin[Any]) -> Iterable[tuple[str, Any]]:
        """Periods up to now."""
        return [(key, label) for key, (label, _length) in _PERIODS.items()]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Runs started within the period; none within one that does not exist."""
        value = self.value()
        if not value:
            return queryset
        period = _PERIODS.get(value)
        return queryset.none() if period is None else queryset.filter(created_at__gte=timezone.now() - period[1])
