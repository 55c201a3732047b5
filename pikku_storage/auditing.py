"""The audit trail: what the package hands to whoever keeps one.

`record` never breaks the work that it is told of: a sink that fails is a warning in the log.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias

from django.utils.module_loading import import_string

from pikku_storage.access.actors import Actor
from pikku_storage.conf import settings
from pikku_storage.json import Json

logger = logging.getLogger(__name__)
trail = logging.getLogger("pikku_storage.audit")


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEvent:
    """Something that somebody did, or was refused."""

    type: str
    """What it was, such as `workflow.approval.decided`."""
    outcome: Literal["success", "denied"]
    actor: Actor = field(default_factory=Actor)
    wire_type: str
    """Which part of the package it happened in, such as `workflow`."""
    source: str = "explicit"
    metadata: Mapping[str, Json] = field(default_factory=dict)
    occurred_at: datetime = field(default_factory=lambda: datetime.now(UTC))

    def as_json(self) -> dict[str, Json]:
        """The event under the contract's names (services.md §1.8)."""
        return {
            "type": self.type,
            "source": self.source,
            "outcome": self.outcome,
            "occurredAt": self.occurred_at.isoformat(),
            "wireType": self.wire_type,
            "userIdentity": {} if self.actor.user_id is None else {"pikkuUserId": self.actor.user_id},
            "metadata": dict(self.metadata),
        }


Sink: TypeAlias = Callable[[AuditEvent], Any]


def record(event: AuditEvent) -> None:
    """Hand the event to the sink that `PIKKU_STORAGE["AUDIT_SINK"]` names; without one nothing is kept."""
    try:
        if settings.AUDIT_SINK is not None:
            sink: Sink = import_string(settings.AUDIT_SINK)
            sink(event)
    except Exception:
        logger.warning("The audit event %s (%s) could not be kept", event.type, event.outcome, exc_info=True)


def log_event(event: AuditEvent) -> None:
    """The default sink: one line of JSON to the logger `pikku_storage.audit`."""
    trail.info("%s", json.dumps(event.as_json(), ensure_ascii=False, sort_keys=True), extra={"audit_event": event})
