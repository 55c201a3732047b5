"""The scopes that a Django user holds, read once for each user object."""

from __future__ import annotations

from typing import Any

from django.apps import apps

from pikku_storage.access.scopes import EVERYTHING

_CACHE = "_pikku_scopes"


def held_scopes(user: Any) -> tuple[str, ...]:
    """An active superuser holds `*`, an inactive or anonymous one nothing, and others what they were granted.

    Grants count if the app `pikku_storage.access` is installed. They are read from the database at the first question
    and kept with the user object, as Django keeps permissions: ask with a new object after a change.
    """
    if not getattr(user, "is_active", False) or getattr(user, "is_anonymous", False):
        return ()
    if getattr(user, "is_superuser", False):
        return (EVERYTHING,)
    if getattr(user, "pk", None) is None or not (apps.models_ready and apps.is_installed("pikku_storage.access")):
        return ()
    held: tuple[str, ...] | None = getattr(user, _CACHE, None)
    if held is None:
        # Models cannot be imported before the apps are ready, and this module can.
        from pikku_storage.access.service import ScopeService

        held = tuple(ScopeService().resolve_scopes(user))
        setattr(user, _CACHE, held)
    return held
