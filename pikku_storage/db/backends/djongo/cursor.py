"""A cursor whose errors are those of the database API."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from djongo import cursor, database
from djongo.exceptions import SQLDecodeError
from pymongo.errors import BulkWriteError, ConnectionFailure, DuplicateKeyError, PyMongoError

T = TypeVar("T")

_DUPLICATE_KEY = 11000


class Cursor(cursor.Cursor):
    """Runs SQL that djongo translates. What it cannot translate raises `NotSupportedError`."""

    _sql = ""

    def execute(self, sql: str, params: Any = None) -> None:
        """See the database API."""
        self._sql = sql
        self._translated(lambda: super(Cursor, self).execute(sql, params))

    def fetchone(self) -> Any:
        """See the database API."""
        return self._translated(super().fetchone)

    def fetchmany(self, size: int = 1) -> list[Any]:
        """See the database API."""
        return self._translated(lambda: super(Cursor, self).fetchmany(size))

    def fetchall(self) -> list[Any]:
        """See the database API."""
        return self._translated(super().fetchall)

    def close(self) -> None:
        """See the database API. What djongo closes is what it counted the rows of, which may be gone."""

    def _translated(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except (database.DatabaseError, SQLDecodeError, PyMongoError) as error:
            told = next((each for each in _causes(error) if isinstance(each, PyMongoError)), None)
            # djongo's own errors tell the parameters, which are nobody's business.
            raise (self._refused() if told is None else _as_told(told)) from told

    def _refused(self) -> Any:
        return database.NotSupportedError(f"djongo cannot translate this: {self._sql}")


def _as_told(error: PyMongoError) -> Any:
    if isinstance(error, DuplicateKeyError) or (isinstance(error, BulkWriteError) and _is_duplicate(error)):
        return database.IntegrityError(str(error))
    is_away = isinstance(error, ConnectionFailure)
    return (database.OperationalError if is_away else database.DatabaseError)(str(error))


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _is_duplicate(error: BulkWriteError) -> bool:
    return all(found.get("code") == _DUPLICATE_KEY for found in (error.details or {}).get("writeErrors", [{}]))
