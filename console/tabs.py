"""Tabs over a list: one for each status, with how many rows have it, counted no further than one reads."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet, TextChoices
from django.utils.text import capfirst
from django.utils.translation import gettext

from console.keyset import KeysetChangeList

COUNT_UP_TO = 1000


@dataclass(frozen=True, slots=True)
class StatusTab:
    """A tab over the list; `count` is empty where nothing is counted, or counting would read too much."""

    label: str
    status: str
    count: str
    url: str
    is_chosen: bool


def bounded(count: int) -> str:
    """`7`, or `1000+` for what was counted beyond `COUNT_UP_TO`."""
    return f"{COUNT_UP_TO}+" if count > COUNT_UP_TO else str(count)


def count_bounded(rows: QuerySet[Any]) -> int:
    """How many rows there are, up to one more than `COUNT_UP_TO`: a million rows cost no more than a thousand."""
    return rows.order_by()[: COUNT_UP_TO + 1].count()


def status_tabs(changes: KeysetChangeList, rows: QuerySet[Any], statuses: type[TextChoices]) -> list[StatusTab]:
    """A tab for all rows, and one for each status: by `?status=`."""
    chosen = changes.params.get("status", "")
    # Under another filter the numbers would be of something else than what is listed.
    others = bool(changes.query or set(changes.filter_params) - {"status"})
    tabs = [StatusTab(gettext("All"), "", "", changes.get_query_string(remove=["status"]), not chosen)]
    choices: Iterable[tuple[str, Any]] = statuses.choices
    for status, label in choices:
        count = "" if others else bounded(count_bounded(rows.filter(status=status)))
        url = changes.get_query_string({"status": status})
        tabs.append(StatusTab(capfirst(str(label)), status, count, url, chosen == status))
    return tabs
