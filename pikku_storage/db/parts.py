"""Pieces of JSON columns, read without the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from pikku_storage.db.operations import Conditions


@dataclass(frozen=True, slots=True)
class Part:
    """What an object in the JSON `column` has under `key`, as text: a text itself, anything else as JSON, `None` where
    there is nothing. Of a longer text, the first `most` characters.

    It is `None` in rows that do not meet `where`, which is of columns that equal something or are null.
    """

    column: str
    key: str
    where: Conditions = field(default_factory=dict)
    most: int | None = None


Parts: TypeAlias = Mapping[str, Sequence[Part]]
"""By name; the first of a name whose row meets its condition counts."""
