"""PostgreSQL."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from django.db import models

from pikku_storage.db.base import utc
from pikku_storage.db.operations import Guard, Insert, Operation
from pikku_storage.db.sql import SqlEngine, column_of, field_of, prepare, table_of


class PostgresqlEngine(SqlEngine):
    """Operations that belong together travel as one statement: a chain of data-modifying CTEs, one round trip, one
    commit."""

    def __init__(self, using: str) -> None:
        super().__init__(using)
        self._inserts: dict[tuple[type[models.Model], tuple[str, ...], str], str] = {}

    def server_time(self) -> datetime:
        """See `Engine.server_time`."""
        with self.connection.cursor() as cursor:
            cursor.execute("SELECT clock_timestamp()")
            row = cursor.fetchone()
        assert row is not None  # noqa: S101 - for the type checker
        return utc(row[0])

    def apply(self, first: Operation, *rest: Operation) -> tuple[int, ...]:
        """See `Engine.apply`."""
        if not rest:
            return super().apply(first)
        texts: list[str] = []
        parameters: list[Any] = []
        decisive = 1 if isinstance(first, Guard) else 0
        for index, operation in enumerate((first, *rest)):
            # What follows a guard looks at the guard, and everything else at the first write.
            text, values = self._link(operation, after=min(index - 1, decisive))
            texts.append(f"op{index} AS ({text})")
            parameters += values
        counts = ", ".join(f"(SELECT count(*) FROM op{index})" for index in range(len(texts)))
        with self.connection.cursor() as cursor:
            cursor.execute(f"WITH {', '.join(texts)} SELECT {counts}", parameters)
            row = cursor.fetchone()
        assert row is not None  # noqa: S101 - for the type checker
        return tuple(row)

    def _link(self, operation: Operation, *, after: int) -> tuple[str, list[Any]]:
        """One CTE, which does something only if the one numbered `after` did (-1: none)."""
        if isinstance(operation, Insert) and after >= 0:
            names = tuple(operation.values)
            parameters = prepare(self.connection, operation.model, operation.values.items())
            return f"{self._insert_from(operation.model, names, f'op{after}')} RETURNING 1", parameters
        text, parameters = self.statement(operation)
        if isinstance(operation, Guard):
            return text, parameters
        condition = "" if after < 0 else f" AND EXISTS (SELECT 1 FROM op{after})"
        return f"{text}{condition} RETURNING 1", parameters

    def _insert_from(self, model: type[models.Model], names: tuple[str, ...], source: str) -> str:
        shape = (model, names, source)
        if shape not in self._inserts:
            columns = ", ".join(column_of(model, name) for name in names)
            marks = ", ".join(self._typed_mark(field_of(model, name)) for name in names)
            self._inserts[shape] = f"INSERT INTO {table_of(model)} ({columns}) SELECT {marks} FROM {source}"
        return self._inserts[shape]

    def _typed_mark(self, field: models.Field[Any, Any]) -> str:
        # In a SELECT list a parameter without a type (NULL) would become text. Text itself needs no cast, and must not
        # have one: a cast to varchar(n) truncates silently, where the assignment refuses.
        db_type = field.db_type(self.connection)
        return "%s" if db_type is None or db_type.startswith("varchar") else f"%s::{db_type}"

    def merge_json_key(self, model: type[models.Model], pk: str, field: str, key: str, value: Any, at: datetime) -> int:
        """See `Engine.merge_json_key`."""
        column, primary_key = column_of(model, field), model._meta.pk.attname
        with self.connection.cursor() as cursor:
            cursor.execute(
                f"UPDATE {table_of(model)} "
                f"SET {column} = COALESCE({column}, '{{}}'::jsonb) || jsonb_build_object(%s::text, %s::jsonb), "
                f"{column_of(model, 'updated_at')} = %s WHERE {column_of(model, primary_key)} = %s",
                [key, json.dumps(value), *prepare(self.connection, model, [("updated_at", at), (primary_key, pk)])],
            )
            return int(cursor.rowcount)
