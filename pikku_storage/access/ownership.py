"""Who owns what (contract services.md §1.9 and §7, console.md §4).

The one policy that services, console, HTTP and admin go by. Only what `admins` may asks the database, for the scopes of
a Django user.

Whatever belongs to somebody has a `resource_id`: a principal, or `principal:partition`. A principal is the id of a user
or of an organisation. Nothing is ever matched by LIKE, so `%`, `_` and upper and lower case mean nothing.

A *session* is whoever asks: an `Actor`, a Django user, an id, a mapping `{userId, orgId, scopes}`, or `None` for
nobody.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, Protocol, Self
from uuid import uuid4
from weakref import WeakKeyDictionary

from django.db.models import Q

from pikku_storage.access.actors import actor_of, identity_of
from pikku_storage.access.scopes import has_scopes
from pikku_storage.exceptions import ForbiddenError, WorkflowRunForbiddenError
from pikku_storage.json import to_text

ADMIN = "admin"
"""Who holds this scope sees what belongs to others, where the contract says so: in the console, never over HTTP."""
LONGEST = 255
_SEPARATOR = ":"
_AFTER_SEPARATOR = ";"
"""What follows the separator in the order of characters: partitions are a range of an index."""
_anonymous: WeakKeyDictionary[Any, str] = WeakKeyDictionary()

SessionScope = Literal["user", "org"]


class Owned(Protocol):
    """What belongs to one user: a run, or what was read of one."""

    @property
    def owner_id(self) -> str | None:
        """The user's id; `None` if there is no owner."""


@dataclass(frozen=True, slots=True)
class Ownership:
    """Whose things somebody may see: those of the `owners`, and of their partitions; everybody's if they are `None`."""

    owners: tuple[str, ...] | None

    @classmethod
    def of(cls, session: Any, *, admins: bool = False) -> Self:
        """What the session's own principals own; everything, if `admins` may and it holds `admin`."""
        return cls(None if admins and has_scopes(actor_of(session).scopes, [ADMIN]) else principals(session))

    @classmethod
    def given(cls, owners: Iterable[str] | None) -> Self:
        """What these owners own; everything for `None`, nothing for an empty list."""
        if isinstance(owners, str):
            raise TypeError("owners is a list of ids, not a text")
        return cls(None if owners is None else tuple(dict.fromkeys(owner for owner in owners if owner)))

    def covers(self, resource_id: str | None) -> bool:
        """Whether it belongs to one of the owners."""
        if self.owners is None:
            return True
        return any(_is_within(resource_id or "", owner) for owner in self.owners)

    def narrowed(self, owners: Iterable[str] | None) -> Ownership:
        """What of this belongs to these owners as well. What somebody asks for narrows, and never widens."""
        asked = Ownership.given(owners)
        if self.owners is None or asked.owners is None:
            return self if asked.owners is None else asked
        inner = [owner for owner in asked.owners if self.covers(owner)]
        outer = [owner for owner in self.owners if asked.covers(owner)]
        return Ownership.given([*inner, *outer])

    def condition(self, column: str) -> Q:
        """The rows whose `column` these owners cover."""
        if self.owners is None:
            return Q()
        condition = Q(pk__in=[])
        for owner in self.owners:
            partitions = {f"{column}__gte": owner + _SEPARATOR, f"{column}__lt": owner + _AFTER_SEPARATOR}
            condition |= Q((column, owner)) | Q(**partitions)
        return condition


EVERYBODYS = Ownership(None)
"""For code that has decided already who may see something."""


def principals(session: Any) -> tuple[str, ...]:
    """The ids that the session owns things under: its user and its organisation, without those that are empty."""
    actor = identity_of(session)
    return tuple(dict.fromkeys(each for each in (actor.user_id, actor.org_id) if each))


def owns_resource(resource_id: str | None, session: Any) -> bool:
    """Whether it belongs to one of the session's principals. Without principals nothing does."""
    return Ownership.of(session).covers(resource_id)


def resolve_owner_resource_id(
    requested: str | None, session: Any, *, session_scope: SessionScope | None = "user", request: Any = None
) -> str:
    """The `resource_id` under which something new is kept for the session: within its principal, whatever is asked for.

    `session_scope` says which principal: the user, or the organisation (`"org"`; without one `ForbiddenError`). Who is
    not signed in gets an owner that nobody else has: the same one for the same `request`, and without one another each
    time.
    Raises `PayloadError` for an id that cannot be stored.
    """
    actor = identity_of(session)
    if session_scope == "org" and not actor.org_id:
        raise ForbiddenError("This agent is org-scoped but the session has no organization")
    principal = actor.org_id if session_scope == "org" else actor.user_id
    if not principal:
        return _anonymous_owner(request)
    if not requested or _is_within(requested, principal):
        return to_text(requested or principal, root="$resource_id", longest=LONGEST)
    return to_text(f"{principal}{_SEPARATOR}{requested}", root="$resource_id", longest=LONGEST)


def assert_run_owner(run: Owned, user_id: str | None) -> None:
    """Raise `WorkflowRunForbiddenError` unless the run belongs to that user (contract services.md §1.9).

    A run without an owner, as a schedule or a trigger starts it, belongs to nobody in particular: what reaches it is
    then a matter of the place that asks. `user_id` is `None` for somebody who is not signed in.
    """
    if run.owner_id is not None and run.owner_id != user_id:
        raise WorkflowRunForbiddenError


def _is_within(resource_id: str, principal: str) -> bool:
    return resource_id == principal or resource_id.startswith(principal + _SEPARATOR)


def _anonymous_owner(request: Any) -> str:
    if request is None:
        return f"anon-{uuid4()}"
    return _anonymous.setdefault(request, f"anon-{uuid4()}")
