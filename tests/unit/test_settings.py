"""`PIKKU_STORAGE` and the system checks."""

from typing import Any

import pytest
from celery import current_app
from django.core.checks import CheckMessage, run_checks
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from pytest_django import Settings

from pikku_storage.conf import KEYS
from pikku_storage.conf import settings as pikku_settings
from pikku_storage.db import documents, engine
from pikku_storage.workflows.dispatch import CeleryDispatcher, InlineDispatcher, dispatcher


class UnsendingDispatcher:
    """Its `send` is no method."""

    send = "no method"


def _checked(settings: Settings, **given: Any) -> list[tuple[str | None, str]]:
    settings.PIKKU_STORAGE = given
    messages: list[CheckMessage] = run_checks(tags=["pikku"], databases=[])
    return [(message.id, str(message.msg)) for message in messages]


def test_the_defaults_are_those_of_the_documentation(settings: Settings) -> None:
    settings.PIKKU_STORAGE = {}

    assert {key: getattr(pikku_settings, key) for key in KEYS} == {
        "AGENT_DATABASES": {},
        "AGENT_MODELS": {},
        "AUDIT_SINK": "pikku_storage.audit.sinks.store",
        "CONSOLE_MODEL_PERMISSIONS": False,
        "CHANNEL_LEASE": 60_000,
        "CHANNEL_NAMESPACE": "pikku_eventhub",
        "CHANNEL_POLL_INTERVAL": 250,
        "CHANNEL_QUEUE_SIZE": 100,
        "CHANNEL_REDIS_URL": None,
        "CHANNEL_TRANSPORT": "auto",
        "DATABASE": "default",
        "DEPLOYMENT_ENDPOINT": None,
        "DEPLOYMENT_HEARTBEAT": 10_000,
        "DEPLOYMENT_TTL": 30_000,
        "DISPATCHER": "pikku_storage.workflows.dispatch.CeleryDispatcher",
        "HTTP_AUTHENTICATORS": (),
        "HTTP_RUN_WAIT": 30_000,
        "HTTP_STREAM_LIFE": 300_000,
        "MIRROR": None,
        "QUEUE": "celery",
        "LEASE": 60_000,
        "RELAY_INTERVAL": 5_000,
        "PATIENCE": 30_000,
        "STALLED_AFTER": 300_000,
        "MESSAGE_PRIORITIES": False,
        "MAX_PAYLOAD_BYTES": 4_194_304,
        "JWT_SECRETS": {},
        "QUEUE_IDENTITY_SECRET": None,
        "REMOTE_SECRET": None,
        "REMOTE_TIMEOUT": 30_000,
        "SECRET_KEK": None,
        "SECRET_KEK_VERSION": 1,
        "SECRET_PREVIOUS_KEKS": {},
        "KEY_PROVIDER": "pikku_storage.secrets.keys.SettingsKeys",
        "SECRET_FORMAT": "bound",
        "SECRET_AUDIT": True,
        "SECRET_AUDIT_READS": False,
        "SECRET_ALLOWED_HOSTS": {},
        "SECRET_STRICT_HOSTS": False,
        "USER_ORGANISATION": None,
        "WEBHOOK_ALLOWED_HOSTS": (),
        "WEBHOOK_QUEUE": "celery",
        "WEBHOOK_RETRIES": 3,
        "WEBHOOK_RETRY_DELAY": "exponential",
        "WEBHOOK_SECRET": None,
        "WEBHOOK_SIGNATURE_HEADER": "X-Pikku-Signature",
        "WEBHOOK_TIMEOUT": 30_000,
    }


def test_settings_are_read_when_they_are_asked_for(settings: Settings) -> None:
    settings.PIKKU_STORAGE = {"LEASE": "2min"}
    assert pikku_settings.LEASE == 120_000
    settings.PIKKU_STORAGE = {"LEASE": 500}
    assert pikku_settings.LEASE == 500


def test_a_project_without_the_setting_has_the_defaults(settings: Settings) -> None:
    del settings.PIKKU_STORAGE

    assert pikku_settings.LEASE == 60_000


def test_good_settings_pass_the_checks(settings: Settings) -> None:
    assert _checked(settings, LEASE="1min", DISPATCHER=None, QUEUE="work", MAX_PAYLOAD_BYTES=1_000) == []


