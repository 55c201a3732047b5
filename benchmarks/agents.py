"""What agents cost when much is stored: reading the end and the middle of a thread, saving a message, lists of threads.

Each figure stands beside the same with little stored, or beside raw SQL that does the same work.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.comparison import Comparison
from benchmarks.django_project import prepare_database
from benchmarks.environment import Environment

FEW = 1_000
MANY = 1_000_000
MANY_QUICKLY = 100_000
THREADS = 10_000
OWNERS = 200
"""Who have them, each as many as a page; another one has a lot."""
BUSY = 2_000
PAGE = 50
GROWTH = 1.2
_MESSAGES = 10
"""Of each of these threads, beside a run."""
_GOES = 40
_SAVES = 100
_FEW_GOES = 7
_TABLES = ("agent_run_score", "agent_tool_call", "agent_run", "agent_message", "agent_threads")
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Dialect:
    """How an engine makes rows of numbers."""

    numbers: str
    identity: str
    time: str
    vacuum: str

    def rows(self, count: int) -> str:
        """So many rows with a column `number`, from 1."""
        return self.numbers.format(count=count)


POSTGRESQL = Dialect(
    numbers="generate_series(1, {count}) AS number",
    identity="lpad(number::text, 30, '0')",
    time="timestamptz '2026-01-01 00:00:00+00' + number * interval '1 second'",
    vacuum="VACUUM ANALYZE",
)
SQLITE = Dialect(
    numbers="(WITH RECURSIVE counted(number) AS (SELECT 1 UNION ALL SELECT number + 1 FROM counted"
    " WHERE number < {count}) SELECT number FROM counted)",
    identity="printf('%030d', number)",
    time="datetime('2026-01-01', number || ' seconds')",
    vacuum="ANALYZE",
)


def of_agents(environment: Environment, alias: str, say: Say, *, many: int = MANY) -> Iterator[Comparison]:
    """All comparisons on the database behind `alias`. Raises `MissingError` without a server."""
    prepare_database(environment, alias)
    from django.db import connections

    from pikku_storage.agents.runs import AgentRunService
    from pikku_storage.agents.service import AgentStorageService

    engine, dialect = ("PostgreSQL", POSTGRESQL) if alias == "default" else ("SQLite", SQLITE)
    connection = connections[alias]
    storage, lists, raw = AgentStorageService(alias), AgentRunService(alias), Raw(connection)
    say(f"storing a thread of {many:,} messages, and {THREADS:,} threads ({alias})")
    _store(connection, dialect, many)
    say(f"reading and saving messages ({alias})")
    sizes = f"a thread of {FEW:,} messages, of {many:,}"
    middle = [f"{thread}-{count // 2:030}" for thread, count in (("few", FEW), ("many", many))]
    yield _comparison(
        f"the last {PAGE} messages, {engine}: {sizes}",
        lambda: storage.get_messages("few", last_n=PAGE),
        lambda: storage.get_messages("many", last_n=PAGE),
    )
    yield _comparison(
        f"the {PAGE} messages before the middle, {engine}: {sizes}",
        lambda: storage.get_messages("few", last_n=PAGE, cursor=middle[0]),
        lambda: storage.get_messages("many", last_n=PAGE, cursor=middle[1]),
    )
    yield _comparison(
        f"the last {PAGE} of {many:,} messages, {engine}: raw SQL, the service",
        lambda: raw.last("many"),
        lambda: storage.get_messages("many", last_n=PAGE),
        goal=None,
    )
    yield _comparison(
        f"saving a message, {engine}: {sizes}",
        lambda: storage.save_messages("few", [{"role": "user", "content": "hello"}]),
        lambda: storage.save_messages("many", [{"role": "user", "content": "hello"}]),
        goes=_SAVES,
    )
    yield _comparison(
        f"saving a message, {engine}: raw SQL, the service",
        lambda: raw.save("many"),
        lambda: storage.save_messages("many", [{"role": "user", "content": "hello"}]),
        goes=_SAVES,
        goal=None,
    )
    say(f"lists of threads ({alias})")
    yield _comparison(
        f"{PAGE} of {THREADS:,} threads with totals, {engine}: raw SQL, the service",
        lambda: raw.threads("owner 7"),
        lambda: _threads(lists, "owner 7"),
        goal=None,
    )
    yield _comparison(
        f"the totals of one thread, {engine}: {sizes}",
        lambda: lists.get_totals(["few"]),
        lambda: lists.get_totals(["many"]),
        goes=_FEW_GOES,
        goal=None,
    )
    yield _comparison(
        f"{PAGE} threads with totals, {engine}: of an owner with {PAGE}, with {BUSY:,}",
        lambda: _threads(lists, "owner 7"),
        lambda: _threads(lists, "busy"),
        goal=None,
    )


def _threads(lists: Any, owner: str) -> object:
    threads = lists.list_threads(owners=[owner], limit=PAGE)
    if len(threads) != PAGE:
        raise RuntimeError(f"{owner} has {len(threads)} threads")
    return lists.get_totals(thread.id for thread in threads)


def _comparison(
    title: str,
    first: Callable[[], object],
    second: Callable[[], object],
    *,
    goes: int = _GOES,
    goal: float | None = GROWTH,
) -> Comparison:
    """The shortest of the times of each: what else the machine does can only make them longer."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(goes):
        for work, taken in zip((first, second), times, strict=True):
            begun = time.perf_counter()
            work()
            taken.append(time.perf_counter() - begun)
    return Comparison(title=title, unit="ms", first=min(times[0]) * 1000, second=min(times[1]) * 1000, goal=goal)


