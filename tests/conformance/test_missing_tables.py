"""Whose tables are missing is told so, and the command that makes them; nothing makes them by itself."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.checks import run_checks
from django.db.migrations.recorder import MigrationRecorder
from pytest_django import Settings

from pikku_storage.checks import check_tables
from pikku_storage.deployments.checks import check_calls, check_deployment, check_secrets
from pikku_storage.workflows import function
from tests.conformance.support import DATABASE, connection

pytestmark = pytest.mark.django_db(transaction=True)
ROOT = Path(__file__).parents[2]
LONG = "0123456789abcdef0123456789abcdef"


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes tables look as if they were not there, and apps as if they were not migrated."""

    def hide(*tables: str, unmigrated: tuple[str, str] | None = None) -> None:
        names, applied = connection.introspection.table_names(), MigrationRecorder.applied_migrations
        assert set(tables) <= set(names)
        found = [name for name in names if name not in tables]
        monkeypatch.setattr(connection.introspection, "table_names", lambda *args, **options: found)
        left: Any = lambda self: {key: value for key, value in applied(self).items() if key != unmigrated}  # noqa: E731
        monkeypatch.setattr(MigrationRecorder, "applied_migrations", left)

    return hide


def told() -> list[tuple[str | None, str, str | None]]:
    return [(found.id, found.msg, found.hint) for found in check_tables(databases=[DATABASE])]


def test_nothing_is_said_of_what_is_there_or_not_asked_for(without: Callable[..., None]) -> None:
    assert told() == []
    without("secrets", "pikku_deployments")
    assert check_tables() == check_tables(databases=[]) == []
    assert run_checks(tags=["pikku"], databases=[]) == run_checks(tags=["pikku"])


@pytest.mark.contract("SC-13", "SC-14", "SC-16")
def test_missing_tables_are_named_with_the_command(
    without: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    # After an upgrade: the earlier migrations are done.
    without("workflow_rates", "secrets", "secrets_audit", unmigrated=("pikku_workflows", "0006_flow_control"))
    first, second = sorted(told(), key=str, reverse=True)
    assert first == (
        "pikku.W005",
        f"pikku_storage.workflows has no tables workflow_rates in the database {DATABASE!r}.",
        f"Run `manage.py migrate --database {DATABASE}`.",
    )
    assert second[:2] == (
        "pikku.E009",
        f"pikku_storage.secrets has no tables secrets, secrets_audit in the database {DATABASE!r}.",
    )
    assert len(told()) == 2, "and nothing was made"
    monkeypatch.setattr(sys, "argv", ["manage.py", "migrate"])
    assert told() == []


def test_what_a_celery_module_calls_can_be_imported_before_the_apps_are_ready() -> None:
    calls = "from {0} import {1}; {1}()"
    code = "; ".join(
        [
            calls.format("pikku_storage.deployments.queue_identity", "sign_celery_messages"),
            calls.format("pikku_storage.deployments.announcing", "announce_workers"),
            "from pikku_storage.content import signed_url, serve_signed",
            "from pikku_storage.crypto import canonical, content, jwt, queue_identity, remote",
        ]
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, cwd=ROOT)


def test_what_services_share_is_checked(settings: Settings) -> None:
    def ids(**given: Any) -> list[str | None]:
        settings.PIKKU_STORAGE = {"DISPATCHER": None, **given}
        return [found.id for check in (check_secrets, check_calls, check_deployment) for found in check()]

    good = {"REMOTE_SECRET": LONG, "JWT_SECRETS": {"1": LONG[::-1]}}
    assert ids() == ids(**good) == ids(DEPLOYMENT_ENDPOINT="https://one/api") == []
    assert ids(REMOTE_SECRET=LONG) == ["pikku.E502"]
    assert ids(REMOTE_SECRET="short", JWT_SECRETS={"1": "", "2": "ab" * 20}) == [
        "pikku.E501",
        "pikku.E501",
        "pikku.W501",
    ]
    assert ids(DEPLOYMENT_ENDPOINT="one:8000") == ids(DEPLOYMENT_ENDPOINT="celery://one") == ["pikku.E503"]
    assert ids(DEPLOYMENT_TTL="10s") == ["pikku.W504"]
    assert ids(DEPLOYMENT_TTL="soon", DEPLOYMENT_ENDPOINT=7, REMOTE_SECRET=7, JWT_SECRETS="x") == []

    @function(remote=True, name="checks.remote")
    def remote() -> None: ...

    assert ids(**good) == []
    assert ids() == ["pikku.W503"]
