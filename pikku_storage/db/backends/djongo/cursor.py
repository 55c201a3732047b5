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

    def execute(self, sql: str, params: Any = None) -> None:
        """See the database API."""
        _translated(lambda: super(Cursor, self).execute(sql, params))

    def fetchone(self) -> Any:
        """See the database API."""
        return _translated(super().fetchone)

    def fetchmany(self, size: int = 1) -> list[Any]:
        """See the database API."""
        return _translated(lambda: super(Cursor, self).fetchmany(size))

    def fetchall(self) -> list[Any]:
        """See the database API."""
        return _translated(super().fetchall)

    def close(self) -> None:
        """See the database API. What djongo closes is what it counted the rows of, which may be gone."""


def _translated(call: Callable[[], T]) -> T:
    try:
        return call()
    except (database.DatabaseError, SQLDecodeError, PyMongoError) as error:
        raise _as_told(error) from error


def _as_told(error: BaseException) -> Exception:
    told = next((each for each in _causes(error) if isinstance(each, PyMongoError)), None)
    if told is None:
        text = next((str(each) for each in _causes(error) if str(each)), "")
        return database.NotSupportedError(f"djongo cannot do this: {text}")
    if isinstance(told, DuplicateKeyError) or (isinstance(told, BulkWriteError) and _is_duplicate(told)):
        return database.IntegrityError(str(told))
    is_away = isinstance(told, ConnectionFailure)
    return (database.OperationalError if is_away else database.DatabaseError)(str(told))


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _is_duplicate(error: BulkWriteError) -> bool:
    return all(found.get("code") == _DUPLICATE_KEY for found in (error.details or {}).get("writeErrors", [{}]))
