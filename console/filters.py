"""Filters that every list of the console may use: menus over the list, and periods of an indexed time."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any, ClassVar

from django.contrib import admin
from django.contrib.admin import ModelAdmin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

MENU = "console/parts/filter_menu.html"
HIDDEN = "console/parts/no_filter.html"

_PERIODS = {
    "1h": (_("Last hour"), timedelta(hours=1)),
    "24h": (_("Last 24 hours"), timedelta(days=1)),
    "7d": (_("Last 7 days"), timedelta(days=7)),
    "30d": (_("Last 30 days"), timedelta(days=30)),
}


class ChoicesMenu(admin.ChoicesFieldListFilter):
    """By a column with choices."""

    template = MENU


class ValuesMenu(admin.AllValuesFieldListFilter):
    """By the values of a column of a small table."""

    template = MENU


class PeriodFilter(admin.SimpleListFilter):
    """By a time within a period up to now; `column` has an index."""

    column: ClassVar[str]
    template = MENU

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin[Any]) -> Iterable[tuple[str, Any]]:
        """The periods."""
        return [(key, label) for key, (label, _length) in _PERIODS.items()]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Rows of the period; none of one that does not exist."""
        value = self.value()
        if not value:
            return queryset
        period = _PERIODS.get(value)
        if period is None:
            return queryset.none()
        return queryset.filter(**{f"{self.column}__gte": timezone.now() - period[1]})
