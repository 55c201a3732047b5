"""Scopes as a tree, to be looked at and to choose from. Pure functions over records."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from pikku_storage.access.records import ScopeRecord
from pikku_storage.access.scopes import EVERYTHING, SEPARATOR, has_scopes


@dataclass(frozen=True, slots=True)
class Node:
    """One scope of the tree, as a choice."""

    name: str
    description: str
    depth: int
    declared: bool
    is_chosen: bool = False
    """Granted itself."""
    covered_by: str = ""
    """The chosen scope that brings this one along: it is shown as chosen, and locked."""
    lock: str = ""
    """Why the caller may not change it."""

    @property
    def part(self) -> str:
        """What it adds to the name of the one above."""
        return self.name.rpartition(SEPARATOR)[2]

    @property
    def is_locked(self) -> bool:
        """Whether it cannot be ticked or unticked as things stand."""
        return bool(self.covered_by or self.lock)


def in_order(scopes: Iterable[ScopeRecord]) -> list[ScopeRecord]:
    """Each scope after the one above it, and siblings by name."""
    return sorted(scopes, key=lambda scope: scope.name.split(SEPARATOR))


def depth_of(name: str) -> int:
    """How deep it stands: its colons."""
    return name.count(SEPARATOR)


def covering(scope: str, chosen: Iterable[str]) -> str:
    """The broadest of the chosen scopes that brings this one along; empty if none does."""
    return next((other for other in _broadest_first(chosen) if other != scope and has_scopes([other], [scope])), "")


def minimal(chosen: Iterable[str]) -> set[str]:
    """The chosen scopes without those that another one of them brings along."""
    kept: list[str] = []
    for scope in _broadest_first(chosen):
        if not has_scopes(kept, [scope]):
            kept.append(scope)
    return set(kept)


def choices(
    scopes: Iterable[ScopeRecord], chosen: Collection[str], held: Sequence[str], *, why_not_held: str
) -> list[Node]:
    """The tree to choose from. What the caller does not hold is locked as it is; what is not declared any more can be
    taken away, and is offered only if it is chosen."""
    nodes = []
    for scope in in_order(scopes):
        is_chosen = scope.name in chosen
        if not scope.declared and not is_chosen:
            continue
        nodes.append(
            Node(
                scope.name,
                scope.description or "",
                depth_of(scope.name),
                scope.declared,
                is_chosen,
                "" if is_chosen else covering(scope.name, chosen),
                "" if has_scopes(held, [scope.name]) else why_not_held,
            )
        )
    return nodes


def _broadest_first(scopes: Iterable[str]) -> list[str]:
    return sorted(scopes, key=lambda scope: (scope != EVERYTHING, depth_of(scope), scope))
