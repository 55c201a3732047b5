"""PostgreSQL."""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache
from itertools import count
from typing import Any

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper

from pikku_storage.db.base import utc
from pikku_storage.db.fields import MillisecondDateTimeField, cut, encode
from pikku_storage.db.operations import Guard, Operation
from pikku_storage.db.shapes import OperationShape, Shape, take_apart
from pikku_storage.db.sql import PLANS, Convert, Slot, Sql, SqlEngine, compose, exists, join

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
        # Inside a transaction it would relax all that the transaction does.
        relaxed = not durable and connection.get_autocommit()
        if not (rest or relaxed):
            return super().apply(first)
        shape, values = take_apart((first, *rest), counts_lists=self.counts_lists)
        chain = self._chain_of(shape, relaxed)
        with connection.cursor() as cursor:
            cursor.execute(chain.text, chain.parameters(values, connection))
            row = cursor.fetchone()
        assert row is not None  # noqa: S101 - for the type checker
        return self.answer(shape, row[: -1 if relaxed else None])

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
        return "%s" if db_type is None or db_type.startswith("varchar") else f"%s::{db_type}"

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


def _moment(field: MillisecondDateTimeField) -> Convert:
    def convert(value: datetime, connection: BaseDatabaseWrapper) -> Any:
        # The driver takes an aware time as it is.
        return field.get_prep_value(value) if value.tzinfo is None else cut(value)

    return convert


def _list(convert: Convert | None) -> Convert:
    def convert_all(values: Any, connection: BaseDatabaseWrapper) -> list[Any]:
        return list(values) if convert is None else [convert(value, connection) for value in values]

    return convert_all
