"""The one rule for what may be stored as JSON, the same on every database.

`to_json` is called before a payload reaches the database: when a workflow is started, when a step is given its data,
when a step function returns, when a state key is set. It answers with a plain copy, which is also what the caller goes
on with, so that a first pass and a replay see the same value.

| value | stored as |
|---|---|
| None, bool, str, finite float, int of at most 64 bits | itself |
| list, tuple | array |
| mapping with str keys | object |
| str, int and float subclasses (enum members, `SafeString`) | their plain value |
| NaN, Infinity, longer integers | refused |
| text or key with NUL or a lone surrogate | refused: PostgreSQL cannot hold the one, UTF-8 not the other |
| datetime, date, UUID, Decimal, bytes, set, any other object | refused, with a hint |
| nesting over 100 levels, or over `MAX_PAYLOAD_BYTES` of UTF-8 JSON | refused |

Integers beyond 2^53 lose digits in JavaScript.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, TypeAlias
from uuid import UUID

from pikku_storage.conf import settings
from pikku_storage.exceptions import PayloadError

Json: TypeAlias = Any
"""A value of dict, list, str, int, float, bool and None only."""

_MAX_DEPTH = 100
_INT_LIMIT = 1 << 63
# Made once; `json.dumps` makes a new encoder on each call that is told how.
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_HINTS: dict[type, str] = {
    datetime: "use .isoformat()",
    date: "use .isoformat()",
    time: "use .isoformat()",
    timedelta: "use .total_seconds()",
    Decimal: "use str() to keep every digit",
    UUID: "use str()",
    bytes: "use base64.b64encode(…).decode()",
    set: "use sorted() to get a list",
}


def to_json(value: object, *, root: str = "$") -> Json:
    """A plain JSON copy of `value`; raises `PayloadError`, naming the path, for anything that cannot be stored."""
    plain = _plain(value, root, 0)
    size = len(_encode(plain).encode())
    if size > settings.MAX_PAYLOAD_BYTES:
        raise PayloadError(
            root,
            f"{size:,} bytes of JSON, more than the {settings.MAX_PAYLOAD_BYTES:,} that MAX_PAYLOAD_BYTES allows; "
            "store the data elsewhere and pass a reference",
        )
    return plain


def to_json_object(value: object, *, root: str = "$") -> dict[str, Json]:
    """As `to_json`, for what must be a JSON object (keyword arguments)."""
    if not isinstance(value, Mapping):
        raise PayloadError(root, f"must be a JSON object (a dict), not {type(value).__name__}")
    plain: dict[str, Json] = to_json(value, root=root)
    return plain


def to_text(value: object, *, root: str, longest: int = 255) -> str:
    """A plain text of 1 to `longest` characters that every database can hold (a name, an id); raises `PayloadError`."""
    if not isinstance(value, str):
        raise PayloadError(root, f"must be a text, not {type(value).__name__}")
    text = _text(value, root)
    if not 0 < len(text) <= longest:
        raise PayloadError(root, f"must have 1 to {longest} characters, not {len(text)}")
    return text


def _plain(value: object, path: str, depth: int) -> Json:
    if value is None or value is True or value is False:
        return value
    if isinstance(value, str):
        return _text(value, path)
    if isinstance(value, int):
        if not -_INT_LIMIT <= value < _INT_LIMIT:
            raise PayloadError(path, "an integer of more than 64 bits; use str()")
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise PayloadError(path, f"{float(value)!r} is not a JSON number")
        return float(value)
    if depth >= _MAX_DEPTH:
        raise PayloadError(path[:200], f"nested deeper than {_MAX_DEPTH} levels, or it contains itself")
    if isinstance(value, Mapping):
        plain = {}
        for key, item in value.items():
            if not isinstance(key, str):
                raise PayloadError(path, f"the key {key!r} is not a str")
            plain[_text(key, f"{path} (a key)")] = _plain(item, f"{path}.{key}", depth + 1)
        return plain
    if isinstance(value, list | tuple):
        return [_plain(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(value)]
    raise PayloadError(path, f"{type(value).__name__} is not JSON{_hint(value)}")


def _text(value: str, path: str) -> str:
    # `str.__str__` takes the text of an enum member or a SafeString, whatever their own __str__ says.
    text = str.__str__(value)
    if "\x00" in text:
        raise PayloadError(path, f"text with a NUL character at position {text.index(chr(0))}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise PayloadError(path, f"text with a lone surrogate at position {error.start}") from None
    return text


def _hint(value: object) -> str:
    for kind, hint in _HINTS.items():
        if isinstance(value, kind):
            return f"; {hint}"
    return "; pass plain data and rebuild the object where it is needed"