def test_an_unknown_key_is_an_error(settings: Settings) -> None:
    assert _checked(settings, LEESE="1min") == [("pikku.E001", "PIKKU_STORAGE has the unknown key 'LEESE'.")]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("LEASE", "soon"),
        ("PATIENCE", -1),
        ("RELAY_INTERVAL", None),
        ("MAX_PAYLOAD_BYTES", "much"),
        ("HTTP_AUTHENTICATORS", "shop.tokens.user"),
        ("DEPLOYMENT_ENDPOINT", 5),
        ("JWT_SECRETS", "a secret"),
        ("JWT_SECRETS", {"id": 5}),
        ("QUEUE_IDENTITY_SECRET", 5),
        ("REMOTE_SECRET", 5),
        ("SECRET_KEK", 5),
        ("SECRET_KEK_VERSION", 0),
        ("SECRET_PREVIOUS_KEKS", ["a passphrase"]),
        ("SECRET_FORMAT", "loose"),
        ("SECRET_ALLOWED_HOSTS", {"key": "api.example.com"}),
    ],
)
def test_a_value_that_cannot_be_used_is_an_error(settings: Settings, key: str, value: Any) -> None:
    ((check_id, message),) = _checked(settings, **{key: value})

    assert check_id == "pikku.E002"
    assert message.startswith(f"PIKKU_STORAGE['{key}'] cannot be used: ")


@pytest.mark.parametrize(
    "path",
    [
        "nowhere.Dispatcher",
        "pikku_storage.workflows.dispatch.Missing",
        "nodots",
        5,
        # These can be imported, and send nothing.
        "pikku_storage.workflows.dispatch.dispatcher",
        "pikku_storage.workflows.dispatch.Message",
        "pikku_storage.workflows.dispatch",
        "tests.unit.test_settings.UnsendingDispatcher",
    ],
)
def test_a_dispatcher_that_cannot_be_imported_is_an_error(settings: Settings, path: Any) -> None:
    assert [check_id for check_id, _ in _checked(settings, DISPATCHER=path)] == ["pikku.E003"]


@pytest.mark.parametrize("path", ["nowhere.user_of_token", "nodots", 5, "pikku_storage.workflows.dispatch"])
def test_an_authenticator_that_cannot_be_asked_is_an_error(settings: Settings, path: Any) -> None:
    good = "tests.http.served.user_of_token"
    assert [check_id for check_id, _ in _checked(settings, HTTP_AUTHENTICATORS=[good, path])] == ["pikku.E008"]


@pytest.mark.parametrize(
    "named",
    [
        "nowhere.Mirror",
        "nodots",
        5,
        # The database itself.
        "default",
        # These can be imported, and repeat nothing.
        "pikku_storage.workflows.mirroring.Write",
        "pikku_storage.workflows.mirroring",
    ],
)
def test_a_mirror_that_cannot_be_one_is_an_error(settings: Settings, named: Any) -> None:
    assert [check_id for check_id, _ in _checked(settings, MIRROR=named)] == ["pikku.E006"]


def test_a_class_of_one_s_own_may_be_the_mirror(settings: Settings) -> None:
    assert _checked(settings, MIRROR="pikku_storage.workflows.mirror.WorkflowMirror") == []


