"""The encoder: what may be stored, and what is refused with its path."""

import json
import math
from collections import OrderedDict, UserDict, deque
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from django.utils.safestring import SafeString
from hypothesis import given
from hypothesis import strategies as st
from pytest_django import Settings

from pikku_storage.exceptions import PayloadError, PikkuError
from pikku_storage.json import to_json, to_json_object


class Plain(Enum):
    """Its members are neither texts nor numbers."""

    A = 1


class Colour(StrEnum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


class Point(NamedTuple):
    x: int
    y: int


texts = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]))
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts
)
documents = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(texts, inner, max_size=5), max_leaves=20
)


@given(documents)
def test_whatever_is_json_comes_back_as_it_was(document: Any) -> None:
    plain = to_json(document)

    assert plain == document
    assert json.loads(json.dumps(plain, allow_nan=False)) == document


@given(documents)
def test_encoding_twice_changes_nothing(document: Any) -> None:
    assert to_json(to_json(document)) == to_json(document)


def test_the_answer_is_a_copy() -> None:
    inner = [1]
    plain = to_json({"inner": inner})
    inner.append(2)

    assert plain == {"inner": [1]}


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        ((1, 2), [1, 2]),
        (Point(1, 2), [1, 2]),
        (Colour.RED, "red"),
        (Level.HIGH, 3),
        (SafeString("<b>"), "<b>"),
        (OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
        (MappingProxyType({"a": 1}), {"a": 1}),
        (UserDict(a=1), {"a": 1}),
        ({Colour.RED: 1}, {"red": 1}),
        (-(2**63), -(2**63)),
        (2**63 - 1, 2**63 - 1),
        ("\x01\u2028☕🚀", "\x01\u2028☕🚀"),
        ("", ""),
    ],
    ids=repr,
)
def test_what_stands_for_json_becomes_plain(value: Any, plain: Any) -> None:
    encoded = to_json(value)

    assert encoded == plain
    assert type(encoded) is type(plain)


def test_subclasses_of_text_and_number_become_plain_inside_too() -> None:
    encoded = to_json({Colour.RED: [Colour.RED, Level.HIGH, SafeString("x")]})

    assert [type(item) for item in encoded["red"]] == [str, int, str]
    assert [type(key) for key in encoded] == [str]


@pytest.mark.parametrize(
    ("value", "path", "reason"),
    [
        (math.nan, "$", "nan is not a JSON number"),
        ({"a": [1.0, math.inf]}, "$.a[1]", "inf is not a JSON number"),
        ({"a": -math.inf}, "$.a", "-inf is not a JSON number"),
        (2**63, "$", "an integer of more than 64 bits"),
        ({"big": {"id": -(2**63) - 1}}, "$.big.id", "an integer of more than 64 bits"),
        ({"name": "a\x00b"}, "$.name", "NUL character at position 1"),
        ({"a\x00": 1}, "$ (a key)", "NUL character at position 1"),
        (["ok", "\ud800"], "$[1]", "lone surrogate at position 0"),
        ({"a": {"\udfff": 1}}, "$.a (a key)", "lone surrogate at position 0"),
        ({"at": datetime(2026, 1, 1, tzinfo=UTC)}, "$.at", "datetime is not JSON; use .isoformat()"),
        ({"on": date(2026, 1, 1)}, "$.on", "date is not JSON; use .isoformat()"),
        (time(12), "$", "time is not JSON; use .isoformat()"),
        (timedelta(1), "$", "timedelta is not JSON; use .total_seconds()"),
        ([UUID(int=1)], "$[0]", "UUID is not JSON; use str()"),
        ({"items": [{"price": Decimal("9.90")}]}, "$.items[0].price", "Decimal is not JSON; use str()"),
        (b"bytes", "$", "bytes is not JSON; use base64"),
        ({"tags": {"a"}}, "$.tags", "set is not JSON; use sorted()"),
        (frozenset(), "$", "frozenset is not JSON"),
        (deque([1]), "$", "deque is not JSON; pass plain data"),
        (iter([1]), "$", "list_iterator is not JSON"),
        (1j, "$", "complex is not JSON"),
        (object(), "$", "object is not JSON; pass plain data"),
        ({1: "one"}, "$", "the key 1 is not a str"),
        ({"a": {None: 1}}, "$.a", "the key None is not a str"),
        ({"a": {("b", "c"): 1}}, "$.a", "is not a str"),
        (Plain.A, "$", "Plain is not JSON"),
    ],
    # Without addresses, which differ from process to process.
    ids=lambda value: ascii(value).partition(" at 0x")[0][:40],
)
def test_what_cannot_be_stored_is_refused_with_its_path(value: Any, path: str, reason: str) -> None:
    with pytest.raises(PayloadError) as caught:
        to_json(value)

    assert caught.value.path == path
    assert reason in caught.value.reason
    assert str(caught.value) == f"{path}: {caught.value.reason}"
    assert caught.value.code == "NOT_SERIALIZABLE"


def test_the_path_begins_at_the_given_root() -> None:
    with pytest.raises(PayloadError) as caught:
        to_json([math.nan], root="$result")

    assert caught.value.path == "$result[0]"


def _nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def test_a_hundred_levels_are_enough_and_no_more() -> None:
    assert to_json(_nested(100)) == _nested(100)
    with pytest.raises(PayloadError, match="nested deeper than 100 levels"):
        to_json(_nested(101))


def test_what_contains_itself_is_refused() -> None:
    ring: dict[str, Any] = {}
    ring["self"] = ring

    with pytest.raises(PayloadError, match="or it contains itself") as caught:
        to_json(ring)
    assert caught.value.path.startswith("$.self.self")
    assert len(caught.value.path) <= 200


def test_a_payload_may_fill_its_limit_and_not_go_beyond(settings: Settings) -> None:
    settings.PIKKU_STORAGE = {"MAX_PAYLOAD_BYTES": 12}

    assert to_json("é" * 5) == "é" * 5, "ten bytes of text and two quotes"
    with pytest.raises(PayloadError, match=r"\$input: 13 bytes of JSON, more than the 12"):
        to_json("é" * 5 + "a", root="$input")


def test_a_text_of_ten_megabytes_is_refused_by_default() -> None:
    with pytest.raises(PayloadError, match="store the data elsewhere and pass a reference"):
        to_json({"text": "x" * 10_000_000})


@pytest.mark.parametrize("value", [None, [], "text", 1, [("a", 1)]], ids=repr)
def test_data_must_be_an_object(value: Any) -> None:
    with pytest.raises(PayloadError, match=r"\$data: must be a JSON object \(a dict\), not"):
        to_json_object(value, root="$data")


def test_a_refusal_is_an_error_of_this_package_and_a_value_error() -> None:
    assert issubclass(PayloadError, PikkuError)
    assert issubclass(PayloadError, ValueError)
    assert PayloadError.http_status == 422
