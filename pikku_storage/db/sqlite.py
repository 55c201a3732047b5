"""SQLite."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from sqlite3 import Connection
from typing import Any
from weakref import WeakKeyDictionary

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper

from pikku_storage.db.fields import MillisecondDateTimeField, cut, encode
from pikku_storage.db.sql import Convert, SqlEngine

_MERGE = "pikku_set_key"
_taught: WeakKeyDictionary[BaseDatabaseWrapper, Connection] = WeakKeyDictionary()
"""Connections that know our function. To define it again would make SQLite prepare every statement anew, and fails
while one is being read from."""


class SqliteEngine(SqlEngine):
    """One writer at a time, so an UPDATE that reads its own row is atomic."""

    def converter(self, field: models.Field[Any, Any]) -> Convert | None:
        """See `SqlEngine.converter`."""
        return _moment(field) if isinstance(field, MillisecondDateTimeField) else super().converter(field)

    def merge_json_key(self, model: type[models.Model], pk: str, field: str, key: str, value: Any, at: datetime) -> int:
        """See `Engine.merge_json_key`.

        Through a function of our own: a path of `json_set` cannot name every key (a quote in it ends the path on some
        versions).
        """
        _teach(self.connection)
        column = self.column(model, field)
        return self.set_by_key(model, pk, f"{column} = {_MERGE}({column}, %s, %s)", [key, encode(value)], at)


def _moment(field: MillisecondDateTimeField) -> Convert:
    def convert(value: datetime, connection: BaseDatabaseWrapper) -> Any:
        # What the field would do with a time of ours, at a fifth of the cost.
        if value.tzinfo is UTC and connection.timezone is UTC:
            return str(cut(value).replace(tzinfo=None))
        return field.get_db_prep_save(value, connection)

    return convert


def _teach(connection: BaseDatabaseWrapper) -> None:
    connection.ensure_connection()
    if _taught.get(connection) is not connection.connection:
        connection.connection.create_function(_MERGE, 3, _set_key, deterministic=True)
        _taught[connection] = connection.connection


def _set_key(document: str | None, key: str, value: str) -> str:
    merged = json.loads(document or "{}")
    merged[key] = json.loads(value)
    return json.dumps(merged, ensure_ascii=False)
