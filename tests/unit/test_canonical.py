"""Canonical JSON: byte for byte as JavaScript, and one text for each value."""

import json
import math
from datetime import UTC, datetime, timedelta, timezone
from enum import Enum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pikku_storage.crypto.canonical import dumps
from tests.data.vectors import vectors

scalars = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
json_values = st.recursive(
    scalars | st.text(), lambda items: st.lists(items) | st.dictionaries(st.text(), items), max_leaves=12
)


class Colour(str, Enum):  # noqa: UP042 - whose str() is not its text
    RED = "red"


@pytest.mark.parametrize("vector", vectors("canonical-json"), ids=lambda vector: vector["inputJson"][:20])
def test_values_are_written_as_javascript_writes_them(vector: dict[str, str]) -> None:
    assert dumps(json.loads(vector["inputJson"])) == vector["canonical"]


@pytest.mark.parametrize("vector", vectors("queue-identity"), ids=lambda vector: vector["name"])
def test_what_a_signature_is_made_over(vector: dict[str, str]) -> None:
    assert dumps(json.loads(vector["dataJson"])) == vector["canonicalData"]


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (-0.0, "0"),
        (1.0, "1"),
        (-1.5, "-1.5"),
        (0.000001, "0.000001"),
        (0.0000012, "0.0000012"),
        (1.2e-7, "1.2e-7"),
        (1e20, "100000000000000000000"),
        (123456789012345680000.0, "123456789012345680000"),
        (1.5e300, "1.5e+300"),
        (2**53 + 1, "9007199254740992"),
        (-(10**22), "-1e+22"),
        (1.7976931348623157e308, "1.7976931348623157e+308"),
        (2.5e-5, "0.000025"),
        (10**400, "null"),
        (math.nan, "null"),
        (-math.inf, "null"),
    ],
)
def test_numbers_have_the_form_of_ecmascript(number: float, text: str) -> None:
    assert dumps(number) == text


def test_texts_keys_and_times() -> None:
    assert dumps("\ud83d\ude00 \udc00\ud800 \x1f\b/\x7f") == '"😀 \\udc00\\ud800 \\u001f\\b/\x7f"'
    assert dumps({"\uff5e": 1, "😀": 2, "10": 3, "9": 4}) == '{"10":3,"9":4,"😀":2,"\uff5e":1}'
    assert dumps((Colour.RED, {Colour.RED: True})) == '["red",{"red":true}]'
    moment = datetime(2024, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))
    assert dumps([moment, datetime(2024, 1, 1, 0, 0, 0, 123456, tzinfo=UTC)]) == (
        '["2024-01-01T00:00:00.000Z","2024-01-01T00:00:00.123Z"]'
    )


@pytest.mark.parametrize(
    "value", [{1: 2}, {1}, b"x", datetime.min.time(), object()], ids=lambda value: str(type(value))
)
def test_what_is_no_json_is_refused(value: Any) -> None:
    with pytest.raises(TypeError):
        dumps([value])


@given(json_values)
def test_the_text_reads_back_and_does_not_depend_on_the_order_of_keys(value: Any) -> None:
    text = dumps(value)
    # JavaScript has no integers of its own.
    assert json.loads(text, parse_int=float) == value
    assert dumps(json.loads(text)) == text
    assert dumps(reversed_keys(value)) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_number_reads_back(number: float) -> None:
    text = dumps(number)
    assert float(text) == number
    assert "e" not in text or not 1e-6 <= abs(number) < 1e21


def reversed_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: reversed_keys(value[key]) for key in reversed(value)}
    return [reversed_keys(item) for item in value] if isinstance(value, list) else value
