"""Model fields that behave the same on every database."""

from __future__ import annotations

import json
import re
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper

if TYPE_CHECKING:
    _CharField = models.CharField[Any, Any]
    _DateTimeField = models.DateTimeField[Any, Any]
else:
    # Generic for the type checker only.
    _CharField = models.CharField
    _DateTimeField = models.DateTimeField

ID_LENGTH = 255

_TEXT_OR_LARGE_NUMBER = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|(-?[0-9.]+e\+[0-9]+)')


def cut(moment: datetime) -> datetime:
    """`moment` without what is finer than a millisecond."""
    finer = moment.microsecond % 1000
    return moment.replace(microsecond=moment.microsecond - finer) if finer else moment


class IdField(_CharField):
    """An id: text made by the application, of any shape up to 255 characters, compared by its bytes.

    PostgreSQL compares text by the rules of a language unless it is told otherwise. By its bytes it is quicker, and one
    index serves equality, order and prefixes; Django would give a column of the type `varchar` a second one for the
    prefixes, which each new row must be added to.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{"max_length": ID_LENGTH, **options})

    def db_type(self, connection: BaseDatabaseWrapper) -> str | None:
        """The same type by its long name, by which Django makes no second index."""
        db_type = super().db_type(connection)
        return db_type and db_type.replace("varchar", "character varying") if _is_postgresql(connection) else db_type

    def db_parameters(self, connection: BaseDatabaseWrapper) -> Any:
        """With the collation, which foreign keys to the column take over."""
        parameters = super().db_parameters(connection)
        return {**parameters, "collation": "C"} if _is_postgresql(connection) else parameters


def _is_postgresql(connection: BaseDatabaseWrapper) -> bool:
    return connection.vendor == "postgresql"


class MillisecondDateTimeField(_DateTimeField):
    """An aware time, cut to the milliseconds that MongoDB keeps, so that comparing for equality works everywhere."""

    def get_prep_value(self, value: Any) -> Any:
        """Cut what is finer than a millisecond."""
        value = super().get_prep_value(value)
        return cut(value) if isinstance(value, datetime) else value


class PayloadEncoder(json.JSONEncoder):
    """Writes large floats as digits: `1e+20` as `100000000000000000000.0`.

    PostgreSQL's jsonb keeps no exponent but does keep a fraction, and without one a float would read back as an
    integer.
    """

    def encode(self, o: Any) -> str:
        """See `json.JSONEncoder.encode`."""
        text = super().encode(o)
        return _TEXT_OR_LARGE_NUMBER.sub(_spell_out, text) if "e+" in text else text


def _spell_out(match: re.Match[str]) -> str:
    number = match[1]
    return match[0] if number is None else f"{Decimal(number):f}.0"


encode = PayloadEncoder().encode
"""JSON text of a payload, the same wherever it is written."""


class PayloadField(models.JSONField):
    """JSON that nobody filters by. Values come from `pikku_storage.json.to_json`; SQL NULL is `None`."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{**options, "encoder": PayloadEncoder})

    def deconstruct(self) -> Any:
        """How values are written is no matter of migrations."""
        name, path, args, options = super().deconstruct()
        del options["encoder"]
        return name, path, args, options


def field_of(model: type[models.Model], name: str) -> models.Field[Any, Any]:
    """The concrete field behind an attribute name such as `run_id`."""
    field = model._meta.get_field(name)
    assert isinstance(field, models.Field)  # noqa: S101 - no relation is ever named here
    return field
