"""Scopes and roles that code declares. Pure: no database, no settings.

Put them into the `scopes.py` of an app; those of all installed apps are found by themselves.

    declare_scopes({"shop": ("All of the shop", {"orders": {"read": "See orders", "refund": "Pay money back"}})})
    declare_role("shop-clerk", ["shop:orders:read"], "Answers the phone")

A tree declares each of its nodes. Its keys are the parts of the names, and a value is what stands below, a description,
or both. A list declares names, or pairs of a name and its description.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from pikku_storage.access.scopes import EVERYTHING, SEPARATOR
from pikku_storage.exceptions import PayloadError, ScopeDeclarationError
from pikku_storage.json import to_text

NAME_LENGTH = 255
DESCRIPTION_LENGTH = 1000

Tree: TypeAlias = Mapping[str, Any]
"""By part of a name: `None`, a description, a tree of what stands below, or a pair of both."""


@dataclass(frozen=True, slots=True)
class DeclaredScope:
    """A scope, and what it lets its holder do, for whoever grants it."""

    name: str
    description: str | None = None

    def __post_init__(self) -> None:
        _check_text(self.name, "scope")
        if any(not part or EVERYTHING in part for part in self.name.split(SEPARATOR)):
            raise ScopeDeclarationError(
                f"{self.name!r} is no name for a scope: between its colons stands something, and no {EVERYTHING!r}. "
                "What holds a scope has all beneath it anyway."
            )
        _check_description(self.description, self.name)


@dataclass(frozen=True, slots=True)
class DeclaredRole:
    """A system role: nobody changes it but code."""

    name: str
    scopes: frozenset[str]
    description: str | None = None

    def __post_init__(self) -> None:
        _check_text(self.name, "role")
        if SEPARATOR in self.name:
            raise ScopeDeclarationError(f"{self.name!r} is no name for a role: it has a colon, as scopes do")
        _check_description(self.description, self.name)


def flatten(*declared: Tree | Iterable[Any]) -> list[DeclaredScope]:
    """The scopes of trees and lists, each once and in their order; of two descriptions the first counts.

    Raises `ScopeDeclarationError`.
    """
    found: dict[str, DeclaredScope] = {}
    for each in declared:
        for scope in _walk("", each) if isinstance(each, Mapping) else map(scope_of, each):
            known = found.get(scope.name)
            if known is None or known.description is None:
                found[scope.name] = scope
    return list(found.values())


def scope_of(given: Any) -> DeclaredScope:
    """The scope that is meant by a name, a pair, a mapping with `name` and `description`, or a `DeclaredScope`."""
    if isinstance(given, DeclaredScope):
        return given
    if isinstance(given, str):
        return DeclaredScope(given)
    if isinstance(given, Mapping) and given.keys() <= {"name", "description"}:
        return DeclaredScope(given.get("name", ""), given.get("description"))
    if isinstance(given, tuple | list) and len(given) == 2:
        return DeclaredScope(*given)
    raise ScopeDeclarationError(f"A scope is a name, or a name and a description; not {given!r:.80}")


def _walk(above: str, tree: Tree) -> Iterator[DeclaredScope]:
    for part, given in tree.items():
        if SEPARATOR in part:
            raise ScopeDeclarationError(f"{part!r} is no part of a scope's name: in a tree, its colons are the levels")
        name = f"{above}{SEPARATOR}{part}" if above else part
        description, below = given if isinstance(given, tuple) and len(given) == 2 else _apart(given)
        if not isinstance(below, Mapping):
            raise ScopeDeclarationError(f"{name!r} is followed by {given!r:.80}, not by a description, a tree or both")
        yield DeclaredScope(name, description)
        yield from _walk(name, below)


def _apart(given: Any) -> tuple[Any, Any]:
    return (None, given) if isinstance(given, Mapping) else (given, {})


def _check_text(name: Any, what: str) -> None:
    try:
        to_text(name, root=f"${what}", longest=NAME_LENGTH)
    except PayloadError as error:
        raise ScopeDeclarationError(f"{name!r:.80} is no name for a {what}: it {error.reason}") from None


def _check_description(given: Any, name: str) -> None:
    if given is None:
        return
    try:
        to_text(given, root="$description", longest=DESCRIPTION_LENGTH)
    except PayloadError as error:
        raise ScopeDeclarationError(f"The description of {name!r} cannot be stored: it {error.reason}") from None


@dataclass(slots=True)
class Declarations:
    """What this process knows. Declaring the same twice is once; `problems` are what contradicts."""

    scopes: dict[str, DeclaredScope] = field(default_factory=dict)
    roles: dict[str, DeclaredRole] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def add_scopes(self, *declared: Tree | Iterable[Any]) -> None:
        """See `declare_scopes`."""
        for scope in flatten(*declared):
            known = self.scopes.setdefault(scope.name, scope)
            if known.description is None:
                self.scopes[scope.name] = scope
            elif scope.description not in (None, known.description):
                self.problems.append(
                    f"The scope {scope.name!r} is declared as {known.description!r} and as {scope.description!r}."
                )

    def add_role(self, role: DeclaredRole) -> None:
        """See `declare_role`."""
        known = self.roles.setdefault(role.name, role)
        if known != role:
            self.problems.append(f"The role {role.name!r} is declared twice, with other scopes or another description.")

    def undeclared_scopes(self) -> dict[str, list[str]]:
        """By role, the scopes that it names and nobody declares."""
        missing = {role.name: sorted(role.scopes - self.scopes.keys()) for role in self.roles.values()}
        return {name: scopes for name, scopes in missing.items() if scopes}

    def verify(self) -> None:
        """Raise `ScopeDeclarationError` if something contradicts, or a role names a scope that nobody declares."""
        texts = list(self.problems)
        for role, scopes in self.undeclared_scopes().items():
            texts.append(f"The role {role!r} names scopes that nobody declares: {', '.join(scopes)}.")
        if texts:
            raise ScopeDeclarationError(" ".join(texts))


declarations = Declarations()


def declare_scopes(*declared: Tree | Iterable[Any]) -> None:
    """Declare scopes, as trees or lists; see the module. Raises `ScopeDeclarationError` for what is no name."""
    declarations.add_scopes(*declared)


def declare_role(name: str, scopes: Iterable[str], description: str | None = None) -> None:
    """Declare a system role. `manage.py sync_scopes` gives it exactly these scopes. Raises `ScopeDeclarationError`."""
    if isinstance(scopes, str):
        raise ScopeDeclarationError(f"The role {name!r} needs a list of scopes, not a text")
    declarations.add_role(DeclaredRole(name, frozenset(scopes), description))
