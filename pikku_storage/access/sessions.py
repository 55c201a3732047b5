"""Sessions: one JSON object per user (contract services.md §11)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import router

from pikku_storage.access.actors import id_of
from pikku_storage.access.models import UserSession
from pikku_storage.access.querysets import SessionQuerySet
from pikku_storage.async_twins import AsyncTwins
from pikku_storage.json import Json, to_json_object


class SessionStore(AsyncTwins):
    """What an application keeps of a user between requests, whatever device they come from.

    It has nothing to do with the sessions of `django.contrib.sessions`, which belong to browsers. `using` picks a
    database alias. Users are told by a Django user or an id.
    """

    def __init__(self, using: str | None = None) -> None:
        self._given_using = using

    def get(self, user: Any) -> dict[str, Json] | None:
        """The session of a user; `None` if there is none. An empty one is one."""
        rows = self._rows.filter(pk=id_of(user, role="user"))
        found: dict[str, Json] | None = rows.values_list("session", flat=True).first()
        return found

    def set(self, user: Any, session: Mapping[str, Any]) -> None:
        """Store a session in place of an earlier one, whole. Raises `PayloadError` for what is no JSON object."""
        plain = to_json_object(session, root="$session")
        rows = self._rows
        rows.put(id_of(user, role="user"), plain, at=rows.engine.now())

    def clear(self, user: Any) -> None:
        """Delete the session of a user, if there is one."""
        self._rows.clear(id_of(user, role="user"))

    @property
    def _rows(self) -> SessionQuerySet:
        return UserSession.objects.using(self._given_using or router.db_for_write(UserSession))
