"""The audit trail."""

from __future__ import annotations

from django.contrib.auth.models import User

from console.gate import AUDIT
from pikku_storage.access.actors import Actor
from pikku_storage.audit.service import AuditService
from pikku_storage.auditing import AuditEvent
from tests.console.rooms import Room, Rows


def _make(user: User) -> dict[str, Rows]:
    event = AuditEvent(type="order.read", outcome="success", actor=Actor(user_id=str(user.pk)), wire_type="http")
    AuditService().write([event])
    return {"auditentry": Rows(event.audit_id)}


ROOM = Room(area=AUDIT, make=_make, params={"pikku_audit_auditentry_export": {"form": "csv"}})
