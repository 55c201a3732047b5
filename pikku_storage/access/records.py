"""What the services answer with."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeRecord:
    """A scope; `declared` says whether code still declares it."""

    name: str
    description: str | None
    declared: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleRecord:
    """A role with its scopes, sorted. `system`: code declares it, or has declared it, and then it is not `declared`."""

    name: str
    description: str | None
    scopes: tuple[str, ...]
    system: bool
    declared: bool
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantRecord:
    """A role or a scope that a user was given, by whom and when."""

    kind: Literal["role", "scope"]
    name: str
    granted_by: str | None
    granted_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class StaleScope:
    """A scope that code declares no more, and the roles that still have it."""

    scope: str
    roles: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StaleRole:
    """A system role that code declares no more, and how many users still have it."""

    role: str
    users: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What a synchronisation changed, or would change: names, sorted."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    """With another description, other scopes, or declared again."""
    undeclared: tuple[str, ...] = ()
    """Not declared any more. They stay, and so do grants of them, until they are pruned."""

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.undeclared)
