"""PostgreSQL. All tables are read as they are at one moment, however long it takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import psycopg
from psycopg.rows import dict_row
from psycopg.types.string import TextLoader

from pikku_storage.importing.sources.base import Row, SourceError
from pikku_storage.importing.sources.sql import FETCHED, SqlSource, quoted

_AS_TEXT = ("timestamp", "timestamptz", "date", "json", "jsonb", "uuid")
"""Types whose values are read as the text that the server writes: a time that Python does not have, or JSON that is
none for us, must cost its own row and not the query."""


class PostgresqlSource(SqlSource):
    """One transaction that only reads. `schema` is where the tables are, by default the first of the search path."""

    kind = "PostgreSQL"

    def __init__(self, url: str, schema: str | None) -> None:
        try:
            self._connection = psycopg.connect(url, row_factory=dict_row, options="-c timezone=UTC")
        except psycopg.Error as error:
            # The message of a connection that failed has no password.
            raise SourceError(f"PostgreSQL: {error}") from None
        self._connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        self._connection.read_only = True
        for name in _AS_TEXT:
            self._connection.adapters.register_loader(name, TextLoader)
        self._schema = schema or next(self.query("SELECT current_schema() AS name"))["name"]

    def tables(self) -> frozenset[str]:
        """See `Source.tables`."""
        text = "SELECT table_name FROM information_schema.tables WHERE table_schema = %s"
        return frozenset(row["table_name"] for row in self.query(text, [self._schema]))

    def table(self, name: str) -> str:
        """See `SqlSource.table`."""
        return f"{quoted(self._schema)}.{quoted(name)}"

    def query(self, text: str, parameters: Sequence[Any] = (), *, streams: bool = False) -> Iterator[Row]:
        """See `SqlSource.query`."""
        try:
            # A cursor with a name is the server's, which sends what is fetched and no more.
            with self._connection.cursor(*(["rows"] if streams else [])) as cursor:
                cursor.execute(text, parameters)
                while rows := cursor.fetchmany(FETCHED):
                    yield from rows
        except psycopg.Error as error:
            raise SourceError(f"PostgreSQL: {error}") from error

    def close(self) -> None:
        """See `Source.close`."""
        self._connection.close()
