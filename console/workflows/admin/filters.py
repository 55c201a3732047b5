"""Filters of the list of runs; their choices cost nothing to find, and their conditions have an index."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.contrib import admin
from django.contrib.admin import ModelAdmin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from console.filters import HIDDEN, MENU, PeriodFilter
from pikku_storage.workflows.models import WorkflowVersion
from pikku_storage.workflows.registry import registry
from pikku_storage.workflows.statuses import RunStatus


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


class StartedFilter(PeriodFilter):
    """By when the run was started."""

    title = _("started")
    parameter_name = "started"
    column = "created_at"
