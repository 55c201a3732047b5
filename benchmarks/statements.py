"""Counting what a durable step costs the database, from outside of the systems that are counted.

On PostgreSQL a proxy reads the wire between the system (its client, and its workers) and the server; on SQLite the
connection's trace callback sees every statement. The cost of a step is the difference between a run of 100 and one of
10, by 90, so that what a run costs once does not count. It is done in a process of its own,
`python -m benchmarks.statements SYSTEM`, because nothing is timed there.
"""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from benchmarks.processes import ROOT
from benchmarks.scenarios import CHAIN_10, CHAIN_100

_NO_ENCRYPTION = (80877103, 80877104)
"""The start-up codes that ask for TLS and for GSSAPI encryption."""
_CONTROL = ("BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE", "START TRANSACTION")


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """What was sent. `statements` are without BEGIN and COMMIT; `round_trips` are None where there is no server."""

    statements: float
    transactions: float
    round_trips: float | None = None

    def rise_to(self, other: Count, steps: int = 1) -> Count:
        """How much more `other` is, for each of `steps` steps."""
        trips = None
        if self.round_trips is not None and other.round_trips is not None:
            trips = (other.round_trips - self.round_trips) / steps
        return Count(
            statements=(other.statements - self.statements) / steps,
            transactions=(other.transactions - self.transactions) / steps,
            round_trips=trips,
        )


def is_control(text: str) -> bool:
    """Whether a statement only begins or ends a transaction (or a part of one)."""
    return text.lstrip().upper().startswith(_CONTROL)


class Counter:
    """Adds up from many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._statements = self._transactions = self._round_trips = 0

    def statement(self, text: str) -> None:
        """A statement was sent."""
        if not is_control(text):
            with self._lock:
                self._statements += 1

    def transaction(self) -> None:
        """A transaction ended."""
        with self._lock:
            self._transactions += 1

    def round_trip(self) -> None:
        """The server answered and is ready for more."""
        with self._lock:
            self._round_trips += 1

    def read(self, *, server: bool = True) -> Count:
        """The sums so far."""
        with self._lock:
            trips = self._round_trips if server else None
            return Count(statements=self._statements, transactions=self._transactions, round_trips=trips)


class PostgresProxy:
    """Listens on a port of this machine and hands every connection on to the server, counting."""

    def __init__(self, url: str, counter: Counter) -> None:
        parts = urlsplit(url)
        self._server = (parts.hostname or "127.0.0.1", parts.port or 5432)
        self._counter = counter
        self._listener = socket.create_server(("127.0.0.1", 0))
        login = parts.netloc.rpartition("@")[0]
        place = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.url = urlunsplit(parts._replace(netloc=f"{login}@{place}" if login else place))
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def close(self) -> None:
        """Take no more connections."""
        self._listener.close()

    def _serve(self, client: socket.socket) -> None:
        try:
            start = self._start_message(client)
            server = socket.create_connection(self._server)
        except (OSError, EOFError):
            client.close()
            return
        for end in (client, server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        server.sendall(start)
        threading.Thread(target=_pump, args=(server, client, _Answers(self._counter).see), daemon=True).start()
        _pump(client, server, _Requests(self._counter).see)

    def _start_message(self, client: socket.socket) -> bytes:
        while True:
            head = _exactly(client, 8)
            length, code = struct.unpack("!II", head)
            rest = _exactly(client, length - 8)
            if code not in _NO_ENCRYPTION:
                return head + rest
            client.sendall(b"N")


class _Requests:
    """Counts the statements among a client's messages."""

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self._prepared: dict[bytes, str] = {}
        self._bound: dict[bytes, str] = {}

    def see(self, kind: bytes, body: bytes) -> None:
        """One message: Query, Parse, Bind or Execute are of interest."""
        if kind == b"Q":
            self._counter.statement(body.decode(errors="replace"))
        elif kind == b"P":
            name, text, _ = body.split(b"\0", 2)
            self._prepared[name] = text.decode(errors="replace")
        elif kind == b"B":
            portal, name, _ = body.split(b"\0", 2)
            self._bound[portal] = self._prepared.get(name, "")
        elif kind == b"E":
            self._counter.statement(self._bound.get(body.split(b"\0", 1)[0], ""))


