"""Filters of the audit trail; their conditions have an index."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.contrib import admin
from django.contrib.admin import ModelAdmin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from console.filters import HIDDEN, MENU, PeriodFilter
from pikku_storage.audit.models import AuditEntry

LATEST = 1000
"""The types among so many of the newest events are offered: to look for all of them would read the whole trail."""
_OUTCOMES = (("success", _("success")), ("failed", _("failed")), ("denied", _("denied")))


class TypeFilter(admin.SimpleListFilter):
    """By what it was."""

    title = _("what")
    parameter_name = "type"
    template = MENU

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin[Any]) -> Iterable[tuple[str, Any]]:
        """The types of the newest events, and the chosen one."""
        newest = AuditEntry.objects.order_by("-occurred_at", "-audit_id").values_list("type", flat=True)[:LATEST]
        chosen = request.GET.get(self.parameter_name)
        return [(name, name) for name in sorted({*newest, *([chosen] if chosen else [])})]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Events of that type."""
        return queryset.filter(type=self.value()) if self.value() else queryset


class OutcomeFilter(admin.SimpleListFilter):
    """By how it ended."""

    title = _("outcome")
    parameter_name = "outcome"
    template = MENU

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin[Any]) -> Iterable[tuple[str, Any]]:
        """The outcomes."""
        return _OUTCOMES

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Events that ended so."""
        return queryset.filter(outcome=self.value()) if self.value() else queryset


class ActorFilter(admin.SimpleListFilter):
    """By whose id it is; chosen by a link, since nobody reads a menu of all users."""

    title = _("who")
    parameter_name = "user"
    template = HIDDEN

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin[Any]) -> Iterable[tuple[str, Any]]:
        """The chosen one."""
        chosen = request.GET.get(self.parameter_name)
        return [(chosen, chosen)] if chosen else []

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Events of that user."""
        return queryset.filter(user_id=self.value()) if self.value() else queryset


class OccurredFilter(PeriodFilter):
    """By when it was."""

    title = _("when")
    parameter_name = "when"
    column = "occurred_at"
