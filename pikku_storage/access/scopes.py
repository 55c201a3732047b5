"""The scope rules (contract services.md §14). Pure functions: no database, no settings.

A scope is a text whose parts are separated by colons: `admin:users:list`. Holding one also gives what lies beneath it.
"""

from __future__ import annotations

from collections.abc import Iterable

from pikku_storage.exceptions import MissingScopeError

EVERYTHING = "*"
"""Satisfies any requirement."""
SEPARATOR = ":"


def has_scopes(granted: Iterable[str] | None, required: Iterable[str]) -> bool:
    """Whether the scopes that somebody holds satisfy all that are required; none required are always satisfied."""
    return _first_missing(granted, required) is None


def verify_scopes(granted: Iterable[str] | None, required: Iterable[str]) -> None:
    """Raise `MissingScopeError`, naming the first required scope that is not held."""
    missing = _first_missing(granted, required)
    if missing is not None:
        raise MissingScopeError(missing)


def _first_missing(granted: Iterable[str] | None, required: Iterable[str]) -> str | None:
    held = frozenset(granted or ())
    return next((scope for scope in required if held.isdisjoint(_satisfying(scope))), None)


def _satisfying(required: str) -> set[str]:
    """The grants of which each is enough: the scope itself, its ancestors, each with or without `:*`, and `*`.

    A required wildcard is a name like any other, so only a grant at least as broad satisfies it.
    """
    parts = required.split(SEPARATOR)
    itself_and_ancestors = [SEPARATOR.join(parts[:length]) for length in range(1, len(parts) + 1)]
    return {EVERYTHING, *itself_and_ancestors, *(f"{scope}:*" for scope in itself_and_ancestors)}
