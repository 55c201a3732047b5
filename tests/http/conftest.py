"""Callers of the addresses, and a broker in a list."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from pytest_django import Settings

from pikku_storage.workflows.http import streams
from pikku_storage.workflows.registry import registry
from pikku_storage.workflows.service import WorkflowService
from tests.conformance.recording import RecordingDispatcher
from tests.http.callers import Caller
from tests.http.served import TOKENS


@pytest.fixture(autouse=True)
def _own_registry() -> Iterator[None]:
    """Definitions that a test makes are gone after it."""
    functions, workflows = dict(registry.functions), dict(registry.workflows)
    yield
    registry.functions, registry.workflows = functions, workflows


@pytest.fixture(autouse=True)
def _settings(settings: Settings) -> None:
    settings.PIKKU_STORAGE = {
        "DATABASE": settings.PIKKU_STORAGE["DATABASE"],
        "DISPATCHER": RecordingDispatcher.PATH,
        "HTTP_AUTHENTICATORS": [TOKENS],
    }


@pytest.fixture
def inline(settings: Settings) -> None:
    """A project without workers: a run is carried out where it is started."""
    settings.PIKKU_STORAGE = {**settings.PIKKU_STORAGE, "DISPATCHER": None}


@pytest.fixture
def brisk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams look a hundred times a second."""
    monkeypatch.setattr(streams, "POLL", 0.01)


@pytest.fixture
def service(db: Any) -> WorkflowService:
    """What carries runs on."""
    return WorkflowService(worker="worker-0")


@pytest.fixture
def ada(db: Any) -> Caller:
    """Whoever starts the runs."""
    return Caller(User.objects.create_user("ada"))


@pytest.fixture
def bob(db: Any) -> Caller:
    """Somebody else."""
    return Caller(User.objects.create_user("bob"))
