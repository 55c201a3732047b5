"""Model fields that behave the same on every database."""

from __future__ import annotations

import json
import re
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper

from pikku_storage.db.documents import VENDOR
from pikku_storage.db.plain import to_plain

if TYPE_CHECKING:
    _CharField = models.CharField[Any, Any]
    _TextField = models.TextField[Any, Any]
    _DateTimeField = models.DateTimeField[Any, Any]
else:
    # Generic for the type checker only.
    _CharField = models.CharField
    _TextField = models.TextField
    _DateTimeField = models.DateTimeField

ID_LENGTH = 255
_TEXT_OR_LARGE_NUMBER = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|(-?[0-9.]+e\+[0-9]+)')


def cut(moment: datetime) -> datetime:
    """`moment` without what is finer than a millisecond."""
    finer = moment.microsecond % 1000
    return moment.replace(microsecond=moment.microsecond - finer) if finer else moment


def _exact(parameters: Any, connection: Any) -> Any:
    """The parameters of a text column, with the collation that compares texts by their bytes.

    By default a MariaDB or MySQL database takes "a", "A", "ä" and "a " for the same, and PostgreSQL orders text by the
    rules of a language, which takes longer.
    """
    if connection.vendor == "mysql":
        return {**parameters, "collation": "utf8mb4_nopad_bin" if connection.mysql_is_mariadb else "utf8mb4_0900_bin"}
    return {**parameters, "collation": "C"} if connection.vendor == "postgresql" else parameters


class ExactCharField(_CharField):
    """Short text that equals nothing but itself, on every database: case, accents and trailing spaces count. It is
    ordered by its bytes.

    It may be null: in the contract's tables a text that is absent differs from an empty one.
    """

    def db_type(self, connection: BaseDatabaseWrapper) -> str | None:
        """On PostgreSQL by the type's long name: to a key of type `varchar` Django adds a second index, for prefixes,
        and by its bytes one index serves equality, order and prefixes."""
        db_type = super().db_type(connection)
        is_postgresql = connection.vendor == "postgresql"
        return db_type.replace("varchar", "character varying") if db_type and is_postgresql else db_type

    def db_parameters(self, connection: BaseDatabaseWrapper) -> Any:
        """See `_exact`; foreign keys to the column take it over."""
        return _exact(super().db_parameters(connection), connection)


def text_id(**options: Any) -> ExactCharField:
    """A column that holds an id: text, made by the application, of any shape up to 255 characters."""
    return ExactCharField(max_length=ID_LENGTH, **options)


class ExactTextField(_TextField):
    """Long text, compared as an `ExactCharField` is."""

    def db_parameters(self, connection: BaseDatabaseWrapper) -> Any:
        """See `_exact`."""
        return _exact(super().db_parameters(connection), connection)


class JsonTextField(ExactTextField):
    """Any JSON, kept as text on every database; NULL is `None`. For what the contract keeps so on MongoDB as well."""

    def get_prep_value(self, value: Any) -> Any:
        """The text."""
        return None if value is None else _encode_text(value)

    def from_db_value(self, value: Any, expression: Any, connection: BaseDatabaseWrapper) -> Any:
        """The value. Text that is no JSON, which another program may have written, is itself."""
        if not isinstance(value, str):
            return to_plain(value)
        try:
            return json.loads(value)
        except ValueError:
            return value

    def value_to_string(self, obj: models.Model) -> Any:
        """See `Field.value_to_string`: fixtures hold the value."""
        return self.value_from_object(obj)


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
_encode_text = PayloadEncoder(ensure_ascii=False, separators=(",", ":")).encode


class PayloadField(models.JSONField):
    """JSON that nobody filters by. Values come from `pikku_storage.json.to_json`; SQL NULL is `None`.

    MariaDB keeps it as plain text: its own JSON refuses more than 31 levels of nesting.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{**options, "encoder": PayloadEncoder})

    def deconstruct(self) -> Any:
        """How values are written is no matter of migrations."""
        name, path, args, options = super().deconstruct()
        del options["encoder"]
        return name, path, args, options

    def get_internal_type(self) -> str:
        """See `Field.get_internal_type`. By `JSONField` the backend for MongoDB would know that it is to make text of
        each value first, which fails where another program has put a date into it."""
        return "PayloadField"

    def db_type(self, connection: BaseDatabaseWrapper) -> str | None:
        """See `Field.db_type`."""
        return "longtext" if connection.vendor == "mysql" else str(connection.data_types["JSONField"])

    def db_check(self, connection: BaseDatabaseWrapper) -> str | None:
        """See `Field.db_check`."""
        check = None if connection.vendor == "mysql" else connection.data_type_check_constraints.get("JSONField")
        return None if check is None else check % self.db_type_parameters(connection)

    def from_db_value(self, value: Any, expression: Any, connection: BaseDatabaseWrapper) -> Any:
        """See `Field.from_db_value`."""
        if connection.vendor == VENDOR:
            return to_plain(value)
        return super().from_db_value(value, expression, connection)

    def db_parameters(self, connection: BaseDatabaseWrapper) -> Any:
        """See `_exact`: MariaDB's functions for JSON compare keys by the column's collation."""
        parameters = super().db_parameters(connection)
        return _exact(parameters, connection) if connection.vendor == "mysql" else parameters


def field_of(model: type[models.Model], name: str) -> models.Field[Any, Any]:
    """The concrete field behind an attribute name such as `run_id`."""
    field = model._meta.get_field(name)
    assert isinstance(field, models.Field)  # noqa: S101 - no relation is ever named here
    return field
