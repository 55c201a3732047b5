"""What every test may use: the servers that a test asks for by name, and the environment of processes it starts."""

import os
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pytest
from celery import current_app
from django.core.management import call_command
from django.core.management.color import Style
from django.core.management.commands import flush
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.base.operations import BaseDatabaseOperations
from django.db.migrations.recorder import MigrationRecorder
from django.db.utils import ConnectionHandler
from django.test import override_settings
from pytest_django import DjangoDbBlocker, Settings

from example_project.databases import PIKKU
from pikku_storage.crypto import envelope
from pikku_storage.workflows import mirroring
from pikku_storage.workflows.models import WorkflowRun, WorkflowStep, WorkflowStepHistory, WorkflowVersion
from pikku_storage.workflows.schedules import synchronising
from tests.conformance.support import MIRROR
from tests.secret_keys import SALT, keys_of_version

KEPT_BY_FLUSH = {"auth_permission", "django_content_type"}
"""What `migrate` makes and no test changes."""


@pytest.fixture(scope="session", autouse=True)
def _quick_flush() -> Iterator[None]:
    """Between two tests the few tables are emptied that have rows. Django would empty them all, and make the
    permissions again, which takes longer than most tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flush, "emit_post_migrate_signal", lambda *arguments: None)
        for operations in {type(connection.ops) for connection in connections.all()}:
            if operations.__module__.startswith("django_mongodb_backend"):
                patch.setattr(operations, "execute_sql_flush", _empty_collections)
            else:
                patch.setattr(operations, "sql_flush", _flushing(operations.sql_flush))
        yield


def _empty_collections(self: Any, tables: list[str]) -> None:
    """Those that have a document, which one question finds out: to empty each takes longer than most tests."""
    first, *others = sorted(set(tables) - KEPT_BY_FLUSH)
    database = self.connection.database
    pipeline = [*_one_named(first), *({"$unionWith": {"coll": name, "pipeline": _one_named(name)}} for name in others)]
    for full in list(database[first].aggregate(pipeline)):
        database[full["name"]].delete_many({})


def _one_named(collection: str) -> list[dict[str, Any]]:
    """A pipeline that answers with the name, if there is a document."""
    return [{"$limit": 1}, {"$project": {"_id": 0, "name": {"$literal": collection}}}]


def _flushing(sql_flush: Callable[..., list[str]]) -> Callable[..., list[str]]:
    """The method of an engine that says how tables are emptied, for those that are not empty."""

    def flushing(self: BaseDatabaseOperations, style: Style, tables: list[str], **options: bool) -> list[str]:
        emptied = sorted(set(tables) - KEPT_BY_FLUSH)
        if not emptied:
            return []
        questions = [f"EXISTS (SELECT 1 FROM {self.quote_name(table)})" for table in emptied]  # noqa: S608
        with self.connection.cursor() as cursor:
            cursor.execute(f"SELECT {', '.join(questions)}")
            full = [table for table, is_full in zip(emptied, cursor.fetchone(), strict=True) if is_full]
        if self.connection.vendor == "postgresql":
            # It would truncate, which takes a quarter of a second for each table.
            return [f"DELETE FROM {self.quote_name(table)}" for table in full]  # noqa: S608
        return sql_flush(self, style, full, **options) if full else []

    return flushing


@pytest.fixture(scope="session", autouse=True)
def _configured_celery() -> None:
    """The app is configured when it is first asked, which must not be by a test that changes the settings."""
    assert current_app.conf.beat_schedule is not None


@pytest.fixture(autouse=True)
def _no_declared_schedules(monkeypatch: pytest.MonkeyPatch) -> None:
    """The relay leaves the schedules alone that the example project declares: they would fire in tests that travel in
    time."""
    looked_for_ever = dict.fromkeys(connections, float("inf"))
    monkeypatch.setattr(synchronising, "_last_looks", looked_for_ever)


def _server(variable: str, name: str) -> str:
    url = os.environ.get(variable)
    if not url:
        pytest.skip(f"needs {name}: set {variable}")
    return url


@pytest.fixture(scope="session")
def redis_url() -> str:
    """A Redis server that the tests may write to; the test is skipped without one."""
    return _server("PIKKU_TEST_REDIS_URL", "Redis")


@pytest.fixture(scope="session")
def amqp_url() -> str:
    """A RabbitMQ server that the tests may write to; the test is skipped without one."""
    return _server("PIKKU_TEST_AMQP_URL", "RabbitMQ")


@pytest.fixture(scope="session")
def postgres_url() -> str:
    """A PostgreSQL server on which the tests may make databases; the test is skipped without one."""
    return _server("PIKKU_TEST_POSTGRES_URL", "PostgreSQL")


@pytest.fixture
def process_env(transactional_db: None) -> dict[str, str]:
    """The environment for a process that shall work on this test's databases, say a Celery worker."""
    variables = {"default": "DATABASE_URL", PIKKU: "PIKKU_DATABASE_URL"}
    urls = {variables[connection.alias]: _url_of(connection) for connection in connections.all()}
    return {**os.environ, "DJANGO_SETTINGS_MODULE": "example_project.settings", **urls}


