"""Telling the shape of a call from its values.

The SQL of a call depends only on its shape: which operations, on which models and columns, compared how. An engine
writes it once per shape and keeps it, so that on the hot path a call costs the conversion of its values and nothing
else.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, TypeAlias

from django.db.models import Model

from pikku_storage.db.operations import (
    ABSENT,
    NOT_NULL,
    Conditions,
    Delete,
    Expired,
    Guard,
    Insert,
    InsertMany,
    KeepOr,
    Operation,
    OrNull,
    Update,
    Values,
)


class Form(IntEnum):
    """How a column is set or compared."""

    PLAIN = 0
    """Set to, or equal to, the value."""
    NULL = 1
    """Is null, or becomes it; takes no value."""
    ANY = 2
    """Is one of the values of a list."""
    EXPIRED = 3
    """Is null or at most the value."""
    OR_NULL = 4
    """Is null or the value."""
    KEEP = 5
    """Stays, or is set to the value where it is null."""
    NOT_NULL = 6
    """Is not null; takes no value."""
    EACH = 7
    """Set to a value of each row's own. All such columns share one value of the call, the list of the rows."""


# Plain constants: a lookup on an enum class costs as much as all else that is done for one column.
_PLAIN, _NULL, _ANY, _EXPIRED, _OR_NULL, _KEEP, _NOT_NULL, _EACH = Form

ColumnShape: TypeAlias = tuple[str, Form, int]
"""A column's attribute name, what is done with it, and how many values a list has (where that matters)."""
OperationShape: TypeAlias = tuple[type[Operation], type[Model], tuple[ColumnShape, ...], tuple[ColumnShape, ...]]
"""Kind of operation, model, what is set, what is compared."""
Shape: TypeAlias = tuple[OperationShape, ...]


def take_apart(operations: Sequence[Operation], *, counts_lists: bool) -> tuple[Shape, list[Any]]:
    """The shape of a call, and its values in the order of the shape's columns.

    A list is one value. With `counts_lists` its length is part of the shape.
    """
    values: list[Any] = []
    return tuple([_shape_of(operation, counts_lists, values) for operation in operations]), values


def _shape_of(operation: Operation, counts_lists: bool, values: list[Any]) -> OperationShape:
    if isinstance(operation, Insert):
        return Insert, operation.model, _sets(operation.values, values), ()
    if isinstance(operation, Update):
        sets = _sets(operation.values, values)
        return Update, operation.model, sets, _compares(operation.where, counts_lists, values)
    if isinstance(operation, InsertMany):
        own = tuple(operation.rows[0])
        sets = (*_sets(operation.common, values), *[(name, _EACH, 0) for name in own])
        # By name: the rows have the same columns, and not always in the same order.
        values.append([[row[name] for name in own] for row in operation.rows])
        return InsertMany, operation.model, sets, ()
    kind = Delete if isinstance(operation, Delete) else Guard
    return kind, operation.model, (), _compares(operation.where, counts_lists, values)


def _sets(columns: Values, values: list[Any]) -> tuple[ColumnShape, ...]:
    shape = []
    for name, value in columns.items():
        if value is None or value is ABSENT:
            shape.append((name, _NULL, 0))
        elif isinstance(value, KeepOr):
            shape.append((name, _KEEP, 0))
            values.append(value.value)
        else:
            shape.append((name, _PLAIN, 0))
            values.append(value)
    return tuple(shape)


def _compares(columns: Conditions, counts_lists: bool, values: list[Any]) -> tuple[ColumnShape, ...]:
    shape: list[ColumnShape] = []
    for name, value in columns.items():
        form, count = _PLAIN, 0
        if value is None or value is NOT_NULL:
            shape.append((name, _NULL if value is None else _NOT_NULL, 0))
            continue
        if isinstance(value, list | tuple):
            form, count = _ANY, len(value) if counts_lists else 0
        elif isinstance(value, OrNull):
            form, value = _OR_NULL, value.value
        elif isinstance(value, Expired):
            form, value = _EXPIRED, value.at
        shape.append((name, form, count))
        values.append(value)
    return tuple(shape)
