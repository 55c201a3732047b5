"""Users, by their ids as text: the package has no foreign key to the user table."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from pikku_storage.exceptions import WorkflowInputError
from pikku_storage.json import to_text


def user_id_of(user: Any, *, role: str = "owner") -> str | None:
    """The id of a user object, or an id that is a text, a number or a UUID; `None` for nobody.

    Raises `WorkflowInputError`, which calls the user what he is here: the `role`.
    """
    if user is None or user == "":
        return None
    if isinstance(user, str | int | UUID) and not isinstance(user, bool):
        return to_text(str(user), root=f"${role}")
    if not hasattr(user, "pk"):
        raise WorkflowInputError(f"The {role} is a user, or an id as text, number or UUID; not {type(user).__name__}")
    if user.pk is None:
        raise WorkflowInputError(f"The {role} has no primary key: save the user first; for an anonymous one pass None")
    return to_text(str(user.pk), root=f"${role}")
