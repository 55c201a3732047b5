"""What becomes of a worker's database connection between two tasks."""

from typing import Any

import pytest
from celery import Celery
from celery.signals import task_postrun, task_prerun
from django.db import connection

from pikku_storage.workflows import routing

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The connection, as a project has it that keeps connections and checks their health."""
    routing.configure(Celery("connections", set_as_current=False))
    connection.close()
    monkeypatch.setitem(connection.settings_dict, "CONN_MAX_AGE", None)
    monkeypatch.setitem(connection.settings_dict, "CONN_HEALTH_CHECKS", True)
    connection.ensure_connection()
    return connection


@pytest.fixture
def task(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Begin and end a task at these seconds; answers whether its first query would ask for the server's health."""
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    monkeypatch.delattr(routing._last_task, "at", raising=False)

    def at(seconds: float) -> bool:
        now[0] = seconds
        task_prerun.send(sender=None)
        asks = not connection.health_check_done  # type: ignore[attr-defined]
        task_postrun.send(sender=None)
        return asks

    return at


def test_a_connection_is_checked_again_after_a_pause(kept: Any, task: Any) -> None:
    assert task(100.0)
    assert not task(100.5)
    assert not task(101.4)
    assert task(102.5)
    assert not task(102.6)


def test_a_connection_that_failed_is_replaced_at_once(kept: Any, task: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    task(100.0)
    broken = kept.connection
    monkeypatch.setattr(kept, "is_usable", lambda: False)
    kept.errors_occurred = True
    task(100.1)
    assert kept.connection is not broken


def test_a_connection_that_is_not_to_be_kept_is_closed_after_the_task(kept: Any, task: Any) -> None:
    kept.close_at = 0.0
    task(100.0)
    assert kept.connection is None
