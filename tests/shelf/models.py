"""Things with something to hide."""

from __future__ import annotations

from typing import Any

from django.db import models

from pikku_storage.secrets.fields import EncryptedJSONField, EncryptedTextField


class Box(models.Model):
    """A box with a note and a map in it."""

    id = models.CharField(max_length=40, primary_key=True)
    label = models.CharField(max_length=40, default="")
    note: Any = EncryptedTextField(null=True)
    map: Any = EncryptedJSONField(null=True, db_column="treasure_map")

    def __str__(self) -> str:
        return self.id