def test_a_mirror_in_a_database_without_an_engine_is_an_error(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = connections.create_connection("default")
    other.vendor = "oracle"
    monkeypatch.setitem(connections.settings, "warehouse", connections.settings["default"])
    connections["warehouse"] = other
    try:
        ((check_id, message),) = _checked(settings, MIRROR="warehouse")
    finally:
        del connections["warehouse"]
    assert check_id == "pikku.E006"
    assert "no engine for 'oracle'" in message


def test_the_dispatcher_is_made_once(settings: Settings) -> None:
    settings.PIKKU_STORAGE = {}
    assert isinstance(dispatcher(), CeleryDispatcher)
    assert dispatcher() is dispatcher()


def test_without_a_dispatcher_everything_is_done_in_this_process(settings: Settings) -> None:
    settings.PIKKU_STORAGE = {"DISPATCHER": None}
    assert isinstance(dispatcher(), InlineDispatcher)


def test_sqlite_with_deferred_transactions_is_a_warning(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
    connection = connections["default"]
    monkeypatch.setattr(connection, "vendor", "sqlite")
    monkeypatch.setitem(connection.settings_dict, "OPTIONS", {})
    assert [check_id for check_id, _ in _checked(settings)] == ["pikku.W001"]

    monkeypatch.setitem(connection.settings_dict, "OPTIONS", {"transaction_mode": "IMMEDIATE"})
    assert _checked(settings) == []


def test_a_database_without_an_engine_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections["default"], "vendor", "oracle")

    with pytest.raises(ImproperlyConfigured, match="no engine for 'oracle'; it runs on djongo, mongodb, mysql"):
        engine("default")


def test_a_database_without_an_engine_is_an_error(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
    monkeypatch.setattr(connections["default"], "vendor", "oracle")

    ((check_id, text), *_) = _checked(settings)
    assert check_id == "pikku.E004"
    assert text.startswith(
        "DATABASES['default']: Pikku Storage has no engine for 'oracle'; it runs on djongo, mongodb, mysql,"
    )


@pytest.mark.parametrize(("database", "found"), [("default", []), ("documents", ["pikku.E005"])])
def test_runs_that_are_not_routed_to_their_database_are_an_error(
    monkeypatch: pytest.MonkeyPatch, settings: Settings, database: str, found: list[str]
) -> None:
    """Where the one holds documents and the other does not."""
    settings.DATABASE_ROUTERS = []
    monkeypatch.setitem(connections.settings, "documents", connections.settings["default"])
    monkeypatch.setattr(documents, "are_kept_in", lambda alias: alias == "documents")

    assert [check_id for check_id, _ in _checked(settings, DATABASE=database)] == found


@pytest.mark.parametrize("mode", ["IMMEDIATE", "EXCLUSIVE"])
def test_sqlite_whose_transactions_wait_passes(monkeypatch: pytest.MonkeyPatch, settings: Settings, mode: str) -> None:
    connection = connections["default"]
    monkeypatch.setattr(connection, "vendor", "sqlite")
    monkeypatch.setitem(connection.settings_dict, "OPTIONS", {"transaction_mode": mode})
    assert _checked(settings) == []


def test_other_databases_need_no_transaction_mode(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
    connection = connections["default"]
    monkeypatch.setattr(connection, "vendor", "postgresql")
    monkeypatch.setitem(connection.settings_dict, "OPTIONS", {})
    assert _checked(settings) == []


def test_djongo_is_a_warning(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
    monkeypatch.setattr(connections["default"], "pikku_engine", "djongo", raising=False)
    assert "pikku.W006" in [check_id for check_id, _ in _checked(settings)]


@pytest.mark.parametrize("level", ["repeatable read", "SERIALIZABLE", None])
def test_mariadb_with_another_isolation_level_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, settings: Settings, level: str | None
) -> None:
    connection = connections["default"]
    monkeypatch.setattr(connection, "vendor", "mysql")
    monkeypatch.setitem(connection.settings_dict, "OPTIONS", {"isolation_level": level})
    assert [check_id for check_id, _ in _checked(settings)] == ["pikku.W003"]


@pytest.mark.parametrize(
    ("vendor", "options"),
    [
        ("mysql", {}),
        ("mysql", {"isolation_level": "read committed"}),
        ("mysql", {"isolation_level": "READ COMMITTED"}),
        ("postgresql", {"isolation_level": 3}),
    ],
)
def test_the_isolation_level_that_django_takes_passes(
    monkeypatch: pytest.MonkeyPatch, settings: Settings, vendor: str, options: dict[str, Any]
) -> None:
    connection = connections["default"]
    monkeypatch.setattr(connection, "vendor", vendor)
    monkeypatch.setitem(connection.settings_dict, "OPTIONS", options)
    assert _checked(settings) == []


@pytest.mark.parametrize("schedule", [{}, None, {"other": {"task": "shop.tidy"}}], ids=["empty", "none", "others"])
def test_a_relay_that_nobody_calls_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, settings: Settings, schedule: Any
) -> None:
    monkeypatch.setitem(current_app.conf, "beat_schedule", schedule)

    ((check_id, message),) = _checked(settings)
    assert check_id == "pikku.W002"
    assert message.startswith("The Celery app of this project does not schedule the relay")
    assert _checked(settings, DISPATCHER=None) == [], "nothing is sent that could be lost"


def test_a_relay_under_any_name_passes(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
    monkeypatch.setitem(current_app.conf, "beat_schedule", {"ours": {"task": "pikku.relay", "schedule": 1}})
    assert _checked(settings) == []


def test_every_message_of_a_check_has_a_hint(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
    connection = connections["default"]
    monkeypatch.setattr(connection, "vendor", "sqlite")
    monkeypatch.setitem(connection.settings_dict, "OPTIONS", {})
    monkeypatch.setitem(current_app.conf, "beat_schedule", {})
    settings.PIKKU_STORAGE = {"LEESE": 1, "LEASE": "soon", "DISPATCHER": "nodots", "HTTP_AUTHENTICATORS": ["nodots"]}
    messages = run_checks(tags=["pikku"], databases=[])
    monkeypatch.setattr(connection, "vendor", "oracle")
    messages += run_checks(tags=["pikku"], databases=[])
    monkeypatch.setattr(connection, "vendor", "mysql")
    monkeypatch.setitem(connection.settings_dict, "OPTIONS", {"isolation_level": None})
    messages += run_checks(tags=["pikku"], databases=[])
    monkeypatch.setattr(connection, "pikku_engine", "djongo", raising=False)
    messages += run_checks(tags=["pikku"], databases=[])

    assert {message.id for message in messages} == {
        "pikku.E001",
        "pikku.E002",
        "pikku.E003",
        "pikku.E004",
        "pikku.E008",
        "pikku.W001",
        "pikku.W002",
        "pikku.W003",
        "pikku.W006",
    }
    assert all(message.hint for message in messages)
