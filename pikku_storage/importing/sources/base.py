"""The interface of a source."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Self, TypeAlias

Row: TypeAlias = dict[str, Any]
"""A row as it is stored, by the names of the contract's columns in SQL, also where it is a document."""


class SourceError(Exception):
    """The source cannot be read: it is not there, or broke off."""


class Source(ABC):
    """A database that is read, and never changed. What a driver raises is raised as `SourceError`."""

    kind: str
    """The name of its kind, for people."""
    json_is_text = True
    """Whether JSON is kept as text."""

    @abstractmethod
    def tables(self) -> frozenset[str]:
        """The contract's names of the tables that it has."""

    @abstractmethod
    def count(self, table: str) -> int:
        """How many rows there are."""

    @abstractmethod
    def rows(self, table: str, order: Sequence[str]) -> Iterator[Row]:
        """All rows in that order, one after the other: however many there are, few are in memory."""

    @abstractmethod
    def find(self, table: str, column: str, values: Sequence[Any], columns: Sequence[str]) -> list[Row]:
        """These columns of the rows whose `column` has one of the values, at most some hundreds."""

    @abstractmethod
    def close(self) -> None:
        """Give back what it holds."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
