"""PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from itertools import count
from typing import Any

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper

from pikku_storage.db.base import utc
from pikku_storage.db.fields import JsonTextField, MillisecondDateTimeField, PayloadEncoder, cut, encode, field_of
from pikku_storage.db.operations import Guard, Operation, Update
from pikku_storage.db.shapes import OperationShape, Shape, take_apart
from pikku_storage.db.sql import PLANS, Columns, Convert, Slot, Sql, SqlEngine, compose, exists, join

_TEXT = "varchar", "character varying"
_RELAX = ", set_config('synchronous_commit', 'off', true)"
"""As an answer of the one statement it is evaluated before that statement commits, and holds for nothing else."""


class PostgresqlEngine(SqlEngine):
    """Operations that belong together travel as one statement: a chain of data-modifying CTEs, one round trip, one
    commit."""

    # A list is one array: one text, and one prepared statement, however long it is.
    counts_lists = False

    def __init__(self, using: str) -> None:
        super().__init__(using)
        self._chain_of = lru_cache(maxsize=PLANS)(self._chain)
        self._taking_of = lru_cache(maxsize=PLANS)(self._taking)

    def server_time(self) -> datetime:
        """See `Engine.server_time`."""
        with self.connection.cursor() as cursor:
            cursor.execute("SELECT clock_timestamp()")
            row = cursor.fetchone()
        assert row is not None  # noqa: S101 - for the type checker
        return utc(row[0])

    def apply(self, first: Operation, *rest: Operation, durable: bool = True) -> tuple[int, ...]:
        """See `Engine.apply`."""
        connection = self.connection
        relaxed = _may_relax(connection, durable)
        if not (rest or relaxed):
            return super().apply(first)
        shape, values = take_apart((first, *rest), counts_lists=self.counts_lists)
        chain = self._chain_of(shape, relaxed)
        with connection.cursor() as cursor:
            chain.execute(cursor, values, connection)
            row = cursor.fetchone()
        assert row is not None  # noqa: S101 - for the type checker
        return self.answer(shape, row[: -1 if relaxed else None])

    def take(self, update: Update, columns: Sequence[str], *, durable: bool = True) -> dict[str, Any] | None:
        """See `Engine.take`. One statement."""
        connection = self.connection
        relaxed = _may_relax(connection, durable)
        (shape,), values = take_apart((update,), counts_lists=self.counts_lists)
        statement, taken = self._taking_of(shape, tuple(columns), relaxed)
        with connection.cursor() as cursor:
            statement.execute(cursor, values, connection)
            row = cursor.fetchone()
        return None if row is None else taken.row(row[: len(columns)], connection)

    def _taking(self, shape: OperationShape, names: tuple[str, ...], relaxed: bool) -> tuple[Sql, Columns]:
        columns = self.columns(shape[1], names)
        statement = compose(f"{{}} RETURNING {columns.text}", self.write(shape, count()))
        return (compose(f"WITH op0 AS ({{}}) SELECT *{_RELAX} FROM op0", statement) if relaxed else statement), columns

    def _chain(self, shape: Shape, relaxed: bool) -> Sql:
        places = count()
        # What follows a guard looks at the guard, and everything else at the first write.
        decisive = 1 if shape[0][0] is Guard else 0
        links = [
            compose(f"op{index} AS ({{}})", self._link(operation, places, after=min(index - 1, decisive)))
            for index, operation in enumerate(shape)
        ]
        writes = [index for index, operation in enumerate(shape) if operation[0] is not Guard]
        counts = ", ".join(f"(SELECT count(*) FROM op{index})" for index in writes)
        return compose(f"WITH {{}} SELECT {counts}{_RELAX if relaxed else ''}", join(", ", links))

    def _link(self, operation: OperationShape, places: count[int], *, after: int) -> Sql:
        """One CTE, which does something only if the one numbered `after` did (-1: none)."""
        if after < 0 and operation[0] is Guard:
            return compose("SELECT 1 FROM {}", self.rows(operation, places))
        condition = None if after < 0 else exists(Sql(f"op{after}"))
        return compose("{} RETURNING 1", self.write(operation, places, condition))

    def mark(self, field: models.Field[Any, Any]) -> str:
        """A parameter without a type (NULL) would become text. Text itself needs no cast, and must not have one: a cast
        to varchar(n) truncates silently, where the assignment refuses."""
        db_type = field.db_type(self.connection)
        return "%s" if db_type is None or db_type.startswith(_TEXT) else f"%s::{db_type}"

    def insert_many(
        self,
        model: type[models.Model],
        columns: str,
        common: Sequence[Sql],
        own: Sequence[str],
        conditions: Sequence[Sql],
        place: int,
    ) -> Sql:
        """See `SqlEngine.insert_many`. The rows are one parameter, a JSON text."""
        quoted = [self.connection.ops.quote_name(name) for name in own]
        types = [self._json_type(field_of(model, name)) for name in own]
        table = ", ".join(f"{name} {db_type}" for name, db_type in zip(quoted, types, strict=True))
        marks = join(", ", [*common, *[Sql(f"own.{name}") for name in quoted]])
        rows = Sql(
            f"jsonb_to_recordset(%s::jsonb) AS own({table})",
            ((place, _rows([field_of(model, name) for name in own], own)),),
        )
        insert = compose(f"INSERT INTO {self.table(model)} ({columns}) SELECT {{}} FROM {{}}", marks, rows)
        return join(" WHERE ", [insert, *conditions])

    def _json_type(self, field: models.Field[Any, Any]) -> str:
        # As with `mark`: text gets its length where it is assigned.
        db_type = str(field.db_type(self.connection))
        return "text" if db_type.startswith(_TEXT) else db_type

    def any_of(self, column: str, length: int, slot: Slot) -> Sql:
        """See `SqlEngine.any_of`."""
        place, convert = slot
        return Sql(f"{column} = ANY(%s)", ((place, _list(convert)),))

    def converter(self, field: models.Field[Any, Any]) -> Convert | None:
        """See `SqlEngine.converter`."""
        return _moment(field) if isinstance(field, MillisecondDateTimeField) else super().converter(field)

    def merge_json_key(self, model: type[models.Model], pk: str, field: str, key: str, value: Any, at: datetime) -> int:
        """See `Engine.merge_json_key`."""
        column = self.column(model, field)
        new = f"COALESCE({column}, '{{}}'::jsonb) || jsonb_build_object(%s::text, %s::jsonb)"
        return self.set_by_key(model, pk, f"{column} = {new}", [key, encode(value)], at)


def _may_relax(connection: BaseDatabaseWrapper, durable: bool) -> bool:
    """Inside a transaction it would relax all that the transaction does."""
    return not durable and connection.get_autocommit()


def _moment(field: MillisecondDateTimeField) -> Convert:
    def convert(value: datetime, connection: BaseDatabaseWrapper) -> Any:
        # The driver takes an aware time as it is.
        return field.get_prep_value(value) if value.tzinfo is None else cut(value)

    return convert


_encode_rows = PayloadEncoder(default=str).encode


def _rows(fields: Sequence[models.Field[Any, Any]], names: Sequence[str]) -> Convert:
    # Text that holds JSON is text here, and no part of the JSON around it.
    texts = [index for index, field in enumerate(fields) if isinstance(field, JsonTextField)]

    def convert(rows: Any, connection: BaseDatabaseWrapper) -> str:
        for index in texts:
            rows = [(*row[:index], fields[index].get_prep_value(row[index]), *row[index + 1 :]) for row in rows]
        return _encode_rows([dict(zip(names, row, strict=True)) for row in rows])

    return convert


def _list(convert: Convert | None) -> Convert:
    def convert_all(values: Any, connection: BaseDatabaseWrapper) -> list[Any]:
        return list(values) if convert is None else [convert(value, connection) for value in values]

    return convert_all