def _url_of(connection: BaseDatabaseWrapper) -> str:
    database = connection.settings_dict
    if connection.vendor == "sqlite":
        return f"sqlite:///{database['NAME']}"
    if connection.vendor == "mongodb":
        return str(urlunsplit(urlsplit(database["HOST"])._replace(path=f"/{database['NAME']}")))
    scheme, port = ("mysql", 3306) if connection.vendor == "mysql" else ("postgres", 5432)
    login = ":".join(filter(None, [database["USER"], database["PASSWORD"]]))
    return f"{scheme}://{login}@{database['HOST']}:{database['PORT'] or port}/{database['NAME']}"


@pytest.fixture(scope="session")
def migrate_the_mirror() -> Callable[[], None]:
    """Makes the tables of the fixture `mirror_database`.

    A project that keeps everything in MongoDB migrates a mirror in SQL with keys that SQL has, as the guide says.
    """

    def migrate() -> None:
        settings = override_settings(
            PIKKU_STORAGE={"MIRROR": MIRROR}, DEFAULT_AUTO_FIELD="django.db.models.BigAutoField"
        )
        with settings, pytest.MonkeyPatch.context() as patch:
            # In a process of its own it would not be made yet.
            patch.setattr(MigrationRecorder, "_migration_class", None)
            call_command("migrate", database=MIRROR, verbosity=0)

    return migrate


@pytest.fixture(scope="module")
def mirror_database(
    tmp_path_factory: pytest.TempPathFactory,
    django_db_setup: None,
    django_db_blocker: DjangoDbBlocker,
    migrate_the_mirror: Callable[[], None],
) -> Iterator[None]:
    """A second database, on SQLite whatever the first one is, with the tables of a mirror. No other module has it."""
    file = tmp_path_factory.mktemp("mirror") / "mirror.sqlite3"
    options = {"transaction_mode": "IMMEDIATE", "init_command": "PRAGMA synchronous=OFF"}
    database = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(file), "OPTIONS": options}
    connections.settings[MIRROR] = ConnectionHandler({"default": database}).settings["default"]
    with django_db_blocker.unblock():
        migrate_the_mirror()
    yield
    connections[MIRROR].close()
    del connections[MIRROR], connections.settings[MIRROR]


@pytest.fixture
def mirror(mirror_database: None, db: None, settings: Settings) -> Iterator[Any]:
    """What is written is mirrored in this test; the mirror's connection."""
    settings.PIKKU_STORAGE = {**settings.PIKKU_STORAGE, "MIRROR": MIRROR}
    mirroring.mirror.cache_clear()
    yield connections[MIRROR]
    mirroring.mirror.cache_clear()
    # Django empties what it would migrate, and without the setting that is nothing.
    for model in (WorkflowStepHistory, WorkflowStep, WorkflowRun, WorkflowVersion):
        model._default_manager.using(MIRROR).delete()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where our tables have a database of their own, tests that use a database use both."""
    for item in items if len(list(connections)) > 1 else ():
        given = item.get_closest_marker("django_db")
        if given is not None or {"db", "transactional_db"} & set(getattr(item, "fixturenames", ())):
            options = {**(given.kwargs if given else {}), "databases": "__all__"}
            item.add_marker(pytest.mark.django_db(*(given.args if given else ()), **options), append=False)


@pytest.fixture
def known_salt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every salt is the same, so that a key is derived once for all tests."""
    monkeypatch.setattr(envelope, "generate_kek_salt", lambda: SALT)


@pytest.fixture
def use_keys(settings: Settings, known_salt: None) -> Callable[..., None]:
    """Makes a key version current: `use_keys(2)`; and sets other settings beside it. It begins with version 1."""

    def use(version: int = 1, **others: Any) -> None:
        settings.PIKKU_STORAGE = {**settings.PIKKU_STORAGE, **keys_of_version(version), **others}

    use()
    return use
