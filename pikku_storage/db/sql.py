"""Operations as SQL."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from itertools import count
from typing import Any, TypeAlias

from django.db import models, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import CursorWrapper

from pikku_storage.db.base import Engine
from pikku_storage.db.fields import (
    ExactCharField,
    JsonTextField,
    MillisecondDateTimeField,
    PayloadField,
    encode,
    field_of,
)
from pikku_storage.db.operations import (
    Conditions,
    Delete,
    Guard,
    Insert,
    InsertMany,
    Operation,
    Swap,
    Values,
    columns_of,
)
from pikku_storage.db.shapes import ColumnShape, Form, OperationShape, Shape, take_apart

PLANS = 512
"""How many plans an engine keeps. The package's own calls have some thirty shapes; only lists make more."""

_AS_THEY_ARE = (ExactCharField, models.CharField, models.TextField, models.IntegerField, models.BooleanField)
_WITHOUT_VALUE = {Form.NULL: "{0} IS NULL", Form.NOT_NULL: "{0} IS NOT NULL"}
_SETS = {Form.PLAIN: "{0} = %s", Form.KEEP: "{0} = COALESCE({0}, %s)"}
_COMPARES = {
    Form.PLAIN: "{0} = %s",
    Form.EXPIRED: "({0} IS NULL OR {0} <= %s)",
    Form.OR_NULL: "({0} IS NULL OR {0} = %s)",
}

Convert: TypeAlias = Callable[[Any, BaseDatabaseWrapper], Any]
"""Makes of a column's value, which is not `None`, what the driver takes."""
Slot: TypeAlias = tuple[int, Convert | None]
"""A parameter: the place of its value among the values of a call, and what converts it."""


@dataclass(frozen=True, slots=True)
class Sql:
    """A piece of SQL, and its parameters in the order of the text.

    `rows_at` is the place of a list of rows: the statement is carried out for each of them, which then stands there.
    """

    text: str
    slots: tuple[Slot, ...] = ()
    rows_at: int | None = None

    def parameters(self, values: Sequence[Any], connection: BaseDatabaseWrapper) -> list[Any]:
        """What the driver is given beside the text."""
        parameters = []
        for place, convert in self.slots:
            value = values[place]
            parameters.append(value if convert is None or value is None else convert(value, connection))
        return parameters

    def execute(self, cursor: CursorWrapper, values: Sequence[Any], connection: BaseDatabaseWrapper) -> None:
        """Carry it out with the values of a call."""
        if self.rows_at is None:
            cursor.execute(self.text, self.parameters(values, connection))
        else:
            before, rows, after = values[: self.rows_at], values[self.rows_at], values[self.rows_at + 1 :]
            cursor.executemany(self.text, [self.parameters([*before, row, *after], connection) for row in rows])


@dataclass(frozen=True, slots=True)
class Columns:
    """What a query selects: SQL, and for each column its name and what converts its values."""

    text: str
    names: tuple[str, ...]
    converters: tuple[tuple[str, Convert], ...]

    def row(self, values: Sequence[Any], connection: BaseDatabaseWrapper) -> dict[str, Any]:
        """A row by names."""
        row = dict(zip(self.names, values, strict=True))
        for name, convert in self.converters:
            if row[name] is not None:
                row[name] = convert(row[name], connection)
        return row


def compose(template: str, *parts: Sql) -> Sql:
    """The template with its `{}` filled."""
    return Sql(template.format(*[part.text for part in parts]), tuple([slot for part in parts for slot in part.slots]))


def join(separator: str, parts: Sequence[Sql]) -> Sql:
    """The parts one after the other."""
    return compose(separator.join(["{}"] * len(parts)), *parts)


def exists(rows: Sql) -> Sql:
    """Whether there is such a row."""
    return compose("EXISTS (SELECT 1 FROM {})", rows)


