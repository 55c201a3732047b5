"""Nothing but the database: guarded UPDATEs of one row, each one a transaction, by one client."""

from __future__ import annotations

import sqlite3
import time
from abc import abstractmethod
from typing import Any

from benchmarks.django_project import prepare_database
from benchmarks.scenarios import COMMITS, Scenario
from benchmarks.systems.base import System

CREATE = "CREATE TABLE bench_raw (id integer PRIMARY KEY, number integer NOT NULL, status varchar(16) NOT NULL)"
INSERT = "INSERT INTO bench_raw (id, number, status) VALUES (1, 0, 'running')"
UPDATE = "UPDATE bench_raw SET number = {0}, status = {0} WHERE id = {0} AND status = {0} AND number = {0}"


class Raw(System):
    """What the raw systems share."""

    scenarios = (COMMITS,)
    rate = COMMITS
    _number = 0

    @abstractmethod
    def update(self, parameters: tuple[Any, ...]) -> int:
        """Commit the UPDATE; answers with the number of rows."""

    def run(self, scenario: Scenario) -> float:
        """See `System.run`."""
        update, number = self.update, self._number
        begun = time.perf_counter()
        for _ in range(scenario.steps):
            if update((number + 1, "running", 1, "running", number)) != 1:
                raise RuntimeError("the guard did not hold")
            number += 1
        seconds = time.perf_counter() - begun
        self._number = number
        return seconds


class RawPsycopg(Raw):
    """psycopg alone; it prepares the statement on the server."""

    name = "raw-psycopg"
    title = "raw commits, psycopg"
    packages = ("psycopg",)

    def versions(self) -> dict[str, str]:
        """See `System.versions`."""
        return {**super().versions(), "PostgreSQL": self.environment.postgres_version()}

    def setup(self) -> None:
        """See `System.setup`."""
        import psycopg

        self._connection = psycopg.connect(self.environment.create_database("raw"), autocommit=True)
        self._connection.execute(CREATE)
        self._connection.execute(INSERT)
        self._update = UPDATE.format("%s").encode()

    def update(self, parameters: tuple[Any, ...]) -> int:
        """See `Raw.update`."""
        return self._connection.execute(self._update, parameters).rowcount

    def teardown(self) -> None:
        """See `System.teardown`."""
        if hasattr(self, "_connection"):
            self._connection.close()


class RawSqlite3(Raw):
    """The sqlite3 module alone, in WAL mode with `synchronous=NORMAL`, as our example project sets it."""

    name = "raw-sqlite3"
    title = "raw commits, sqlite3"
    file = "raw.sqlite3"

    def versions(self) -> dict[str, str]:
        """See `System.versions`."""
        return {"SQLite": sqlite3.sqlite_version}

    def setup(self) -> None:
        """See `System.setup`."""
        self._connection = sqlite3.connect(self.environment.directory / self.file, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=NORMAL")
        self._connection.execute(CREATE)
        self._connection.execute(INSERT)
        self._update = UPDATE.format("?")

    def update(self, parameters: tuple[Any, ...]) -> int:
        """See `Raw.update`."""
        return self._connection.execute(self._update, parameters).rowcount

    def teardown(self) -> None:
        """See `System.teardown`."""
        if hasattr(self, "_connection"):
            self._connection.close()


class RawDjango(Raw):
    """SQL text through a cursor of Django's connection: what an application on Django can reach."""

    alias: str
    packages = ("Django",)

    def setup(self) -> None:
        """See `System.setup`."""
        prepare_database(self.environment, self.alias)
        from django.db import connections

        self._connection = connections[self.alias]
        with self._connection.cursor() as cursor:
            cursor.execute(CREATE)
            cursor.execute(INSERT)
        self._update = UPDATE.format("%s")

    def update(self, parameters: tuple[Any, ...]) -> int:
        """See `Raw.update`."""
        with self._connection.cursor() as cursor:
            cursor.execute(self._update, parameters)
            return int(cursor.rowcount)


class RawDjangoPostgresql(RawDjango):
    """On PostgreSQL."""

    name = "raw-django-postgresql"
    title = "raw commits, Django on PostgreSQL"
    alias = "default"


class RawDjangoSqlite(RawDjango):
    """On SQLite."""

    name = "raw-django-sqlite"
    title = "raw commits, Django on SQLite"
    alias = "sqlite"