class Raw:
    """The same work, as somebody would write it by hand."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self._saved = 0

    def last(self, thread_id: str) -> list[Any]:
        """The last messages of a thread with their calls."""
        with self.connection.cursor() as cursor:
            cursor.execute(
                "SELECT id, role, content, created_at FROM agent_message WHERE thread_id = %s"
                " ORDER BY created_at DESC, place DESC, id DESC LIMIT %s",
                [thread_id, PAGE],
            )
            rows: list[Any] = cursor.fetchall()
            self._in(
                cursor, "SELECT id, tool_name, args, result FROM agent_tool_call WHERE message_id", [r[0] for r in rows]
            )
        return rows

    def save(self, thread_id: str) -> None:
        """One message, unless it is there, and the thread's time."""
        from django.db import transaction
        from django.utils.timezone import now

        self._saved += 1
        message_id = f"raw {self._saved}"
        with self.connection.cursor() as cursor:
            cursor.execute("SELECT thread_id, role, content FROM agent_message WHERE id = %s", [message_id])
            with transaction.atomic(using=self.connection.alias):
                cursor.execute("UPDATE agent_threads SET updated_at = %s WHERE id = %s", [now(), thread_id])
                cursor.execute(
                    "INSERT INTO agent_message (id, thread_id, role, content, created_at) VALUES (%s, %s, %s, %s, %s)",
                    [message_id, thread_id, "user", '"hello"', now()],
                )

    def threads(self, owner: str) -> None:
        """A page of threads of an owner and of its partitions, and what they come to."""
        with self.connection.cursor() as cursor:
            cursor.execute(
                "SELECT id, resource_id, title, metadata, created_at, updated_at FROM agent_threads"
                " WHERE resource_id = %s OR (resource_id >= %s AND resource_id < %s)"
                " ORDER BY updated_at DESC, id DESC LIMIT %s",
                [owner, f"{owner}:", f"{owner};", PAGE],
            )
            ids = [row[0] for row in cursor.fetchall()]
            for columns, table, condition in (
                ("count(*)", "agent_message", ""),
                ("count(*), sum(usage_input_tokens), sum(usage_output_tokens)", "agent_run", ""),
                ("count(*)", "agent_tool_call", "approval_status = 'pending' AND "),
            ):
                begin = f"SELECT thread_id, {columns} FROM {table} WHERE {condition}thread_id"
                self._in(cursor, begin, ids, " GROUP BY thread_id")

    def _in(self, cursor: Any, begin: str, values: list[Any], end: str = "") -> list[Any]:
        cursor.execute(f"{begin} IN ({', '.join(['%s'] * len(values))}){end}", values)
        found: list[Any] = cursor.fetchall()
        return found


def _store(connection: Any, dialect: Dialect, many: int) -> None:
    with connection.cursor() as cursor:
        for table in _TABLES:
            cursor.execute(f"DELETE FROM {table}")
        for thread_id, count in (("few", FEW), ("many", many)):
            cursor.execute(
                "INSERT INTO agent_threads (id, resource_id, created_at, updated_at)"
                f" SELECT '{thread_id}', 'ada', {dialect.time}, {dialect.time} FROM {dialect.rows(1)}"
            )
            _store_messages(cursor, dialect, f"'{thread_id}-' || {dialect.identity}", f"'{thread_id}'", count)
        for name, owner, count in (("of many", f"'owner ' || (number % {OWNERS})", THREADS), ("busy", "'busy'", BUSY)):
            thread_id = f"'{name}-' || {dialect.identity}"
            cursor.execute(
                "INSERT INTO agent_threads (id, resource_id, created_at, updated_at)"
                f" SELECT {thread_id}, {owner}, {dialect.time}, {dialect.time} FROM {dialect.rows(count)}"
            )
            cursor.execute(
                "INSERT INTO agent_run (run_id, agent_name, thread_id, resource_id, status, usage_input_tokens,"
                " usage_output_tokens, usage_model, created_at, updated_at)"
                f" SELECT {thread_id}, 'helper', {thread_id}, {owner}, 'completed', 10, 10, 'm', {dialect.time},"
                f" {dialect.time} FROM {dialect.rows(count)}"
            )
            for number in range(_MESSAGES):
                _store_messages(cursor, dialect, f"'{name}-{number}-' || {dialect.identity}", thread_id, count)
        # What the database does by itself after a while.
        for table in _TABLES if dialect is POSTGRESQL else ("",):
            cursor.execute(f"{dialect.vacuum} {table}")


def _store_messages(cursor: Any, dialect: Dialect, message_id: str, thread_id: str, count: int) -> None:
    cursor.execute(
        "INSERT INTO agent_message (id, thread_id, role, content, created_at, place)"
        f" SELECT {message_id}, {thread_id}, 'user', '\"hello, this is a message of some words\"', {dialect.time},"
        f" {dialect.identity} FROM {dialect.rows(count)}"
    )