class SqlEngine(Engine):
    """Plain SQL: one statement an operation, one transaction around them. A guard is folded into the write after it."""

    counts_lists = True
    """Whether the text depends on how long a list is."""

    def __init__(self, using: str) -> None:
        super().__init__(using)
        self._statements_of = lru_cache(maxsize=PLANS)(self._statements)
        self._query_of = lru_cache(maxsize=PLANS)(self._query)

    def apply(self, first: Operation, *rest: Operation, durable: bool = True) -> tuple[int, ...]:
        """See `Engine.apply`."""
        shape, values = take_apart((first, *rest), counts_lists=self.counts_lists)
        statements = self._statements_of(shape)
        with nullcontext() if len(statements) == 1 else transaction.atomic(using=self.using):
            return self.answer(shape, self._run(statements, values))

    def answer(self, shape: Shape, counts: tuple[int, ...]) -> tuple[int, ...]:
        """What `apply` answers with, from the counts of the writes: a guard has that of the write it decides with."""
        return (counts[0], *counts) if shape[0][0] is Guard else counts

    def _run(self, statements: Sequence[Sql], values: Sequence[Any]) -> tuple[int, ...]:
        connection = self.connection
        counts: list[int] = []
        with connection.cursor() as cursor:
            for statement in statements:
                statement.execute(cursor, values, connection)
                counts.append(cursor.rowcount)
                if not counts[0]:
                    return (0,) * len(statements)
        return tuple(counts)

    def read(
        self,
        model: type[models.Model],
        where: Conditions,
        columns: Sequence[str],
        *,
        order_by: Sequence[str] = (),
        limit: int | None = None,
    ) -> list[dict[str, Any]]:
        """See `Engine.read`."""
        (shape,), values = take_apart((Guard(model, where),), counts_lists=self.counts_lists)
        query, selected = self._query_of(shape, tuple(columns), tuple(order_by), limit)
        connection = self.connection
        with connection.cursor() as cursor:
            query.execute(cursor, values, connection)
            return [selected.row(row, connection) for row in cursor.fetchall()]

    def swap(self, model: type[models.Model], column: str, swaps: Sequence[Swap], common: Values) -> int:
        """See `Engine.swap`."""
        if not swaps:
            return 0
        connection, primary_key = self.connection, model._meta.pk
        own = columns_of(swaps)
        assignments = ", ".join(f"{self.column(model, name)} = %s" for name in (*own, *common))
        key, seen = self.column(model, primary_key.attname), self.column(model, column)
        text = f"UPDATE {self.table(model)} SET {assignments} WHERE {key} = %s AND {seen} = %s"
        shared = [field_of(model, name).get_db_prep_save(value, connection) for name, value in common.items()]
        rows = [
            [
                *[swap.values[name] for name in own],
                *shared,
                primary_key.get_db_prep_value(swap.pk, connection),
                swap.seen,
            ]
            for swap in swaps
        ]

        def write() -> int:
            with transaction.atomic(using=self.using), connection.cursor() as cursor:
                cursor.executemany(text, rows)
                return int(cursor.rowcount)

        return self.retrying(write)

    def set_by_key(
        self,
        model: type[models.Model],
        pk: str,
        assignment: str,
        parameters: Sequence[Any],
        at: datetime,
        *,
        condition: str = "TRUE",
    ) -> int:
        """Make an assignment that is SQL, and set `updated_at`, on one row that meets the condition. Answers with the
        number of rows."""
        primary_key = model._meta.pk.attname
        connection = self.connection
        convert = self.converter(field_of(model, "updated_at"))
        with connection.cursor() as cursor:
            cursor.execute(
                f"UPDATE {self.table(model)} SET {assignment}, {self.column(model, 'updated_at')} = %s "
                f"WHERE {self.column(model, primary_key)} = %s AND {condition}",
                [*parameters, at if convert is None else convert(at, connection), pk],
            )
            return int(cursor.rowcount)

    # -- text, written once per shape ----------------------------------------------------------------------------------

    def _statements(self, shape: Shape) -> tuple[Sql, ...]:
        places = count()
        condition, writes = None, shape
        if shape[0][0] is Guard:
            condition, writes = exists(self.rows(shape[0], places)), shape[1:]
        if not writes:
            raise ValueError("A guard decides about the write after it; there is none")
        first, *rest = writes
        return (self.write(first, places, condition), *[self.write(operation, places) for operation in rest])

    def write(self, operation: OperationShape, places: Iterator[int], condition: Sql | None = None) -> Sql:
        """An INSERT, UPDATE or DELETE that happens only where `condition` holds. `places` counts the values of the
        call."""
        kind, model, sets, compares = operation
        if kind is Guard:
            raise ValueError("A guard stands first")
        conditions = [] if condition is None else [condition]
        if kind in (Insert, InsertMany):
            return self._insert(model, sets, conditions, places)
        change = Sql(f"DELETE FROM {self.table(model)}")
        if kind is not Delete:
            assignments = join(", ", [self._assignment(model, column, places) for column in sets])
            change = compose(f"UPDATE {self.table(model)} SET {{}}", assignments)
        return compose("{} WHERE {}", change, join(" AND ", [*self._comparisons(model, compares, places), *conditions]))

    def _insert(
        self, model: type[models.Model], sets: Sequence[ColumnShape], conditions: Sequence[Sql], places: Iterator[int]
    ) -> Sql:
        # A column that is left out is null.
        common = [name for name, form, _ in sets if form is Form.PLAIN]
        own = [name for name, form, _ in sets if form is Form.EACH]
        columns = ", ".join(self.column(model, name) for name in (*common, *own))
        marks = [self._mark(model, name, places) for name in common]
        if own:
            return self.insert_many(model, columns, marks, own, conditions, next(places))
        insert = compose(f"INSERT INTO {self.table(model)} ({columns}) SELECT {{}}", join(", ", marks))
        return join(" WHERE ", [insert, *conditions])

    def insert_many(
        self,
        model: type[models.Model],
        columns: str,
        common: Sequence[Sql],
        own: Sequence[str],
        conditions: Sequence[Sql],
        place: int,
    ) -> Sql:
        """An INSERT of the rows at `place`, whose `own` columns come after the `common` ones."""
        marks = list(common)
        for index, name in enumerate(own):
            field = field_of(model, name)
            marks.append(Sql(self.mark(field), ((place, _item(index, self.converter(field))),)))
        insert = compose(f"INSERT INTO {self.table(model)} ({columns}) SELECT {{}}", join(", ", marks))
        return replace(join(" WHERE ", [insert, *conditions]), rows_at=place)

    def _query(
        self, guard: OperationShape, names: tuple[str, ...], order_by: tuple[str, ...], limit: int | None
    ) -> tuple[Sql, Columns]:
        model = guard[1]
        columns = self.columns(model, names)
        foreign = {name.partition("__")[0] for name in names if "__" in name}
        tables = self.table(model) + "".join(self._join(model, key) for key in sorted(foreign))
        where = join(" AND ", self._comparisons(model, guard[3], count()))
        order = ", ".join(self._qualified(model, name) for name in order_by)
        tail = (f" ORDER BY {order}" if order else "") + ("" if limit is None else f" LIMIT {limit}")
        return compose(f"SELECT {columns.text} FROM {tables} WHERE {{}}{tail}", where), columns

    def columns(self, model: type[models.Model], names: tuple[str, ...]) -> Columns:
        """The columns of these names, to be selected."""
        texts, converters = [], []
        for name in names:
            key, _, foreign = name.partition("__")
            owner, own = (self._target(model, key), foreign) if foreign else (model, name)
            texts.append(self._qualified(owner, own))
            reader = self.reader(field_of(owner, own))
            if reader is not None:
                converters.append((name, reader))
        return Columns(", ".join(texts), names, tuple(converters))

    def _join(self, model: type[models.Model], key: str) -> str:
        target = self._target(model, key)
        primary_key = self._qualified(target, target._meta.pk.attname)
        return f" INNER JOIN {self.table(target)} ON {self._qualified(model, f'{key}_id')} = {primary_key}"

    def _target(self, model: type[models.Model], key: str) -> type[models.Model]:
        foreign_key = model._meta.get_field(key)
        assert isinstance(foreign_key, models.ForeignKey)  # noqa: S101 - nothing else is followed
        target: type[models.Model] = foreign_key.related_model
        return target

    def _qualified(self, model: type[models.Model], name: str) -> str:
        return f"{self.table(model)}.{self.column(model, name)}"

    def rows(self, guard: OperationShape, places: Iterator[int]) -> Sql:
        """The rows that a guard asks for, to stand after FROM."""
        _, model, _, compares = guard
        where = join(" AND ", self._comparisons(model, compares, places))
        return compose(f"{self.table(model)} WHERE {{}}", where)

    def table(self, model: type[models.Model]) -> str:
        """The quoted table of a model."""
        return self.connection.ops.quote_name(model._meta.db_table)

    def column(self, model: type[models.Model], name: str) -> str:
        """The quoted column behind an attribute name."""
        return self.connection.ops.quote_name(str(field_of(model, name).column))

    def mark(self, field: models.Field[Any, Any]) -> str:
        """The parameter for a column in the SELECT of an INSERT."""
        return "%s"

    def any_of(self, column: str, length: int, slot: Slot) -> Sql:
        """The condition that the column is one of a list's values."""
        place, convert = slot
        marks = ", ".join(["%s"] * length)
        return Sql(f"{column} IN ({marks})", tuple((place, _item(index, convert)) for index in range(length)))

    def _mark(self, model: type[models.Model], name: str, places: Iterator[int]) -> Sql:
        field = field_of(model, name)
        return Sql(self.mark(field), ((next(places), self.converter(field)),))

    def _assignment(self, model: type[models.Model], shape: ColumnShape, places: Iterator[int]) -> Sql:
        name, form, _ = shape
        if form is Form.NULL:
            return Sql(f"{self.column(model, name)} = NULL")
        slot = next(places), self.converter(field_of(model, name))
        return Sql(_SETS[form].format(self.column(model, name)), (slot,))

    def _comparisons(
        self, model: type[models.Model], compares: Sequence[ColumnShape], places: Iterator[int]
    ) -> list[Sql]:
        return [self._comparison(model, column, places) for column in compares]

    def _comparison(self, model: type[models.Model], shape: ColumnShape, places: Iterator[int]) -> Sql:
        name, form, length = shape
        column = self._qualified(model, name)
        if form in _WITHOUT_VALUE:
            return Sql(_WITHOUT_VALUE[form].format(column))
        slot = next(places), self.converter(field_of(model, name))
        if form is Form.ANY:
            return self.any_of(column, length, slot)
        return Sql(_COMPARES[form].format(column), (slot,))

    # -- values --------------------------------------------------------------------------------------------------------

    def converter(self, field: models.Field[Any, Any]) -> Convert | None:
        """What converts the values of a column; `None` if the driver takes them as they are."""
        if isinstance(field, models.ForeignKey):
            return self.converter(field.target_field)
        if isinstance(field, PayloadField):
            return _as_json
        # Not their subclasses, which may do something to a value.
        return None if type(field) in _AS_THEY_ARE else field.get_db_prep_save

    def reader(self, field: models.Field[Any, Any]) -> Convert | None:
        """What makes of a value that the driver answers with the field's own; `None` if it is that."""
        if isinstance(field, models.ForeignKey):
            return self.reader(field.target_field)
        if isinstance(field, PayloadField | JsonTextField):
            return _from_json
        if isinstance(field, MillisecondDateTimeField):
            return _aware
        return _true_or_false if isinstance(field, models.BooleanField) else None


def _from_json(value: Any, connection: BaseDatabaseWrapper) -> Any:
    return json.loads(value)


def _aware(value: Any, connection: BaseDatabaseWrapper) -> datetime:
    moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=connection.timezone)


def _true_or_false(value: Any, connection: BaseDatabaseWrapper) -> bool:
    return bool(value)


def _as_json(value: Any, connection: BaseDatabaseWrapper) -> str:
    return encode(value)


def _item(index: int, convert: Convert | None) -> Convert:
    if convert is None:
        return lambda values, connection: values[index]
    return lambda values, connection: None if values[index] is None else convert(values[index], connection)