class _Answers:
    """Counts round trips and ends of transactions among the server's messages."""

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self._is_logged_in = False
        self._has_completed = False

    def see(self, kind: bytes, body: bytes) -> None:
        """One message: CommandComplete and ReadyForQuery are of interest; the first of the latter ends the log-in."""
        if kind == b"C":
            self._has_completed = True
        if kind != b"Z":
            return
        if self._is_logged_in:
            self._counter.round_trip()
            # Preparing a statement is a round trip in which nothing is completed.
            if body == b"I" and self._has_completed:
                self._counter.transaction()
        self._is_logged_in, self._has_completed = True, False


def _exactly(source: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = source.recv(size - len(data))
        if not part:
            raise EOFError
        data += part
    return bytes(data)


def _pump(source: socket.socket, target: socket.socket, see: Any) -> None:
    """Hand bytes on, and whole messages to `see`, until one side is closed."""
    waiting = bytearray()
    try:
        while part := source.recv(1 << 16):
            waiting += part
            # Seen first: who has got an answer must find it counted.
            while len(waiting) >= 5 and len(waiting) > (length := struct.unpack("!I", waiting[1:5])[0]):
                see(bytes(waiting[:1]), bytes(waiting[5 : length + 1]))
                del waiting[: length + 1]
            target.sendall(part)
    except OSError:
        pass
    for end in (source, target):
        end.close()


def trace_sqlite(counter: Counter) -> None:
    """Count what the benchmarks' Django project does on SQLite."""
    from django.db import connections

    def see(text: str) -> None:
        counter.statement(text)
        if text.upper().startswith("COMMIT") or not (connection.in_transaction or is_control(text)):
            counter.transaction()

    connections["sqlite"].ensure_connection()
    connection = connections["sqlite"].connection
    connection.set_trace_callback(see)


def count_here(name: str) -> Count:
    """Set the system up in this process and count a durable step of it."""
    from benchmarks.environment import Environment
    from benchmarks.systems import BY_NAME

    counter = Counter()
    environment = Environment.from_environ()
    proxy = None
    uses_sqlite = name.endswith("sqlite")
    if not uses_sqlite:
        proxy = PostgresProxy(environment.postgres_url, counter)
        environment.postgres_url = proxy.url
    with environment:
        environment.export()
        system = BY_NAME[name](environment)
        try:
            system.setup()
            if uses_sqlite:
                trace_sqlite(counter)
            # Twice, so that what is done once per process (and per worker) has been done.
            system.run(CHAIN_10)
            system.run(CHAIN_10)
            environment.patience = 1.5
            counts = [counter.read(server=not uses_sqlite)]
            for scenario in (CHAIN_10, CHAIN_100):
                system.run(scenario)
                time.sleep(0.2)
                counts.append(counter.read(server=not uses_sqlite))
            short, long = counts[0].rise_to(counts[1]), counts[1].rise_to(counts[2])
            return short.rise_to(long, CHAIN_100.steps - CHAIN_10.steps)
        finally:
            system.teardown()


def count(name: str, timeout: float = 90.0) -> Count:
    """Count in a process of its own; raises `RuntimeError` with the end of what it said if that fails."""
    command = [sys.executable, "-m", "benchmarks.statements", name]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            answer, complaint = process.communicate(timeout=timeout)
        except BaseException:
            # It has workers and databases of its own to see to, so it is asked and not killed.
            process.terminate()
            process.wait(timeout=30)
            raise
    if process.returncode:
        lines = complaint.strip().splitlines()
        raise RuntimeError(lines[-1] if lines else f"exit code {process.returncode}")
    return Count(**json.loads(answer.splitlines()[-1]))


if __name__ == "__main__":
    from benchmarks.cli import end_on_signals

    end_on_signals()
    print(json.dumps(asdict(count_here(sys.argv[1]))))
