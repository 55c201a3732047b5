"""What `AuditService` answers with: frozen, typed records. Times are aware UTC, `None` is the contract's *absent*."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Self

from pikku_storage.json import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRecord:
    """An event of the trail. `tables`, `changed_cols` and `data` are JSON, or texts that are none as they are."""

    audit_id: str
    occurred_at: datetime
    type: str
    source: str
    outcome: str | None = None
    function_id: str | None = None
    wire_type: str | None = None
    trace_id: str | None = None
    transaction_id: str | None = None
    query_id: str | None = None
    user_id: str | None = None
    org_id: str | None = None
    pikku_user_id: str | None = None
    tables: Json = None
    changed_cols: Json = None
    event: str | None = None
    data: Json = None

    COLUMNS: ClassVar = (
        "audit_id",
        "occurred_at",
        "type",
        "source",
        "outcome",
        "function_id",
        "wire_type",
        "trace_id",
        "transaction_id",
        "query_id",
        "user_id",
        "org_id",
        "pikku_user_id",
        "tables",
        "changed_cols",
        "event",
        "data",
    )
    _JSON: ClassVar = ("tables", "changed_cols", "data")

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """From a `values(*AuditRecord.COLUMNS)` row."""
        return cls(**{**row, **{name: _parsed(row[name]) for name in cls._JSON}})


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditPage:
    """A page of the trail, the newest event first."""

    events: tuple[AuditRecord, ...]
    next_cursor: int | None
    """The `offset` of the next page; `None` on the last one."""

    @property
    def last(self) -> tuple[datetime, str] | None:
        """What `before` takes for the next page; `None` on the last one."""
        if self.next_cursor is None:
            return None
        return self.events[-1].occurred_at, self.events[-1].audit_id


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFacets:
    """What the trail may be filtered by, sorted."""

    user_ids: tuple[str, ...]
    types: tuple[str, ...]


def _parsed(text: str | None) -> Json:
    try:
        return None if text is None else json.loads(text)
    except ValueError:
        return text
