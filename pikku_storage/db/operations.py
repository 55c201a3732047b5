"""A small vocabulary for writes that belong together.

Names of columns are the model's attribute names (`id`, `run_id`, `status`). A condition's value means: `None` is null;
a list or tuple is any of these; `Expired` and `OrNull` say what they mean; anything else is equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias

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
class Update:
    """Sets `values` on the rows of `model` that meet `where`."""

    model: type[Model]
    where: Conditions
    values: Values


Operation: TypeAlias = Guard | Insert | Update
