"""Sinks for `PIKKU_STORAGE["AUDIT_SINK"]`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from django.db import router, transaction

from pikku_storage.audit.models import AuditEntry
from pikku_storage.audit.observing import observed_by
from pikku_storage.audit.service import AuditService
from pikku_storage.auditing import AuditEvent, log_event, not_kept
from pikku_storage.exceptions import PayloadError


class TableSink:
    """Keeps events in the table `audit`.

    Inside a transaction they are written when it is committed: what was undone did not happen, and a trail that fails
    must not undo the work. What was refused or failed is logged at once as well, since the transaction around it is
    mostly undone.
    """

    def __call__(self, event: AuditEvent) -> None:
        """Keep one event."""
        self.all([event])

    def all(self, events: Sequence[AuditEvent]) -> None:
        """Keep what belongs together."""
        using = router.db_for_write(AuditEntry)
        if transaction.get_connection(using).in_atomic_block:
            for event in events:
                if event.outcome != "success" and event.source == "explicit":
                    log_event(event)
        transaction.on_commit(partial(_write, using, list(events)), using=using)


def _write(using: str, events: list[AuditEvent]) -> None:
    """Write them, together or else one by one: one that cannot be kept takes no other with it."""
    service = AuditService(using)
    with observed_by(None):
        try:
            service.write(events)
        except PayloadError as error:
            if len(events) == 1:
                not_kept(events, error)
                return
            for event in events:
                _write(using, [event])
        except Exception as error:  # noqa: BLE001 - whatever it is, the work that is told of is done
            not_kept(events, error)


store = TableSink()
"""The sink that is used by default where this app is installed."""
