"""The system checks of webhooks."""

from typing import Any

import pytest
from celery import current_app
from django.core.checks import run_checks
from pytest_django import Settings

from pikku_storage.webhooks import checks


def reported() -> list[str | None]:
    return [message.id for message in run_checks(tags=["pikku_webhooks"])]


def test_a_relay_that_nobody_calls_is_a_warning(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
    schedule: dict[str, Any] = {"ours": {"task": "pikku.webhooks.relay", "schedule": 5}}
    monkeypatch.setitem(current_app.conf, "beat_schedule", schedule)
    assert reported() == []
    monkeypatch.setitem(current_app.conf, "beat_schedule", {})
    assert reported() == ["pikku.W401"]
    settings.PIKKU_STORAGE = {"DISPATCHER": None}
    assert reported() == []


def test_a_library_that_is_missing_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "find_spec", lambda name: None)
    assert "pikku.E401" in reported()
