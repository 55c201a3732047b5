"""The tabs over the lists."""

from __future__ import annotations

from dataclasses import dataclass

from console.agents import reads


@dataclass(frozen=True, slots=True)
class Tab:
    """One tab; `count` is empty where nothing is counted."""

    label: str
    status: str
    count: str
    url: str
    is_chosen: bool


def bounded(count: int) -> str:
    """A number that was counted up to a limit."""
    return f"{reads.COUNT_UP_TO}+" if count > reads.COUNT_UP_TO else str(count)
