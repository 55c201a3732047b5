"""What the test of the gate knows of each room of the console: one module a room, found by itself."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module

from django.contrib.auth.models import User

from console.gate import Area


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """The pages of some models.

    `make` is called once a test with the user who asks, and answers by model with the id of a row that is theirs, or
    anybody's where nothing is owned, and of one that is somebody else's. `needs` has, by the name of an address, the
    verb that lets one see it, where not every verb of the area does. `params` has, by the name of an address, further
    parts of it: a text, or the name of a model for the id of its own row.
    """

    area: Area
    areas: Mapping[str, Area] = field(default_factory=dict)
    """By model, the areas of those that have one of their own."""
    make: Callable[[User], Mapping[str, Rows]]
    needs: Mapping[str, str] = field(default_factory=dict)
    params: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    owned: bool = False
    """Whether staff without a scope see what they own."""
    misses: Mapping[str, int] = field(default_factory=dict)
    """By the name of an address, what it answers for a row that is not there, where that is not 404."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Ids of rows of a model: one's own, and a foreign one, which is the same where nothing is owned."""

    own: str
    foreign: str = ""


def all_rooms() -> dict[str, Room]:
    """The rooms, by the name of their module."""
    names = [module.name for module in pkgutil.iter_modules(__path__)]
    return {name: import_module(f"{__name__}.{name}").ROOM for name in names}
