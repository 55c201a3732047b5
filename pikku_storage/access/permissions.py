"""What a function asks of its caller: a session, scopes, and permissions of its own making (contract services.md §14).

A check is a function of a `Call` that answers yes or no, plain or `async`. Checks come as

* one check;
* a list: all of them must pass;
* a dictionary of these, by any name: one of its branches is enough.

Nothing here knows a database, a request or a setting.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from inspect import isawaitable
from typing import Any, TypeAlias

from pikku_storage.access.scopes import verify_scopes
from pikku_storage.exceptions import ForbiddenError


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What a check is told. `session` is an `Actor`, a mapping with `scopes`, or `None` for nobody."""

    session: Any = None
    data: Any = None
    wire: Any = None

    @property
    def scopes(self) -> tuple[str, ...]:
        """The scopes of the session."""
        is_mapping = isinstance(self.session, Mapping)
        return tuple((self.session.get("scopes") if is_mapping else getattr(self.session, "scopes", None)) or ())


Check: TypeAlias = Callable[[Call], "bool | Awaitable[bool]"]
Branch: TypeAlias = "Check | Sequence[Check]"
Permissions: TypeAlias = "Branch | Mapping[str, Branch] | None"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """What a function asks of its caller; by default nothing."""

    scopes: Sequence[str] = ()
    permissions: Permissions = None
    needs_session: bool = False


def verify_access(gate: Gate, call: Call, *, everywhere: Sequence[Permissions] = ()) -> None:
    """Raise unless the call may go on: `ForbiddenError` for a session that is needed and absent, then
    `MissingScopeError`, then `ForbiddenError` for permissions. Each entry of `everywhere`, which all functions share,
    must pass before the gate's own are asked. Checks must be plain functions."""
    deciding = _decide(gate, call, everywhere)
    try:
        check = next(deciding)
        while True:
            answer = check(call)
            if isawaitable(answer):
                if hasattr(answer, "close"):
                    answer.close()
                raise TypeError(f"The check {check!r} is async: await averify_access(…)")
            check = deciding.send(bool(answer))
    except StopIteration:
        return


async def averify_access(gate: Gate, call: Call, *, everywhere: Sequence[Permissions] = ()) -> None:
    """As `verify_access`, for checks of both kinds. Plain ones are called in the event loop."""
    deciding = _decide(gate, call, everywhere)
    try:
        check = next(deciding)
        while True:
            answer = check(call)
            check = deciding.send(bool(await answer if isawaitable(answer) else answer))
    except StopIteration:
        return


_Deciding: TypeAlias = Generator[Check, bool, bool]
"""Yields checks, is sent their answers, and returns whether they suffice."""


def _decide(gate: Gate, call: Call, everywhere: Sequence[Permissions]) -> Generator[Check, bool, None]:
    if gate.needs_session and call.session is None:
        raise ForbiddenError
    verify_scopes(call.scopes, gate.scopes)
    for permissions in (*everywhere, gate.permissions):
        if not (yield from _passes(permissions)):
            raise ForbiddenError


def _passes(permissions: Permissions) -> _Deciding:
    if not isinstance(permissions, Mapping):
        return (yield from _passes_all(permissions))
    for branch in permissions.values():
        if (yield from _passes_all(branch)):
            return True
    # A group without a branch asks for nothing.
    return not permissions


def _passes_all(branch: Branch | None) -> _Deciding:
    for check in [branch] if callable(branch) else branch or ():
        if not (yield check):
            return False
    return True
