"""Servers of a test's own, on ports of their own: to be stopped, emptied and slowed down."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
import redis

from tests.integration.conftest import eventually

DEBIAN_POSTGRES = Path("/usr/lib/postgresql")


def missing(reason: str) -> None:
    """Skip the test, by name, or fail where PIKKU_REQUIRE_PROGRAMS=1 asks for all of them."""
    if os.environ.get("PIKKU_REQUIRE_PROGRAMS") == "1":
        pytest.fail(f"{reason}, and PIKKU_REQUIRE_PROGRAMS=1 asks for it", pytrace=False)
    pytest.skip(f"needs {reason}")


def program(name: str, *folders: Path) -> Path:
    """A program in one of these folders, or on the PATH."""
    for folder in folders:
        if (folder / name).is_file():
            return folder / name
    found = shutil.which(name)
    if found is None:
        missing(f"the program {name}")
    return Path(found or "")


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class PrivateRedis:
    """A Redis server. With `keeps` it writes everything down, and has it again when it comes back."""

    def __init__(self, folder: Path, *, keeps: bool) -> None:
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._command = [str(program("redis-server")), "--port", str(self.port), "--bind", "127.0.0.1"]
        self._command += ["--dir", str(folder), "--save", "", "--appendonly", "yes" if keeps else "no"]
        self._command += ["--appendfsync", "always"]
        self.start()

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL)
        eventually(self._answers, seconds=20, what="Redis answers")

    def _answers(self) -> bool:
        with redis.Redis.from_url(self.url) as client:
            try:
                return bool(client.ping())
            except redis.exceptions.ConnectionError:
                return False

    def flush(self) -> None:
        """Everything in it is gone."""
        with redis.Redis.from_url(self.url) as client:
            client.flushall()

    def kill(self) -> None:
        """It stops, without a goodbye."""
        self._process.kill()
        self._process.wait(10)


class PrivatePostgres:
    """A PostgreSQL server, with a database for each test.

    It never waits for the disk: what is tested is a crash of the server, not of the machine.
    """

    OPTIONS = ("fsync=off", "full_page_writes=off", "max_connections=60", "unix_socket_directories=", "autovacuum=off")

    def __init__(self, folder: Path) -> None:
        # It refuses to run as root.
        self._user = "postgres" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
        shutil.chown(folder, self._user)
        versions = sorted(DEBIAN_POSTGRES.glob("*/bin"), key=lambda path: int(path.parent.name), reverse=True)
        self._initdb, self._pg_ctl = (program(name, *versions) for name in ("initdb", "pg_ctl"))
        self._data = folder / "data"
        self._log = folder / "log"
        self.port = free_port()
        self._run(self._initdb, "-U", "postgres", "-A", "trust", "--no-sync", "-E", "UTF8", "--no-locale")
        options = " ".join(f"-c {option}" for option in (f"port={self.port}", *self.OPTIONS))
        self._run(self._pg_ctl, "start", "-w", "-o", options, "-l", self._log)

    def _run(self, tool: Path, *arguments: str | Path) -> None:
        done = subprocess.run(
            [tool, "-D", self._data, *arguments],
            user=self._user if os.geteuid() == 0 else None,
            cwd=self._data.parent,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, f"{tool.name}: {done.stderr}"

    def url(self, database: str) -> str:
        """The address of a database."""
        return f"postgres://postgres@127.0.0.1:{self.port}/{database}"

    def create(self, database: str) -> str:
        """An empty database; answers with its address."""
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{database}"')
        return self.url(database)

    def restart(self, mode: str) -> None:
        """`immediate` is a crash; `fast` ends all sessions, and writes everything down."""
        self._run(self._pg_ctl, "restart", "-w", "-m", mode, "-l", self._log)

    def stop(self) -> None:
        """For good."""
        self._run(self._pg_ctl, "stop", "-w", "-m", "immediate")


@contextmanager
def private_postgres() -> Iterator[PrivatePostgres]:
    """Until the block ends."""
    # Another user's server cannot get at pytest's folders.
    with tempfile.TemporaryDirectory(prefix="pikku-postgres-", ignore_cleanup_errors=True) as name:
        server = PrivatePostgres(Path(name))
        yield server
        server.stop()


class BadLine:
    """A proxy before a server; see `tests.chaos.proxy`."""

    def __init__(self, url: str, *, seed: int, delay: float = 0, cuts: float = 0) -> None:
        server = urlsplit(url)
        assert server.port is not None
        command = [sys.executable, "-m", "tests.chaos.proxy", "--host", str(server.hostname)]
        command += ["--port", str(server.port), "--seed", str(seed), "--delay", str(delay), "--cuts", str(cuts)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        port = self._process.stdout.readline().strip()
        login = server.netloc.rpartition("@")[0]
        self.url = server._replace(netloc=f"{login}@127.0.0.1:{port}" if login else f"127.0.0.1:{port}").geturl()

    def tell(self, what: str) -> None:
        """`cut`, `hold <seconds>`, `end`."""
        assert self._process.stdin is not None
        print(what, file=self._process.stdin, flush=True)

    def end(self) -> None:
        """Cut everything and be gone."""
        self._process.send_signal(signal.SIGKILL)
        self._process.communicate(timeout=10)
