"""What the examples of the documentation find around them."""

from collections.abc import Iterator

import pytest
from pytest_django import Settings

from pikku_storage.access.declarations import declarations
from pikku_storage.agents.scoring import scorers
from pikku_storage.workflows.registry import registry
from tests.docs.worker import working
from tests.secret_keys import PASSPHRASE


@pytest.fixture
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names are unique in a process, and examples reuse the good ones; each page has a registry of its own."""
    monkeypatch.setattr(registry, "functions", {})
    monkeypatch.setattr(registry, "workflows", {})
    for name in ("scopes", "roles", "problems"):
        monkeypatch.setattr(declarations, name, getattr(declarations, name).copy())
    monkeypatch.setattr(scorers, "by_name", {})


@pytest.fixture
def worker(transactional_db: None, own_registry: None, settings: Settings) -> Iterator[None]:
    """A worker that carries out what the examples start."""
    settings.PIKKU_STORAGE = {"DISPATCHER": "tests.docs.worker.ThreadDispatcher", "SECRET_KEK": PASSPHRASE}
    with working():
        yield
