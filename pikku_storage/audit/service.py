"""The audit trail's table: written, read and pruned (contract services.md §16)."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from django.db import router
from django.db.models import Q

from pikku_storage.async_twins import AsyncTwins
from pikku_storage.audit.models import WORD_LENGTH, AuditEntry
from pikku_storage.audit.records import AuditFacets, AuditPage, AuditRecord
from pikku_storage.auditing import AuditEvent
from pikku_storage.db import engine
from pikku_storage.db.fields import cut
from pikku_storage.durations import Duration, to_milliseconds
from pikku_storage.exceptions import AuditInputError, PayloadError
from pikku_storage.json import Json, to_json_object, to_text

PAGE, LARGEST_PAGE = 50, 200


class AuditService(AsyncTwins):
    """The trail. Every method has an async twin: `await service.aquery(…)`."""

    def __init__(self, using: str | None = None) -> None:
        self.using = using or router.db_for_write(AuditEntry)
        self._engine = engine(self.using)

    def write(self, batch: Iterable[AuditEvent]) -> int:
        """Add events; answers how many were new. One whose `audit_id` is there already changes nothing, so a batch may
        be written again, and an empty one does nothing.

        Metadata that is no JSON is replaced by the reason; the event is worth more than it. Raises `PayloadError` for
        ids and names that cannot be stored; then nothing is written.
        """
        rows = [_row(event) for event in batch]
        return self._engine.retrying(lambda: self._entries.add(rows)) if rows else 0

    def query(
        self,
        *,
        user_ids: Iterable[str] | None = None,
        types: Iterable[str] | None = None,
        org_id: str | None = None,
        from_: datetime | None = None,
        to: datetime | None = None,
        limit: int = PAGE,
        offset: int = 0,
        before: tuple[datetime, str] | None = None,
    ) -> AuditPage:
        """Events, the newest first, for which all holds that is given: of one of these users, of one of these types, of
        that organisation, from `from_` on and before `to`. An empty list matches nothing.

        `limit` is brought to 1 to 200. `before` is `last` of the page before: pages by key cost the same however deep,
        and what is written meanwhile does not shift them. Raises `AuditInputError` for times without an offset.
        """
        conditions: dict[str, Any] = {
            "user_id__in": None if user_ids is None else _texts(user_ids, "user_ids"),
            "type__in": None if types is None else _texts(types, "types"),
            "org_id": org_id,
            "occurred_at__gte": _aware("from_", from_),
            "occurred_at__lt": _aware("to", to),
        }
        if [] in conditions.values():
            return AuditPage(events=(), next_cursor=None)
        rows = self._entries.filter(**{name: value for name, value in conditions.items() if value is not None})
        if before is not None:
            at, audit_id = before
            at = _aware("before", at)
            rows = rows.filter(Q(occurred_at__lt=at) | Q(occurred_at=at, audit_id__lt=audit_id))
        limit, offset = max(1, min(limit, LARGEST_PAGE)), max(0, offset)
        ordered = rows.order_by("-occurred_at", "-audit_id").values(*AuditRecord.COLUMNS)
        found = [AuditRecord.from_row(row) for row in ordered[offset : offset + limit + 1]]
        has_more = len(found) > limit
        return AuditPage(events=tuple(found[:limit]), next_cursor=offset + limit if has_more else None)

    def facets(self) -> AuditFacets:
        """The users and the types that there are, sorted."""
        return AuditFacets(user_ids=self._distinct("user_id"), types=self._distinct("type"))

    def prune(self, older_than: Duration, *, dry_run: bool = False) -> int:
        """Delete the events that are older than that, or with `dry_run` count them; answers how many. Raises
        `ValueError` for no duration."""
        by = self._engine.now() - timedelta(milliseconds=to_milliseconds(older_than))
        return int(self._entries.older(by).count() if dry_run else self._entries.remove_older(by))

    @property
    def _entries(self) -> Any:
        return AuditEntry.objects.using(self.using)

    def _distinct(self, column: str) -> tuple[str, ...]:
        present = self._entries.filter(**{f"{column}__isnull": False})
        return tuple(present.order_by(column).values_list(column, flat=True).distinct())


def _row(event: AuditEvent) -> dict[str, Any]:
    metadata = _metadata(event)
    row: dict[str, Any] = {
        "source": to_text(event.source, root="$source", longest=WORD_LENGTH),
        "outcome": _optional("outcome", event.outcome, WORD_LENGTH),
        "wire_type": _optional("wire_type", event.wire_type, WORD_LENGTH),
        "user_id": _optional("user_id", event.actor.user_id),
        "org_id": _optional("org_id", event.actor.org_id),
        "event": _optional("event_id", event.event_id),
        "occurred_at": cut(_aware("occurred_at", event.occurred_at)),
        "tables": _json(metadata.get("tables")),
        "changed_cols": _json(metadata.get("changedColumns")),
        "data": _json(metadata),
    }
    for name in ("audit_id", "type"):
        row[name] = to_text(getattr(event, name), root=f"${name}")
    for name in ("function_id", "trace_id", "transaction_id", "query_id", "pikku_user_id"):
        row[name] = _optional(name, getattr(event, name))
    return row


def _metadata(event: AuditEvent) -> dict[str, Json]:
    try:
        return to_json_object(dict(event.metadata), root="$metadata")
    except PayloadError as error:
        return {"notKept": str(error)}


def _json(value: Json) -> str | None:
    return None if value is None else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _optional(name: str, value: str | None, longest: int = 255) -> str | None:
    return None if value is None else to_text(value, root=f"${name}", longest=longest)


def _aware(name: str, moment: Any) -> Any:
    if moment is not None and (not isinstance(moment, datetime) or moment.tzinfo is None):
        raise AuditInputError(f"{name} is a datetime with an offset, not {moment!r}")
    return moment


def _texts(values: Iterable[str], name: str) -> list[str]:
    if isinstance(values, str):
        raise AuditInputError(f"{name} is a list of texts, not a text")
    return list(values)
