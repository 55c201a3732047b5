"""How our models are named on MongoDB.

One place decides it, when a model class is made, so that migrations and models are the same on every database: there
the primary key is the document's `_id`, whatever its column is called in SQL. Secrets, agents, channels, sessions and
deployments may be shared with the TypeScript packages, so their other fields are named as there, in camel case, and so
is the collection of sessions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from django.db import connections, models
from django.db.models.signals import class_prepared

from pikku_storage.conf import APP_LABELS, settings

VENDOR = "mongodb"
CAMEL_CASE = frozenset({"pikku_access", "pikku_agents", "pikku_channels", "pikku_deployments", "pikku_secrets"})
"""Labels of the apps whose fields are named in camel case."""
COLLECTIONS = {"pikku_user_sessions": "pikkuUserSessions"}
"""What the collection of a table is called, if not as the table."""
_WORD = re.compile("_([a-z])")
_named_for: ContextVar[str | None] = ContextVar("_named_for", default=None)


def are_kept_in(alias: str) -> bool:
    """Whether the database of that alias holds documents."""
    return bool(connections[alias].vendor == VENDOR)


@contextmanager
def naming_for(alias: str) -> Iterator[None]:
    """Model classes that are made inside are named as the database of that alias names them."""
    token = _named_for.set(alias)
    try:
        yield
    finally:
        _named_for.reset(token)


def _name(sender: type[models.Model], **kwargs: Any) -> None:
    if not sender._meta.app_label.startswith(APP_LABELS) or not are_kept_in(_named_for.get() or settings.DATABASE):
        return
    if sender._meta.app_label in CAMEL_CASE:
        for field in sender._meta.local_concrete_fields:
            field.column = _WORD.sub(lambda match: match[1].upper(), str(field.column))
    sender._meta.pk.column = "_id"
    sender._meta.db_table = COLLECTIONS.get(sender._meta.db_table, sender._meta.db_table)


class_prepared.connect(_name)
