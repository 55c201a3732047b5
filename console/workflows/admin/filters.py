"""Filters of the list of runs; their choices cost nothing to find, and their conditions have an index."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.contrib import admin
from django.contrib.admin import ModelAdmin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from console.filters import MENU, PeriodFilter, StatusFilter
from console.owners import owner_ids_of, owner_names
from pikku_storage.workflows.models import WorkflowVersion
from pikku_storage.workflows.registry import registry
from pikku_storage.workflows.statuses import RunStatus


class RunStatusFilter(StatusFilter):
    """By the run's status."""

    statuses = RunStatus


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


class OwnerFilter(admin.SimpleListFilter):
    """By owner: one's own runs, those of nobody, or those of somebody whose name or id one types."""

    title = _("owner")
    parameter_name = "owner"
    template = "console/parts/filter_text.html"
    nobody = "~"
    """Stands for no owner. Whose id is this is found by the search."""

    def __init__(self, request: HttpRequest, *args: Any) -> None:
        super().__init__(request, *args)
        self.others = [(name, value) for name, value in request.GET.items() if name != self.parameter_name]

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin[Any]) -> Iterable[tuple[str, Any]]:
        """Few choices: the owners of a million runs would be a long read."""
        mine, chosen = str(request.user.pk), request.GET.get(self.parameter_name, "")
        choices: dict[str, Any] = {mine: _("mine"), self.nobody: _("nobody's")}
        if chosen and chosen not in choices:
            choices[chosen] = owner_names([chosen]).get(chosen, chosen)
        return list(choices.items())

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Runs whose owner has that id, or that name."""
        value = self.value()
        if not value:
            return queryset
        if value == self.nobody:
            return queryset.filter(owner_id__isnull=True)
        return queryset.filter(owner_id__in=sorted({value, *owner_ids_of(value)}))


class TriggerFilter(admin.SimpleListFilter):
    """By what started the run."""

    title = _("trigger")
    parameter_name = "trigger"
    template = MENU
    known = {
        "code": _("code"),
        "http": _("HTTP"),
        "schedule": _("a schedule"),
        "workflow": _("a workflow"),
    }

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin[Any]) -> Iterable[tuple[str, Any]]:
        """The triggers that the package itself writes, and the one that is chosen."""
        chosen = request.GET.get(self.parameter_name, "")
        return [*self.known.items(), *([(chosen, chosen)] if chosen and chosen not in self.known else [])]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Runs whose `wire.type` is that; those of other programs are not found."""
        return queryset.filter(wire_type=self.value()) if self.value() else queryset
