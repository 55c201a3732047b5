"""Names of the people whose ids stand in `owner_id`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError
from django.db.models import QuerySet


def owner_names(owner_ids: Iterable[str | None]) -> dict[str, str]:
    """Owner id → the user's name, for those ids that are a user's. One query, none without ids."""
    users = get_user_model()
    found = users_of(owner_ids)
    return {str(user.pk): user.get_username() for user in found.only("pk", users.USERNAME_FIELD)}


def users_of(owner_ids: Iterable[str | None]) -> QuerySet[Any]:
    """The users whose ids these are."""
    users = get_user_model()
    keys = []
    for owner_id in {owner_id for owner_id in owner_ids if owner_id}:
        try:
            key = users._meta.pk.to_python(owner_id)
            # A number that is too large for the column is an error in some databases.
            users._meta.pk.run_validators(key)
        except ValidationError:
            # An id of somebody who is not in this project's user table.
            continue
        keys.append(key)
    return users._default_manager.filter(pk__in=keys) if keys else users._default_manager.none()


def owner_ids_of(name: str) -> list[str]:
    """The owner ids that belong to a user's name."""
    users = get_user_model()
    found = users._default_manager.filter(**{users.USERNAME_FIELD: name})
    return [str(pk) for pk in found.values_list("pk", flat=True)[:1]]
