"""Whoever does something: a user's id and scopes, however the caller names them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from django.utils.module_loading import import_string

from pikku_storage.access.held import held_scopes
from pikku_storage.conf import settings
from pikku_storage.exceptions import WorkflowInputError
from pikku_storage.json import Json, to_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """A person who acts, or a program in their name. Without a `user_id` nobody is signed in."""

    user_id: str | None = None
    scopes: tuple[str, ...] = ()
    org_id: str | None = None
    """The organisation in whose name the user acts, if any."""

    def as_json(self) -> dict[str, Json] | None:
        """`{userId, scopes}`, or `None` for nobody."""
        return None if self.user_id is None else {"userId": self.user_id, "scopes": list(self.scopes)}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any] | None) -> Actor:
        """What `as_json` made."""
        return cls() if stored is None else cls(user_id=stored.get("userId"), scopes=tuple(stored.get("scopes") or ()))


def actor_of(who: Any) -> Actor:
    """The actor that is meant by `None`, an `Actor`, a Django user, an id, a mapping `{userId, orgId, scopes}`, or any
    object with `user_id`, `scopes` and `org_id`.

    An id alone holds no scopes. An anonymous user is nobody, and so is an empty id. The scopes of a Django user may
    have to be read (`held_scopes`).
    """
    actor = identity_of(who)
    is_user = hasattr(who, "pk") and not hasattr(who, "user_id")
    return replace(actor, scopes=scopes_of(who)) if is_user else actor


def identity_of(who: Any) -> Actor:
    """As `actor_of`, and of a Django user only who it is, without what they hold: it reads nothing. The organisation of
    a Django user is what the setting `USER_ORGANISATION` says."""
    if isinstance(who, Actor):
        return who
    if who is None or who == "" or getattr(who, "is_authenticated", True) is False:
        return Actor()
    if isinstance(who, Mapping):
        return Actor(
            user_id=user_id_of(who.get("userId"), role="actor"),
            scopes=_texts(who.get("scopes")),
            org_id=user_id_of(who.get("orgId"), role="organisation"),
        )
    if hasattr(who, "user_id"):
        return Actor(
            user_id=None if who.user_id is None else id_of(who.user_id, role="actor"),
            scopes=_texts(getattr(who, "scopes", None)),
            org_id=user_id_of(getattr(who, "org_id", None), role="organisation"),
        )
    return Actor(user_id=id_of(who, role="actor"), org_id=_organisation_of(who))


def _texts(scopes: Any) -> tuple[str, ...]:
    return tuple(to_text(scope, root="$scopes") for scope in scopes or ())


def _organisation_of(user: Any) -> str | None:
    if settings.USER_ORGANISATION is None or not hasattr(user, "pk"):
        return None
    return user_id_of(import_string(settings.USER_ORGANISATION)(user), role="organisation")


def scopes_of(user: Any) -> tuple[str, ...]:
    """The scopes of a Django user; see `held_scopes`."""
    return held_scopes(user)


def user_id_of(who: Any, *, role: str = "owner") -> str | None:
    """`id_of`, or `None` for nobody."""
    return None if who is None or who == "" else id_of(who, role=role)


def id_of(who: Any, *, role: str) -> str:
    """The id of a user, or that is one, as text; raises `WorkflowInputError`, naming the `role` it was given for."""
    if isinstance(who, str | int | UUID) and not isinstance(who, bool):
        return to_text(str(who), root=f"${role}")
    if not hasattr(who, "pk"):
        raise WorkflowInputError(f"The {role} is a user, or an id as text, number or UUID; not {type(who).__name__}")
    if who.pk is None:
        raise WorkflowInputError(f"The {role} has no primary key: save the user first; for an anonymous one pass None")
    return to_text(str(who.pk), root=f"${role}")
