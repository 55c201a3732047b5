"""What somebody chose of scopes or roles, and what that changes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from console.access.tree import covering, minimal


@dataclass(frozen=True, slots=True)
class Choice:
    """What the page showed as given, and what was sent back as chosen.

    Only the difference is carried out, so what somebody else changed meanwhile stays as they left it.
    """

    had: frozenset[str]
    chosen: frozenset[str]

    @classmethod
    def of_scopes(cls, had: Iterable[str], chosen: Iterable[str]) -> Choice:
        """Of scopes: what a newly chosen one brings along is dropped (contract console.md §7)."""
        before, after = frozenset(had), frozenset(chosen)
        added = after - before
        subsumed = {scope for scope in after - minimal(after) if covering(scope, added)}
        return cls(before, after - subsumed)

    @classmethod
    def of_roles(cls, had: Iterable[str], chosen: Iterable[str]) -> Choice:
        """Of roles, of which none brings another one along."""
        return cls(frozenset(had), frozenset(chosen))

    @property
    def added(self) -> list[str]:
        """Sorted."""
        return sorted(self.chosen - self.had)

    @property
    def removed(self) -> list[str]:
        """Sorted."""
        return sorted(self.had - self.chosen)

    def __bool__(self) -> bool:
        return self.had != self.chosen

    def applied_to(self, now: Iterable[str]) -> set[str]:
        """What there will be, of what there is now."""
        return (set(now) | set(self.added)) - set(self.removed)
