"""SQLite."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from django.db import models

from pikku_storage.db.sql import SqlEngine, column_of, prepare, table_of

_MERGE = "pikku_set_key"


def _set_key(document: str | None, key: str, value: str) -> str:
    merged = json.loads(document or "{}")
    merged[key] = json.loads(value)
    return json.dumps(merged, ensure_ascii=False)


class SqliteEngine(SqlEngine):
    """One writer at a time, so an UPDATE that reads its own row is atomic."""

    def merge_json_key(self, model: type[models.Model], pk: str, field: str, key: str, value: Any, at: datetime) -> int:
        """See `Engine.merge_json_key`.

        Through a function of our own: a path of `json_set` cannot name every key (a quote in it ends the path on some
        versions).
        """
        connection = self.connection
        connection.ensure_connection()
        connection.connection.create_function(_MERGE, 3, _set_key, deterministic=True)
        column, primary_key = column_of(model, field), model._meta.pk.attname
        with connection.cursor() as cursor:
            cursor.execute(
                f"UPDATE {table_of(model)} SET {column} = {_MERGE}({column}, %s, %s), "
                f"{column_of(model, 'updated_at')} = %s WHERE {column_of(model, primary_key)} = %s",
                [key, json.dumps(value), *prepare(connection, model, [("updated_at", at), (primary_key, pk)])],
            )
            return int(cursor.rowcount)
