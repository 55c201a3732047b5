"""SQLite, of both flavours: with the serialize plugin, which keeps booleans as text, and without it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pikku_storage.importing.sources.base import Row, SourceError
from pikku_storage.importing.sources.sql import FETCHED, SqlSource


class SqliteSource(SqlSource):
    """A file, opened for reading only."""

    kind = "SQLite"
    placeholder = "?"

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise SourceError(f"There is no file {path}")
        try:
            self._connection = sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)
        except sqlite3.Error as error:
            raise SourceError(f"{path} cannot be opened: {error}") from error
        self._connection.row_factory = sqlite3.Row
        # What is no UTF-8 must cost its own row, not the query.
        self._connection.text_factory = lambda text: text.decode("utf-8", "surrogateescape")

    def tables(self) -> frozenset[str]:
        """See `Source.tables`."""
        return frozenset(row["name"] for row in self.query("SELECT name FROM sqlite_master WHERE type = 'table'"))

    def query(self, text: str, parameters: Sequence[Any] = (), *, streams: bool = False) -> Iterator[Row]:
        """See `SqlSource.query`."""
        try:
            with closing(self._connection.cursor()) as cursor:
                cursor.execute(text, parameters)
                while rows := cursor.fetchmany(FETCHED):
                    yield from map(dict, rows)
        except sqlite3.Error as error:
            raise SourceError(f"SQLite: {error}") from error

    def find(self, table: str, column: str, values: Sequence[Any], columns: Sequence[str]) -> list[Row]:
        """See `Source.find`. A text that is no UTF-8 cannot be asked for; its row is a bad one anyway."""
        return super().find(table, column, [value for value in values if _can_be_asked_for(value)], columns)

    def close(self) -> None:
        """See `Source.close`."""
        self._connection.close()


def _can_be_asked_for(value: Any) -> bool:
    try:
        str(value).encode()
    except UnicodeEncodeError:
        return False
    return True
