"""How our models are named on MongoDB.

One place decides it, when a model class is made, so that migrations and models are the same on every database: there
the primary key is the document's `_id`, whatever its column is called in SQL.
"""

from __future__ import annotations

from typing import Any

from django.db import connections, models
from django.db.models.signals import class_prepared

from pikku_storage.conf import APP_LABELS, settings

VENDOR = "mongodb"


def are_kept_in(alias: str) -> bool:
    """Whether the database of that alias holds documents."""
    return bool(connections[alias].vendor == VENDOR)


def _name(sender: type[models.Model], **kwargs: Any) -> None:
    if sender._meta.app_label.startswith(APP_LABELS) and are_kept_in(settings.DATABASE):
        sender._meta.pk.column = "_id"


class_prepared.connect(_name)
