"""A small vocabulary for writes that belong together.

Names of columns are the model's attribute names (`id`, `run_id`, `status`). A condition's value means: `None` is null;
a list or tuple is any of these; `Expired`, `OrNull` and `NOT_NULL` say what they mean; anything else is equal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any, Final, TypeAlias

from django.db.models import Model

Conditions: TypeAlias = Mapping[str, Any]
Values: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Expired:
    """Condition: the column's time is null or not after `at`."""

    at: datetime


@dataclass(frozen=True, slots=True)
class OrNull:
    """Condition: the column is null or equals `value`."""

    value: Any


class NotNull(Enum):
    """See `NOT_NULL`."""

    NOT_NULL = 0


NOT_NULL: Final = NotNull.NOT_NULL
"""Condition: the column is not null."""


class Absent(Enum):
    """See `ABSENT`."""

    ABSENT = 0


ABSENT: Final = Absent.ABSENT
"""Value of an `Update`: null, and on MongoDB no field at all, for what the contract has so."""


@dataclass(frozen=True, slots=True)
class KeepOr:
    """Value: what the column holds, or `value` where it is null."""

    value: int


@dataclass(frozen=True, slots=True)
class Guard:
    """Holds if a row of `model` meets `where`; changes nothing."""

    model: type[Model]
    where: Conditions


@dataclass(frozen=True, slots=True)
class Insert:
    """A new row of `model`. A duplicate key raises `IntegrityError`."""

    model: type[Model]
    values: Values


@dataclass(frozen=True, slots=True)
class InsertMany:
    """New rows of `model`: the values of `common` in each of them, and those of one of the `rows`, which all have the
    same columns. There is at least one. A duplicate key raises `IntegrityError`."""

    model: type[Model]
    common: Values
    rows: Sequence[Values]


@dataclass(frozen=True, slots=True)
class Update:
    """Sets `values` on the rows of `model` that meet `where`."""

    model: type[Model]
    where: Conditions
    values: Values


@dataclass(frozen=True, slots=True)
class Swap:
    """One row of `Engine.swap`: what a column of it was seen to hold, and what it gets if it still does. Texts, as they
    are stored; all rows of a call get the same columns."""

    pk: Any
    seen: str
    values: Mapping[str, str]


def columns_of(swaps: Sequence[Swap]) -> tuple[str, ...]:
    """The columns that all of them set. Raises `ValueError` if they are not the same ones."""
    columns = tuple(swaps[0].values)
    if any(swap.values.keys() != set(columns) for swap in swaps):
        raise ValueError("All rows of a call get the same columns")
    return columns


@dataclass(frozen=True, slots=True)
class Delete:
    """Removes the rows of `model` that meet `where`."""

    model: type[Model]
    where: Conditions


@dataclass(frozen=True, slots=True)
class Merge:
    """What `Engine.merge_json_key` is told; it stands alone."""

    model: type[Model]
    id: str
    field: str
    key: str
    value: Any
    at: datetime


Operation: TypeAlias = Guard | Insert | InsertMany | Update | Delete
