"""Things with something to hide."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db import connections, models, router

from pikku_storage.secrets.fields import EncryptedJSONField, EncryptedTextField


class Box(models.Model):
    """A box with a note and a map in it."""

    id = models.CharField(max_length=40, primary_key=True)
    label = models.CharField(max_length=40, default="")
    note: Any = EncryptedTextField(null=True)
    map: Any = EncryptedJSONField(null=True, db_column="treasure_map")

    objects: ClassVar[models.Manager[Box]] = models.Manager()

    def __str__(self) -> str:
        return self.id


def raw(pk: str, column: str) -> str:
    """What the column of a box holds, read past its field."""
    connection: Any = connections[router.db_for_read(Box)]
    if connection.vendor == "mongodb":
        return str(connection.database["shelf_box"].find_one({str(Box._meta.pk.column): pk})[column])
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {column} FROM shelf_box WHERE id = %s", [pk])  # noqa: S608 - the tests' own
        return str(cursor.fetchone()[0])


def put_raw(pk: str, column: str, text: str) -> None:
    """Write the column of a box past its field."""
    connection: Any = connections[router.db_for_write(Box)]
    if connection.vendor == "mongodb":
        change = {"$set": {column: text}}
        connection.database["shelf_box"].update_one({str(Box._meta.pk.column): pk}, change)
        return
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE shelf_box SET {column} = %s WHERE id = %s", [text, pk])  # noqa: S608 - the tests' own
