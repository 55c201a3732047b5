"""JSON with one text per value: what is signed (contract crypto.md §2 and §6).

As `JSON.stringify` writes it, with the keys of objects sorted by their UTF-16 units. JavaScript has one kind of number:
an integer beyond 2^53 is written as the nearest one that it has.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

_SURROGATE = re.compile("[\ud800-\udfff]")
_quote = json.JSONEncoder(ensure_ascii=False).encode
_PLAIN_DIGITS = 21
"""From 1e21 on, and below 1e-6, JavaScript writes an exponent."""
_PLAIN_ZEROS = 6


def dumps(value: Any) -> str:
    """The canonical text of a JSON value; aware times become ISO texts, NaN and the infinities `null`.

    Raises `TypeError` for what is no JSON, and `RecursionError` for what is nested too deeply.
    """
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, int | float):
        return _number(value)
    if isinstance(value, datetime) and value.tzinfo is not None:
        return f'"{value.astimezone(UTC).isoformat(timespec="milliseconds").removesuffix("+00:00")}Z"'
    if isinstance(value, Mapping):
        return f"{{{','.join([f'{_text(key)}:{dumps(value[key])}' for key in sorted(value, key=_units)])}}}"
    if isinstance(value, list | tuple):
        return f"[{','.join([dumps(item) for item in value])}]"
    raise TypeError(f"{type(value).__name__} is not JSON")


def _units(key: object) -> bytes:
    if not isinstance(key, str):
        raise TypeError(f"the key {key!r:.80} is not a str")
    return key.encode("utf-16-be", "surrogatepass")


def _text(text: str) -> str:
    # `str.__str__` takes the text of an enum member, whatever its own __str__ says.
    text = str.__str__(text)
    if _SURROGATE.search(text):
        # Two halves that stand together are one character; the others are escaped.
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return _SURROGATE.sub(lambda match: f"\\u{ord(match[0]):04x}", _quote(text))


def _number(value: float) -> str:
    try:
        number = float(value)
    except OverflowError:
        return "null"
    if not math.isfinite(number):
        return "null"
    if number == 0:
        return "0"
    sign = "-" if number < 0 else ""
    # Both languages write the fewest digits that read back as the same number.
    mantissa, _, exponent = float.__repr__(abs(number)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    # How many digits stand before the point.
    point = len(whole) + int(exponent or 0) - (len(whole + fraction) - len(digits))
    return sign + _digits(digits.rstrip("0"), point)


def _digits(digits: str, point: int) -> str:
    if len(digits) <= point <= _PLAIN_DIGITS:
        return digits.ljust(point, "0")
    if 0 < point <= _PLAIN_DIGITS:
        return f"{digits[:point]}.{digits[point:]}"
    if -_PLAIN_ZEROS < point <= 0:
        return f"0.{'0' * -point}{digits}"
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{digits[0]}{fraction}e{point - 1:+d}"
