"""What every test may use: the servers that a test asks for by name, and the environment of processes it starts."""

import os
from collections.abc import Iterator

import pytest
from django.core.management.color import Style
from django.db import connection
from django.db.backends.postgresql.operations import DatabaseOperations


@pytest.fixture(scope="session", autouse=True)
def _quick_flush() -> Iterator[None]:
    """Between two tests PostgreSQL deletes the few rows there are; truncating all tables takes it a quarter of a second
    each time."""

    def sql_flush(self: DatabaseOperations, style: Style, tables: list[str], **options: bool) -> list[str]:
        return [f"DELETE FROM {self.quote_name(table)}" for table in tables]  # noqa: S608

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DatabaseOperations, "sql_flush", sql_flush)
        yield


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
    """The environment for a process that shall work on this test's database, say a Celery worker."""
    database = connection.settings_dict
    if connection.vendor == "sqlite":
        url = f"sqlite:///{database['NAME']}"
    else:
        scheme, port = ("mysql", 3306) if connection.vendor == "mysql" else ("postgres", 5432)
        login = ":".join(filter(None, [database["USER"], database["PASSWORD"]]))
        url = f"{scheme}://{login}@{database['HOST']}:{database['PORT'] or port}/{database['NAME']}"
    return {**os.environ, "DJANGO_SETTINGS_MODULE": "example_project.settings", "DATABASE_URL": url}
