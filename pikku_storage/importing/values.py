"""Values as the TypeScript packages store them, made the values of our fields (contract tables.md §2)."""

from __future__ import annotations

import json
import math
import re
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import models

from pikku_storage.db.fields import JsonTextField, PayloadField, cut
from pikku_storage.exceptions import PayloadError
from pikku_storage.json import Json, to_json

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_BOOLEANS = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")


class BadValueError(ValueError):
    """A value that cannot be one of ours; the message says why, and not what it is."""


def value_of(field: models.Field[Any, Any], given: Any, *, json_is_text: bool) -> Any:
    """The value of our field for a value that a source holds; `None` stays `None`. Raises `BadValueError`.

    `json_is_text` says whether the source keeps JSON as text, as all but MongoDB do.
    """
    if given is None:
        return None
    if isinstance(field, models.ForeignKey):
        return value_of(field.target_field, given, json_is_text=json_is_text)
    if isinstance(field, JsonTextField):
        return _json(given, is_text=True)
    if isinstance(field, PayloadField):
        return _json(given, is_text=json_is_text)
    if isinstance(field, models.DateTimeField):
        return _moment(given)
    if isinstance(field, models.BooleanField):
        return _boolean(given)
    if isinstance(field, models.IntegerField):
        return _integer(field, given)
    if isinstance(field, models.FloatField):
        return _float(given)
    return _text(field, given)


def _json(given: Any, *, is_text: bool) -> Json:
    if is_text and isinstance(given, str):
        try:
            given = json.loads(given)
        except ValueError:
            raise BadValueError("it is no JSON") from None
        except RecursionError:
            raise BadValueError("it is nested too deeply") from None
    try:
        return to_json(given)
    except PayloadError as error:
        raise BadValueError(str(error)) from None


def _moment(given: Any) -> datetime:
    """A time. One without a zone is in UTC; a number is in milliseconds since 1970."""
    try:
        if isinstance(given, bool):
            raise BadValueError("it is no time")
        if isinstance(given, str) and _NUMBER.fullmatch(given):
            given = float(given)
        if isinstance(given, int | float):
            return cut(_EPOCH + timedelta(milliseconds=given))
        moment = given if isinstance(given, datetime) else datetime.fromisoformat(given)
        return cut(moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC))
    except (TypeError, ValueError, OverflowError):
        raise BadValueError("it is no time") from None


def _boolean(given: Any) -> bool:
    try:
        return _BOOLEANS[str(given).lower()]
    except KeyError:
        raise BadValueError("it is neither true nor false") from None


def _integer(field: models.Field[Any, Any], given: Any) -> int:
    try:
        number = int(given)
        if isinstance(given, bool) or number != float(given):
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        raise BadValueError("it is no whole number") from None
    bits = 63 if isinstance(field, models.BigIntegerField) else 31
    if not -(1 << bits) <= number < 1 << bits:
        raise BadValueError(f"it has more than {bits + 1} bits")
    return number


def _float(given: Any) -> float:
    try:
        number = float(given)
    except (TypeError, ValueError):
        raise BadValueError("it is no number") from None
    if not math.isfinite(number):
        raise BadValueError("it is no number")
    return number


def _text(field: models.Field[Any, Any], given: Any) -> str:
    # A user's id may be a number.
    if isinstance(given, int) and not isinstance(given, bool):
        given = str(given)
    if not isinstance(given, str):
        raise BadValueError("it is no text")
    if field.max_length is not None and len(given) > field.max_length:
        raise BadValueError(f"it has {len(given):,} characters, more than {field.max_length}")
    if "\x00" in given:
        raise BadValueError("it has a NUL character")
    try:
        given.encode()
    except UnicodeEncodeError:
        raise BadValueError("it is no Unicode") from None
    return given
