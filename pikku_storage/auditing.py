"""The audit trail: what the package hands to whoever keeps one.

`record` never breaks the work that it is told of: a sink that fails is a warning in the log, and is counted in `lost`.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any, Literal, TypeAlias

from django.db import transaction
from django.utils.module_loading import import_string

from pikku_storage.access.actors import Actor
from pikku_storage.conf import settings
from pikku_storage.ids import new_id
from pikku_storage.json import Json

logger = logging.getLogger(__name__)
trail = logging.getLogger("pikku_storage.audit")

Outcome: TypeAlias = Literal["success", "failed", "denied"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEvent:
    """Something that somebody did, or was refused."""

    type: str
    """What it was, such as `workflow.approval.decided`."""
    outcome: Outcome | None
    actor: Actor = field(default_factory=Actor)
    wire_type: str | None
    """Which part of the package it happened in, such as `workflow`."""
    source: Literal["auto", "explicit"] = "explicit"
    metadata: Mapping[str, Json] = field(default_factory=dict)
    """JSON. `tables` and `changedColumns` are also kept beside it."""
    occurred_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    event_id: str | None = None
    query_id: str | None = None
    """Of a statement that was seen: tells it from others of the same transaction."""
    function_id: str | None = None
    trace_id: str | None = None
    transaction_id: str | None = None
    """What events of one piece of work have in common."""
    pikku_user_id: str | None = None
    """How the caller was named by the wire that the call came over, where there is no user."""
    audit_id: str = ""
    """The event's id or else the query's; one of its own where there is neither. An id is kept once."""

    def __post_init__(self) -> None:
        if not self.audit_id:
            object.__setattr__(self, "audit_id", self.event_id or self.query_id or new_id())

    def as_json(self) -> dict[str, Json]:
        """The event under the contract's names (services.md §1.8)."""
        ids = {
            "eventId": self.event_id,
            "queryId": self.query_id,
            "functionId": self.function_id,
            "traceId": self.trace_id,
            "transactionId": self.transaction_id,
        }
        user_id = self.actor.user_id or self.pikku_user_id
        return {
            "type": self.type,
            "source": self.source,
            "outcome": self.outcome,
            "occurredAt": self.occurred_at.isoformat(),
            "wireType": self.wire_type,
            "userIdentity": {} if user_id is None else {"pikkuUserId": user_id},
            "metadata": dict(self.metadata),
            **{name: value for name, value in ids.items() if value is not None},
        }


Sink: TypeAlias = Callable[[AuditEvent], Any]
"""What `AUDIT_SINK` names. With a method `all`, which takes a list of events, it gets what belongs together at once."""
Completion: TypeAlias = Callable[[AuditEvent], AuditEvent]

_completion: ContextVar[Completion | None] = ContextVar("pikku_audit_completion", default=None)


@dataclass(slots=True)
class Lost:
    """What this process could not keep."""

    events: int = 0
    last_error: str | None = None
    last_at: datetime | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add(self, events: int, error: BaseException) -> None:
        """Count events that an error kept away from the trail."""
        with self._lock:
            self.events += events
            self.last_error = f"{type(error).__name__}: {error}"
            self.last_at = datetime.now(UTC)


lost = Lost()
"""For metrics and health checks: since this process began, how many events no sink took, and why the last of them."""


@contextmanager
def completing(completion: Completion | None) -> Iterator[None]:
    """What is recorded inside the block is completed first, such as with who acts; `None` completes nothing."""
    token = _completion.set(completion)
    try:
        yield
    finally:
        _completion.reset(token)


def record(event: AuditEvent) -> None:
    """Hand the event to the sink that `PIKKU_STORAGE["AUDIT_SINK"]` names; without one nothing is kept."""
    record_all([event])


def record_all(events: Sequence[AuditEvent], *, using: str | None = None) -> None:
    """As `record`, what belongs together. With `using`, once the transaction on that database is committed."""
    complete = _completion.get()
    completed = [event if complete is None else complete(event) for event in events]
    if using is None:
        _hand_over(completed)
    else:
        transaction.on_commit(partial(_hand_over, completed), using=using)


def _hand_over(events: Sequence[AuditEvent]) -> None:
    try:
        if settings.AUDIT_SINK is None or not events:
            return
        sink: Sink = import_string(settings.AUDIT_SINK)
        take_all = getattr(sink, "all", None)
        if take_all is None:
            for event in events:
                sink(event)
        else:
            take_all(events)
    except Exception as error:  # noqa: BLE001 - whatever it is, the work that is told of goes on
        not_kept(events, error)


def not_kept(events: Sequence[AuditEvent], error: Exception) -> None:
    """Say in the log, and count, that these events are in no trail."""
    lost.add(len(events), error)
    names = ", ".join(sorted({f"{event.type} ({event.outcome})" for event in events}))
    logger.warning(
        "%d audit events could not be kept, and %d since this process began: %s",
        len(events),
        lost.events,
        names,
        exc_info=error,
    )


def log_event(event: AuditEvent) -> None:
    """A sink: one line of JSON to the logger `pikku_storage.audit`."""
    trail.info("%s", json.dumps(event.as_json(), ensure_ascii=False, sort_keys=True), extra={"audit_event": event})
