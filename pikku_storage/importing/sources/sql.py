"""What the sources with SQL have in common. Names of tables and columns are the contract's, and quoted."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

from pikku_storage.importing.sources.base import Row, Source

FETCHED = 200
"""Rows that are fetched at a time."""


class SqlSource(Source):
    """Queries as text; a driver carries them out."""

    placeholder = "%s"

    @abstractmethod
    def query(self, text: str, parameters: Sequence[Any] = (), *, streams: bool = False) -> Iterator[Row]:
        """The rows that a query answers with; `streams` if there may be many."""

    def table(self, name: str) -> str:
        """The table as it stands in a query."""
        return quoted(name)

    def count(self, table: str) -> int:
        """See `Source.count`."""
        (row,) = self.query(f"SELECT count(*) AS rows FROM {self.table(table)}")  # noqa: S608 - names of the contract
        return int(row["rows"])

    def rows(self, table: str, order: Sequence[str]) -> Iterator[Row]:
        """See `Source.rows`."""
        columns = ", ".join(map(quoted, order))
        return self.query(f"SELECT * FROM {self.table(table)} ORDER BY {columns}", streams=True)  # noqa: S608

    def find(self, table: str, column: str, values: Sequence[Any], columns: Sequence[str]) -> list[Row]:
        """See `Source.find`."""
        if not values:
            return []
        selected, marks = ", ".join(map(quoted, columns)), ", ".join([self.placeholder] * len(values))
        text = f"SELECT {selected} FROM {self.table(table)} WHERE {quoted(column)} IN ({marks})"  # noqa: S608
        return list(self.query(text, values))


def quoted(name: str) -> str:
    """A name as it stands in a query."""
    return '"' + name.replace('"', '""') + '"'
