"""A database that fails at one statement, in the ways databases do."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Literal

import pytest
from django.db import DatabaseError, OperationalError

from tests.conformance.support import connection

try:
    from pymongo.collection import Collection
    from pymongo.database import Database
    from pymongo.errors import AutoReconnect
except ImportError:
    COMMANDS: dict[type, tuple[str, ...]] = {}
else:
    COMMANDS = {
        Collection: (
            *("aggregate", "find", "find_one", "insert_one", "insert_many"),
            *("update_one", "update_many", "delete_many"),
        ),
        Database: ("command",),
    }

Way = Literal["refused", "dropped", "unanswered", "down"]
WAYS: tuple[Way, ...] = ("refused", "dropped", "unanswered", "down")
"""`refused`: the statement is not carried out. `dropped`: nor is any other on this connection. `unanswered`: it is, but
its answer is lost with the connection. `down`: neither that nor any later statement is, on any connection."""


class Failing:
    """Makes the statement numbered `at` (from 1) of this thread fail; a COMMIT counts as one. See `Way`.

    `with failing(3, "refused") as failing: …` ends with what the block raised, if that came of it: `failing.reached` is
    the statement that failed, or `None` if there were fewer.
    """

    def __init__(self, at: int, way: Way, on: Any) -> None:
        self.at = at
        self.way = way
        self.connection = on
        self.count = 0
        self.reached: str | None = None
        self._dropped: Any = None

    @contextmanager
    def here(self) -> Iterator[Failing]:
        """Fail inside the block, and swallow what comes of it, as a worker does that goes on to its next message."""
        is_documents = self.connection.vendor == "mongodb"
        with documents_hook(self._carry_out) if is_documents else sql_hook(self._carry_out, self.connection):
            try:
                yield self
            except DatabaseError as error:
                # A read on MongoDB fails with an error that has a cause and no text.
                if "no such luck" not in f"{error} {error.__cause__}":
                    raise
        if self.way != "refused":
            # Between two messages a worker leaves connections behind that are of no use.
            self.connection.close()

    def _carry_out(self, work: Callable[[], Any], sql: str) -> Any:
        self.count += 1
        if self.count == self.at:
            self.reached = sql
            self._dropped = self.connection.connection
            if self.way == "unanswered":
                work()
            raise self._broken(f"no such luck: {sql[:80]}")
        if self.reached is not None and (self.way == "down" or self._is_dropped()):
            raise self._broken(f"no such luck either: {sql[:80]}")
        return work()

    def _is_dropped(self) -> bool:
        # MongoDB's driver takes another connection by itself.
        is_documents = self.connection.vendor == "mongodb"
        return self.way != "refused" and not is_documents and self.connection.connection is self._dropped

    def _broken(self, text: str) -> Exception:
        """What the driver says of a connection that broke; Django's own error where that is what its cursor would
        raise."""
        return AutoReconnect(text) if self.connection.vendor == "mongodb" else OperationalError(text)


def failing(at: int, way: Way, on: Any = connection) -> AbstractContextManager[Failing]:
    """`Failing(at, way, on).here()`; `on` is the connection."""
    return Failing(at, way, on).here()


CarryOut = Callable[[Callable[[], Any], str], Any]


@contextmanager
def sql_hook(carry_out: CarryOut, wrapper: Any) -> Iterator[None]:
    """Every statement of this thread on that connection goes through `carry_out(work, text)`, and every COMMIT."""
    commit = wrapper._commit

    def execute(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        return carry_out(lambda: execute(sql, params, many, context), sql)

    with wrapper.execute_wrapper(execute), pytest.MonkeyPatch.context() as patch:
        patch.setattr(wrapper, "_commit", lambda: carry_out(commit, "COMMIT"), raising=False)
        yield


@contextmanager
def documents_hook(carry_out: CarryOut) -> Iterator[None]:
    """Every command of this thread to MongoDB goes through `carry_out(work, text)`."""
    thread, inside = threading.get_ident(), False

    def hooked(method: Callable[..., Any], name: str) -> Callable[..., Any]:
        def call(target: Any, *args: Any, **options: Any) -> Any:
            nonlocal inside
            # One of the driver's methods may be made of another.
            if inside or threading.get_ident() != thread:
                return method(target, *args, **options)
            inside = True
            try:
                return carry_out(lambda: method(target, *args, **options), f"{target.name}.{name}{args}")
            finally:
                inside = False

        return call

    with pytest.MonkeyPatch.context() as patch:
        for kind, names in COMMANDS.items():
            for name in names:
                patch.setattr(kind, name, hooked(getattr(kind, name), name))
        yield
