"""A database that fails at one statement, in the ways databases do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Literal

from django.db import OperationalError, connection

Way = Literal["refused", "dropped", "unanswered", "down"]
WAYS: tuple[Way, ...] = ("refused", "dropped", "unanswered", "down")
"""`refused`: the statement is not carried out. `dropped`: nor is any other on this connection. `unanswered`: it is, but
its answer is lost with the connection. `down`: neither that nor any later statement is, on any connection."""


class Failing:
    """Makes the statement numbered `at` (from 1) of this thread fail; a COMMIT counts as one. See `Way`.

    `with failing(3, "refused") as failing: …` ends with what the block raised, if that came of it: `failing.reached` is
    the statement that failed, or `None` if there were fewer.
    """

    def __init__(self, at: int, way: Way) -> None:
        self.at = at
        self.way = way
        self.count = 0
        self.reached: str | None = None
        self._dropped: Any = None

    @contextmanager
    def here(self) -> Iterator[Failing]:
        """Fail inside the block, and swallow what comes of it, as a worker does that goes on to its next message."""
        wrapper: Any = connection
        commit = wrapper._commit
        with connection.execute_wrapper(self._execute), _attribute(wrapper, "_commit", lambda: self._commit(commit)):
            try:
                yield self
            except OperationalError as error:
                if "no such luck" not in str(error):
                    raise
        if self.way != "refused":
            # Between two messages a worker leaves connections behind that are of no use.
            connection.close()

    def _execute(self, execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        return self._carry_out(lambda: execute(sql, params, many, context), sql)

    def _commit(self, commit: Callable[[], None]) -> None:
        self._carry_out(commit, "COMMIT")

    def _carry_out(self, work: Callable[[], Any], sql: str) -> Any:
        self.count += 1
        if self.count == self.at:
            self.reached = sql
            self._dropped = connection.connection
            if self.way == "unanswered":
                work()
            raise OperationalError(f"no such luck: {sql[:80]}")
        if self.reached is not None and (self.way == "down" or self._is_dropped()):
            raise OperationalError(f"no such luck either: {sql[:80]}")
        return work()

    def _is_dropped(self) -> bool:
        return self.way != "refused" and connection.connection is self._dropped


def failing(at: int, way: Way) -> AbstractContextManager[Failing]:
    """`Failing(at, way).here()`."""
    return Failing(at, way).here()


@contextmanager
def _attribute(thing: Any, name: str, value: Any) -> Iterator[None]:
    setattr(thing, name, value)
    try:
        yield
    finally:
        delattr(thing, name)
