"""What the behaviours have in common: services, a broker in a list, and definitions that are gone after the test."""

import itertools
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from example_project.databases import DJONGO_ENGINE
from pikku_storage.auditing import AuditEvent
from pikku_storage.db import Engine, engine
from pikku_storage.workflows.dispatch import dispatcher
from pikku_storage.workflows.engine import rules, versions
from pikku_storage.workflows.engine.runtime import Runtime
from pikku_storage.workflows.querysets import RunQuerySet, StepQuerySet
from pikku_storage.workflows.registry import registry
from pikku_storage.workflows.runs import WorkflowRunService
from pikku_storage.workflows.service import WorkflowService
from tests.conformance.recording import RecordingDispatcher, events
from tests.conformance.support import DATABASE, connection

Counter = Callable[[], CaptureQueriesContext]

COMPUTES = "bulk_update() lets the database compute values, which djongo cannot translate"
NOT_ON_DJONGO = {
    "test_however_it_is_saved_it_is_sealed_once": COMPUTES,
    "test_many_different_values_are_updated_at_once": COMPUTES,
}
"""Tests of what djongo does not have, and why: all that are skipped there and not on MongoDB."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what is not on djongo."""
    if connection.settings_dict["ENGINE"] != DJONGO_ENGINE:
        return
    for item in items:
        reason = NOT_ON_DJONGO.get(getattr(item, "originalname", ""))
        if reason is not None:
            item.add_marker(pytest.mark.skip(reason=f"djongo: {reason}"))


@pytest.fixture(autouse=True)
def _own_registry() -> Iterator[None]:
    """Definitions that a test makes are gone after it, and so is the memory of which versions and controls are
    stored."""
    functions, workflows = dict(registry.functions), dict(registry.workflows)
    versions.stored_versions.clear()
    rules.forget(DATABASE)
    yield
    registry.functions, registry.workflows = functions, workflows


@pytest.fixture(autouse=True)
def outbox(settings: Settings) -> Iterator[RecordingDispatcher]:
    """The broker of every test here."""
    settings.PIKKU_STORAGE = {"DISPATCHER": RecordingDispatcher.PATH}
    recording = dispatcher()
    assert isinstance(recording, RecordingDispatcher)
    recording.reset()
    yield recording
    recording.reset()


@pytest.fixture
def no_broker(settings: Settings) -> None:
    """A project that sends no messages at all."""
    settings.PIKKU_STORAGE = {"DISPATCHER": None}


@pytest.fixture
def no_goodbye(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is interrupted here is as one that is killed: it gives nothing back."""
    for queryset in (RunQuerySet, StepQuerySet):
        monkeypatch.setattr(queryset, "give_up", lambda *args, **options: False)


@pytest.fixture
def service(db: None) -> WorkflowService:
    """The write side."""
    return WorkflowService(worker="worker-0")


@pytest.fixture
def runs(db: None) -> WorkflowRunService:
    """The read side."""
    return WorkflowRunService()


@pytest.fixture
def ticking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every look at the clock is a millisecond later than the one before, so that no two events share one."""
    ticks = itertools.count()
    now = Engine.now
    monkeypatch.setattr(Engine, "now", lambda self: now(self) + next(ticks) * timedelta(milliseconds=1))


@pytest.fixture
def statements(db: None) -> Counter:
    """Counts statements in a block: `with statements() as seen: …; seen.captured_queries`."""

    def count() -> CaptureQueriesContext:
        # The clock asks the server for its time once a minute, and once a second a process reads what operators have
        # set; that is no part of any operation.
        engine(DATABASE).now()
        rules.rules_of(Runtime(), "any", fresh=True)
        return CaptureQueriesContext(connection)

    return count


@pytest.fixture
def audited(settings: Settings, outbox: RecordingDispatcher) -> Iterator[list[AuditEvent]]:
    """What the audit trail was told."""
    settings.PIKKU_STORAGE = {**settings.PIKKU_STORAGE, "AUDIT_SINK": "tests.conformance.recording.keep_event"}
    events.clear()
    yield events
    events.clear()
