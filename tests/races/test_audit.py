"""Many writers of the same events."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from django.db import connections

from pikku_storage.audit.service import AuditService
from pikku_storage.auditing import AuditEvent

WRITERS = 6

pytestmark = pytest.mark.django_db(transaction=True)


def test_of_events_that_many_write_each_is_kept_once() -> None:
    batches = [
        [
            AuditEvent(type="order.paid", outcome="success", wire_type=None, event_id=f"e{number}")
            for number in range(first, first + 10)
        ]
        for first in range(WRITERS)
    ]
    barrier = Barrier(WRITERS)

    def write(batch: list[AuditEvent]) -> None:
        try:
            barrier.wait(30)
            AuditService().write(batch)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(write, batches))
    kept = [event.audit_id for event in AuditService().query(limit=200).events]
    assert sorted(kept) == sorted(f"e{number}" for number in range(WRITERS + 9))
