"""Every change of the audit trail's rows: they are added, and after a time deleted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from django.db import IntegrityError, transaction

from pikku_storage.db.operations import Insert, InsertMany
from pikku_storage.db.querysets import EngineQuerySet

if TYPE_CHECKING:
    from pikku_storage.audit.models import AuditEntry  # noqa: F401 - named as text

BATCH = 500
"""How many rows are looked for, or deleted, by one statement."""


class TrailQuerySet(EngineQuerySet["AuditEntry"]):
    """The audit trail."""

    def add(self, rows: Sequence[Mapping[str, Any]]) -> int:
        """Insert the rows that are not there yet, which all have the same columns; answers how many were new."""
        new = list({row["audit_id"]: row for row in reversed(rows)}.values())[::-1]
        if len(new) > 1:
            there = self._present([row["audit_id"] for row in new])
            new = [row for row in new if row["audit_id"] not in there]
            try:
                # One transaction, since some drivers send a row at a time.
                with transaction.atomic(using=self.engine.using):
                    if new:
                        self.engine.apply(InsertMany(self.model, {}, new))
                return len(new)
            except IntegrityError:
                # Somebody else wrote one of them meanwhile. Where there are no transactions some are written, too.
                pass
        return sum(self._add_one(row) for row in new)

    def older(self, by: datetime) -> TrailQuerySet:
        """The rows of before that time."""
        return self.filter(occurred_at__lt=by)

    def remove_older(self, by: datetime) -> int:
        """Delete them, the oldest first; answers how many. May be interrupted, and done by several at once."""
        removed = 0
        while ids := list(self.older(by).order_by("occurred_at", "audit_id").values_list("pk", flat=True)[:BATCH]):
            removed += self.filter(pk__in=ids).delete()[0]
        return removed

    def _present(self, ids: Sequence[str]) -> set[str]:
        return {
            found
            for start in range(0, len(ids), BATCH)
            for found in self.filter(pk__in=ids[start : start + BATCH]).order_by().values_list("pk", flat=True)
        }

    def _add_one(self, row: Mapping[str, Any]) -> bool:
        try:
            with self.engine.savepoint():
                self.engine.apply(Insert(self.model, row))
        except IntegrityError:
            return False
        return True
