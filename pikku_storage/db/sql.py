"""Operations as SQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from itertools import count
from typing import Any, TypeAlias

from django.db import models, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from pikku_storage.db.base import Engine
from pikku_storage.db.fields import ExactCharField, PayloadField, encode
from pikku_storage.db.operations import Guard, Insert, Operation
from pikku_storage.db.shapes import ColumnShape, Form, OperationShape, Shape, take_apart

PLANS = 512
"""How many plans an engine keeps. The package's own calls have some thirty shapes; only lists make more."""

_AS_THEY_ARE = (ExactCharField, models.CharField, models.TextField, models.IntegerField, models.BooleanField)
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
    """A piece of SQL, and its parameters in the order of the text."""

    text: str
    slots: tuple[Slot, ...] = ()

    def parameters(self, values: Sequence[Any], connection: BaseDatabaseWrapper) -> list[Any]:
        """What the driver is given beside the text."""
        parameters = []
        for place, convert in self.slots:
            value = values[place]
            parameters.append(value if convert is None or value is None else convert(value, connection))
        return parameters


def compose(template: str, *parts: Sql) -> Sql:
    """The template with its `{}` filled."""
    return Sql(template.format(*[part.text for part in parts]), tuple([slot for part in parts for slot in part.slots]))


def join(separator: str, parts: Sequence[Sql]) -> Sql:
    """The parts one after the other."""
    return compose(separator.join(["{}"] * len(parts)), *parts)


def exists(rows: Sql) -> Sql:
    """Whether there is such a row."""
    return compose("EXISTS (SELECT 1 FROM {})", rows)


def field_of(model: type[models.Model], name: str) -> models.Field[Any, Any]:
    """The concrete field behind an attribute name such as `run_id`."""
    field = model._meta.get_field(name)
    assert isinstance(field, models.Field)  # noqa: S101 - no relation is ever named here
    return field


class SqlEngine(Engine):
    """Plain SQL: one statement an operation, one transaction around them. A guard is folded into the write after it."""

    counts_lists = True
    """Whether the text depends on how long a list is."""

    def __init__(self, using: str) -> None:
        super().__init__(using)
        self._statements_of = lru_cache(maxsize=PLANS)(self._statements)

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
                cursor.execute(statement.text, statement.parameters(values, connection))
                counts.append(cursor.rowcount)
                if not counts[0]:
                    return (0,) * len(statements)
        return tuple(counts)

    def set_by_key(
        self, model: type[models.Model], pk: str, assignment: str, parameters: Sequence[Any], at: datetime
    ) -> int:
        """Make an assignment that is SQL, and set `updated_at`, on one row. Answers with the number of rows."""
        primary_key = model._meta.pk.attname
        connection = self.connection
        convert = self.converter(field_of(model, "updated_at"))
        with connection.cursor() as cursor:
            cursor.execute(
                f"UPDATE {self.table(model)} SET {assignment}, {self.column(model, 'updated_at')} = %s "
                f"WHERE {self.column(model, primary_key)} = %s",
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
        """An INSERT or UPDATE that happens only where `condition` holds. `places` counts the values of the call."""
        kind, model, sets, compares = operation
        if kind is Guard:
            raise ValueError("A guard stands first")
        conditions = [] if condition is None else [condition]
        if kind is Insert:
            columns = ", ".join(self.column(model, name) for name, _, _ in sets)
            marks = join(", ", [self._mark(model, name, places) for name, _, _ in sets])
            insert = compose(f"INSERT INTO {self.table(model)} ({columns}) SELECT {{}}", marks)
            return join(" WHERE ", [insert, *conditions])
        assignments = join(", ", [self._assignment(model, column, places) for column in sets])
        update = compose(f"UPDATE {self.table(model)} SET {{}}", assignments)
        return compose("{} WHERE {}", update, join(" AND ", [*self._comparisons(model, compares, places), *conditions]))

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
        slot = next(places), self.converter(field_of(model, name))
        return Sql(_SETS[form].format(self.column(model, name)), (slot,))

    def _comparisons(
        self, model: type[models.Model], compares: Sequence[ColumnShape], places: Iterator[int]
    ) -> list[Sql]:
        return [self._comparison(model, column, places) for column in compares]

    def _comparison(self, model: type[models.Model], shape: ColumnShape, places: Iterator[int]) -> Sql:
        name, form, length = shape
        column = self.column(model, name)
        if form is Form.NULL:
            return Sql(f"{column} IS NULL")
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


def _as_json(value: Any, connection: BaseDatabaseWrapper) -> str:
    return encode(value)


def _item(index: int, convert: Convert | None) -> Convert:
    if convert is None:
        return lambda values, connection: values[index]
    return lambda values, connection: convert(values[index], connection)
