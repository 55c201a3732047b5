"""What was done to one secret or credential, as its page shows it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import QuerySet

from console.owners import owner_names

SHOWN = 50


@dataclass(frozen=True, slots=True)
class Audited:
    """Something that was done: what, when, by whom if that is known, how it went, and why."""

    action: str
    at: datetime
    who: str
    outcome: str
    reason: str


def audits_of(rows: QuerySet[Any]) -> tuple[list[Audited], bool]:
    """The latest of these rows of an audit, the newest first, and whether there are more. Two statements."""
    found = list(rows.order_by("-performed_at", "-id")[: SHOWN + 1])
    names = owner_names(row.performed_by for row in found)
    audits = [
        Audited(
            row.get_action_display(),
            row.performed_at,
            names.get(row.performed_by or "", row.performed_by or ""),
            row.outcome or "success",
            row.reason or "",
        )
        for row in found[:SHOWN]
    ]
    return audits, len(found) > SHOWN
