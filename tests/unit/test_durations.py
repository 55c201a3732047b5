"""Durations, as the contract writes them."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pikku_storage.durations import to_duration_text, to_milliseconds
from tests.data.vectors import vectors


@pytest.mark.parametrize("vector", vectors("durations"), ids=lambda vector: repr(vector["input"]))
def test_a_duration_is_read_as_the_contract_reads_it(vector: dict[str, Any]) -> None:
    expected = vector["result"]
    if expected["ok"]:
        assert to_milliseconds(vector["input"]) == expected["value"]
    else:
        with pytest.raises(ValueError) as caught:  # noqa: PT011 - the whole message is compared
            to_milliseconds(vector["input"])
        assert str(caught.value) == expected["errorMessage"]


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("3ms", 3),
        ("3s", 3_000),
        ("3sec", 3_000),
        ("1second", 1_000),
        ("3seconds", 3_000),
        ("3m", 180_000),
        ("3min", 180_000),
        ("1minute", 60_000),
        ("3minutes", 180_000),
        ("3h", 10_800_000),
        ("1hour", 3_600_000),
        ("3hours", 10_800_000),
        ("3d", 259_200_000),
        ("1day", 86_400_000),
        ("3days", 259_200_000),
        ("3w", 1_814_400_000),
        ("1week", 604_800_000),
        ("3weeks", 1_814_400_000),
        ("3y", 94_672_800_000),
        ("1year", 31_557_600_000),
        ("3years", 94_672_800_000),
    ],
)
def test_every_unit_of_the_contract_is_known(text: str, milliseconds: int) -> None:
    assert to_milliseconds(text) == milliseconds


def test_a_timedelta_counts_in_milliseconds() -> None:
    assert to_milliseconds(timedelta(minutes=1, milliseconds=5)) == 60_005


def test_zero_is_a_duration() -> None:
    assert to_milliseconds(0) == 0


@pytest.mark.parametrize(
    "nonsense", ["2 s", "+2s", "1.5s", "s", "2", "2fortnights", " 2s", "2s\n", "٢s", "2S", "-1ms"], ids=repr
)
def test_a_text_that_is_no_duration_is_refused(nonsense: str) -> None:
    with pytest.raises(ValueError, match="Invalid duration format"):
        to_milliseconds(nonsense)


@pytest.mark.parametrize(
    "nonsense", [-1, -0.5, float("nan"), float("inf"), timedelta(seconds=-1), True, None, [], b"2s"], ids=repr
)
def test_what_is_neither_a_text_nor_a_number_of_milliseconds_is_refused(nonsense: Any) -> None:
    with pytest.raises(ValueError, match="Invalid duration"):
        to_milliseconds(nonsense)


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(0, "0ms"), (1, "1ms"), (1_500, "1500ms"), (60_000, "1min"), (5_400_000, "90min"), (7_200_000, "2h")],
)
def test_milliseconds_are_shown_in_the_largest_unit_that_needs_no_rest(milliseconds: int, text: str) -> None:
    assert to_duration_text(milliseconds) == text


@given(st.integers(0, 10**15))
def test_what_is_shown_is_the_same_duration(milliseconds: int) -> None:
    assert to_milliseconds(to_duration_text(milliseconds)) == milliseconds
