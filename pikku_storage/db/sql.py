"""Operations as SQL text.

The text depends only on the shape of an operation (model, column names, kinds of conditions), never on its values, so
it is built once per shape and cached: on the hot path an operation costs the conversion of its parameters and nothing
else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from functools import cache, lru_cache
from typing import Any, TypeAlias

from django.db import models, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from pikku_storage.db.base import Engine
from pikku_storage.db.operations import Conditions, Expired, Guard, Insert, KeepOr, Operation, OrNull, Values

Shape: TypeAlias = tuple[tuple[str, Any], ...]
_EQUAL, _NULL, _EXPIRED, _OR_NULL, _SET, _KEEP = "=", "null", "expired", "or null", "set", "keep"


def quote(name: str) -> str:
    """An identifier of ours, quoted as the SQL standard does."""
    return f'"{name}"'


@cache
def field_of(model: type[models.Model], name: str) -> models.Field[Any, Any]:
    """The concrete field behind an attribute name such as `run_id`."""
    field = model._meta.get_field(name)
    assert isinstance(field, models.Field)  # noqa: S101 - no relation is ever named here
    return field


@cache
def column_of(model: type[models.Model], name: str) -> str:
    """The quoted column behind an attribute name."""
    return quote(str(field_of(model, name).column))


def table_of(model: type[models.Model]) -> str:
    """The quoted table of a model."""
    return quote(model._meta.db_table)


def conditions_shape(where: Conditions) -> Shape:
    """What of `where` decides its SQL text."""
    return tuple((name, _kind(value)) for name, value in where.items())


def _kind(value: Any) -> Any:
    if value is None:
        return _NULL
    if isinstance(value, list | tuple):
        return len(value)
    if isinstance(value, OrNull):
        return _OR_NULL
    return _EXPIRED if isinstance(value, Expired) else _EQUAL


def values_shape(values: Values) -> Shape:
    """What of `values` decides the SQL text of a SET."""
    return tuple((name, _KEEP if isinstance(value, KeepOr) else _SET) for name, value in values.items())


@lru_cache(maxsize=1024)
def where_text(model: type[models.Model], shape: Shape) -> str:
    """A conjunction of conditions."""
    texts = []
    for name, kind in shape:
        column = column_of(model, name)
        if kind == _EQUAL:
            texts.append(f"{column} = %s")
        elif kind == _NULL:
            texts.append(f"{column} IS NULL")
        elif kind == _EXPIRED:
            texts.append(f"({column} IS NULL OR {column} <= %s)")
        elif kind == _OR_NULL:
            texts.append(f"({column} IS NULL OR {column} = %s)")
        else:
            texts.append(f"{column} IN ({', '.join(['%s'] * kind)})")
    return " AND ".join(texts)


@lru_cache(maxsize=1024)
def set_text(model: type[models.Model], shape: Shape) -> str:
    """The assignments of an UPDATE."""
    return ", ".join(
        f"{column_of(model, name)} = COALESCE({column_of(model, name)}, %s)"
        if kind == _KEEP
        else f"{column_of(model, name)} = %s"
        for name, kind in shape
    )


@lru_cache(maxsize=1024)
def insert_text(model: type[models.Model], names: tuple[str, ...], source: str) -> str:
    """An INSERT of one row; with a `source` (`table WHERE …`) only if that has a row."""
    columns = ", ".join(column_of(model, name) for name in names)
    marks = ", ".join(["%s"] * len(names))
    head = f"INSERT INTO {table_of(model)} ({columns}) "
    return head + (f"SELECT {marks} FROM {source}" if source else f"VALUES ({marks})")


def prepare(connection: BaseDatabaseWrapper, model: type[models.Model], items: Iterable[tuple[str, Any]]) -> list[Any]:
    """Parameters for these columns, as the connection's driver wants them."""
    parameters: list[Any] = []
    for name, value in items:
        field = field_of(model, name)
        if isinstance(value, list | tuple) and not isinstance(field, models.JSONField):
            parameters.extend(field.get_db_prep_save(item, connection) for item in value)
        else:
            if isinstance(value, Expired):
                value = value.at
            elif isinstance(value, KeepOr | OrNull):
                value = value.value
            parameters.append(None if value is None else field.get_db_prep_save(value, connection))
    return parameters


def where_parameters(connection: BaseDatabaseWrapper, model: type[models.Model], where: Conditions) -> list[Any]:
    """The parameters of `where_text`."""
    return prepare(connection, model, ((name, value) for name, value in where.items() if value is not None))


class SqlEngine(Engine):
    """Plain SQL: one statement an operation, one transaction around them. A guard is folded into the write after it."""

    def apply(self, first: Operation, *rest: Operation) -> tuple[int, ...]:
        """See `Engine.apply`."""
        guard = first if isinstance(first, Guard) else None
        writes = rest if isinstance(first, Guard) else (first, *rest)
        with nullcontext() if len(writes) == 1 else transaction.atomic(using=self.using):
            counts = self._run(writes, guard)
        return counts if guard is None else (counts[0], *counts)

    def _run(self, writes: Sequence[Operation], guard: Guard | None) -> tuple[int, ...]:
        counts: list[int] = []
        with self.connection.cursor() as cursor:
            for write in writes:
                cursor.execute(*self.statement(write, None if counts else guard))
                counts.append(cursor.rowcount)
                if not counts[0]:
                    return (0,) * len(writes)
        return tuple(counts)

    def statement(self, operation: Operation, guard: Guard | None = None) -> tuple[str, list[Any]]:
        """The SQL and parameters of one write, which a guard makes conditional."""
        model = operation.model
        if isinstance(operation, Insert):
            source: str = ""
            parameters: list[Any] = []
            if guard is not None:
                source, parameters = self._rows_of(guard)
            text = insert_text(model, tuple(operation.values), source)
            return text, prepare(self.connection, model, operation.values.items()) + parameters
        if isinstance(operation, Guard):
            source, parameters = self._rows_of(operation)
            return f"SELECT 1 FROM {source}", parameters
        text = f"UPDATE {table_of(model)} SET {set_text(model, values_shape(operation.values))}"
        text += f" WHERE {where_text(model, conditions_shape(operation.where))}"
        parameters = prepare(self.connection, model, operation.values.items())
        parameters += where_parameters(self.connection, model, operation.where)
        if guard is None:
            return text, parameters
        source, guard_parameters = self._rows_of(guard)
        return f"{text} AND EXISTS (SELECT 1 FROM {source})", parameters + guard_parameters

    def _rows_of(self, guard: Guard) -> tuple[str, list[Any]]:
        condition = where_text(guard.model, conditions_shape(guard.where))
        parameters = where_parameters(self.connection, guard.model, guard.where)
        return f"{table_of(guard.model)} WHERE {condition}", parameters
