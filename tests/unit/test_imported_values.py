"""What a source holds, read as our values."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from django.db import models
from hypothesis import given
from hypothesis import strategies as st

from pikku_storage.db.fields import ExactCharField, MillisecondDateTimeField, PayloadField
from pikku_storage.importing.values import BadValueError, value_of

TIME, PAYLOAD, TEXT = MillisecondDateTimeField(), PayloadField(), ExactCharField(max_length=5)
WHOLE, BIG, REAL, TRUTH = models.IntegerField(), models.BigIntegerField(), models.FloatField(), models.BooleanField()
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@given(st.datetimes(datetime(1971, 1, 1), datetime(2999, 1, 1)), st.integers(-14 * 60, 14 * 60))  # noqa: DTZ001
def test_every_form_of_a_time_is_the_same_time(moment: datetime, minutes: int) -> None:
    moment = moment.replace(microsecond=moment.microsecond // 1000 * 1000, tzinfo=UTC)
    elsewhere = moment.astimezone(timezone(timedelta(minutes=minutes)))
    naive = moment.replace(tzinfo=None)
    milliseconds = (moment - EPOCH) // timedelta(milliseconds=1)
    forms: list[Any] = [
        f"{naive.isoformat(timespec='milliseconds')}Z",
        naive.isoformat(sep=" "),
        f"{naive.isoformat()}999" if naive.microsecond else naive.isoformat(),
        elsewhere.isoformat(),
        elsewhere,
        naive,
        milliseconds,
        str(milliseconds),
    ]
    assert {value_of(TIME, form, json_is_text=True) for form in forms} == {moment}


@given(
    st.recursive(st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text('aä🚀"\\', max_size=5), st.lists)
)
def test_json_is_read_as_text_or_as_it_is(value: Any) -> None:
    assert value_of(PAYLOAD, json.dumps(value), json_is_text=True) == value
    assert value_of(PAYLOAD, value, json_is_text=False) == value


@pytest.mark.parametrize(
    ("field", "given_value", "expected"),
    [
        (TRUTH, "true", True),
        (TRUTH, 0, False),
        (TRUTH, False, False),
        (TRUTH, "f", False),
        (WHOLE, "12", 12),
        (WHOLE, 12.0, 12),
        (BIG, "1234567890123", 1234567890123),
        (REAL, "0.75", 0.75),
        (TEXT, 17, "17"),
        (PAYLOAD, "null", None),
    ],
)
def test_values_that_are_written_otherwise_there(field: Any, given_value: Any, expected: Any) -> None:
    found = value_of(field, given_value, json_is_text=True)
    assert (found, type(found)) == (expected, type(expected))
    assert value_of(field, None, json_is_text=True) is None


@pytest.mark.parametrize(
    ("field", "bad", "reason"),
    [
        (WHOLE, 2**31, "it has more than 32 bits"),
        (BIG, 2**63, "it has more than 64 bits"),
        (WHOLE, True, "it is no whole number"),
        (WHOLE, "1e400", "it is no whole number"),
        (REAL, "nan", "it is no number"),
        (TRUTH, 2, "it is neither true nor false"),
        (TIME, True, "it is no time"),
        (TIME, "infinity", "it is no time"),
        (TIME, b"2024", "it is no time"),
        (TEXT, "123456", "it has 6 characters, more than 5"),
        (TEXT, True, "it is no text"),
        (PAYLOAD, "[" * 100_000, "it is nested too deeply"),
        (PAYLOAD, b"{}", "bytes is not JSON"),
    ],
)
def test_values_that_cannot_be_ours(field: Any, bad: Any, reason: str) -> None:
    with pytest.raises(BadValueError) as caught:
        value_of(field, bad, json_is_text=True)
    assert reason in str(caught.value)
