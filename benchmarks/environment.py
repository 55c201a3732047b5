"""The servers of one benchmark run, and everything that the run leaves on them until it is cleaned up.

Databases, Redis keys and files carry the id of the run, so that several runs on one machine never meet.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

POSTGRES_URL = "postgres://postgres@127.0.0.1:5432/postgres"
REDIS_URL = "redis://127.0.0.1:6379/9"


class MissingError(Exception):
    """Something a system needs is not here. The text says what."""


def _place(url: str) -> str:
    """Host and port of a URL, without the login."""
    parts = urlsplit(url)
    return f"{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname)


@dataclass(kw_only=True)
class Environment:
    """Where the benchmarks run. Use it as a context manager: leaving it removes what was made.

    `patience` is how many seconds a client lets pass before it first looks whether its run is over. Only the counting
    of statements sets it, where looking would be counted.
    """

    postgres_url: str = POSTGRES_URL
    redis_url: str = REDIS_URL
    workers: int = 2
    patience: float = 0.0
    run_id: str = field(default_factory=lambda: uuid.uuid4().hex[:10])
    _directory: Path | None = None
    _databases: dict[str, str] = field(default_factory=dict)

    @classmethod
    def from_environ(cls) -> Environment:
        """The servers that `BENCH_POSTGRES_URL` and `BENCH_REDIS_URL` name."""
        return cls(
            postgres_url=os.environ.get("BENCH_POSTGRES_URL", POSTGRES_URL),
            redis_url=os.environ.get("BENCH_REDIS_URL", REDIS_URL),
        )

    def __enter__(self) -> Environment:
        self._directory = Path(tempfile.mkdtemp(prefix="pikku-bench-"))
        return self

    @property
    def directory(self) -> Path:
        """A folder of this run's own, for database files and logs of workers; only inside the context manager."""
        if self._directory is None:
            raise RuntimeError("the environment has not been entered")
        return self._directory

    def __exit__(self, *exc_info: object) -> None:
        try:
            # A server that has gone away meanwhile keeps what is on it; the figures are there all the same.
            with contextlib.suppress(MissingError):
                self.drop_databases()
            self.remove_redis_keys()
        finally:
            shutil.rmtree(self.directory, ignore_errors=True)
            self._directory = None

    # -- PostgreSQL ----------------------------------------------------------------------------------------------------

    def database_url(self, label: str) -> str:
        """The URL of the database that `create_database(label)` makes."""
        return urlunsplit(
            urlsplit(self.postgres_url)._replace(scheme="postgresql", path=f"/{self._database_name(label)}")
        )

    def create_database(self, label: str) -> str:
        """Make a database of this run's own, once per label; answers with its URL.

        Raises `MissingError` without a server.
        """
        if label not in self._databases:
            self._administrate(f'CREATE DATABASE "{self._database_name(label)}"')
            self._databases[label] = self._database_name(label)
        return self.database_url(label)

    def drop_databases(self) -> None:
        """Drop what `create_database` made, also under clients that are still connected."""
        while self._databases:
            _, name = self._databases.popitem()
            self._administrate(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    def postgres_version(self) -> str:
        """Such as `15.18`."""
        return self._administrate("SHOW server_version").split()[0]

    def _database_name(self, label: str) -> str:
        return f"pikku_bench_{self.run_id}_{label}"

    def _administrate(self, statement: str) -> str:
        import psycopg

        url = urlunsplit(urlsplit(self.postgres_url)._replace(scheme="postgresql"))
        try:
            with psycopg.connect(url, autocommit=True, connect_timeout=5) as connection:
                cursor = connection.execute(statement.encode())
                return str((cursor.fetchone() or ("",))[0]) if cursor.description else ""
        except psycopg.OperationalError as error:
            # The error's own text has many lines, and the user's name in them.
            place = _place(self.postgres_url)
            raise MissingError(f"PostgreSQL does not answer at {place} ({type(error).__name__})") from None

    # -- Redis ---------------------------------------------------------------------------------------------------------

    @property
    def redis_prefix(self) -> str:
        """What the name of every Redis key of this run begins with."""
        return f"pikku-bench-{self.run_id}:"

    def redis_version(self) -> str:
        """Such as `7.0.15`; raises `MissingError` without a server."""
        try:
            import redis
        except ImportError:
            raise MissingError("the package redis is not installed (extra `bench`)") from None

        try:
            with redis.Redis.from_url(self.redis_url, socket_connect_timeout=5) as client:
                info = client.info("server")
        except redis.RedisError as error:
            raise MissingError(f"Redis does not answer at {_place(self.redis_url)} ({type(error).__name__})") from None
        return str(info["redis_version"])

    def remove_redis_keys(self) -> None:
        """Remove every key of this run; nothing to do without a server."""
        try:
            import redis
        except ImportError:
            return
        try:
            with redis.Redis.from_url(self.redis_url, socket_connect_timeout=5) as client:
                for key in client.scan_iter(match=f"{self.redis_prefix}*", count=1000):
                    client.delete(key)
        except redis.RedisError:
            return

    # -- what modules read that worker processes import ----------------------------------------------------------------

    def export(self) -> None:
        """Set the environment variables that the settings and applications of the measured systems read.

        They hold in this process and in those that are started from it.
        """
        os.environ.update(
            DJANGO_SETTINGS_MODULE="benchmarks.project.settings",
            BENCH_DJANGO_URL=self.database_url("django"),
            BENCH_SQLITE_FILE=str(self.directory / "bench.sqlite3"),
            BENCH_BROKER_URL=self.redis_url,
            BENCH_REDIS_PREFIX=self.redis_prefix,
            BENCH_PROCRASTINATE_URL=self.database_url("procrastinate"),
            BENCH_DIRECTORY=str(self.directory),
        )
