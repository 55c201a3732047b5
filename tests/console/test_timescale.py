"""Times become positions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.workflows.timescale import Scale, idle_stretches, percent

START = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def test_a_plain_scale_is_linear_and_bounded() -> None:
    scale = Scale(START, at(100))
    assert [scale.at(at(seconds)) for seconds in (-5, 0, 25, 100, 200)] == [0, 0, 25, 100, 100]


def test_a_scale_without_length_holds() -> None:
    assert Scale(START, START).at(START) == 0.0
    assert [mark.position for mark in Scale(START, START).marks()] == ["0%"]


def test_a_folded_stretch_takes_four_percent() -> None:
    scale = Scale(START, at(1000), ((at(10), at(990)),))
    assert scale.at(at(10)) == pytest.approx(48)
    assert scale.at(at(990)) == pytest.approx(52)
    assert scale.at(at(500)) == pytest.approx(50)
    assert scale.at(at(1000)) == pytest.approx(100)


def test_many_folds_leave_room_for_the_work() -> None:
    folds = tuple((at(10 * index + 1), at(10 * index + 9)) for index in range(100))
    scale = Scale(START, at(1000), folds)
    assert sum(scale.at(end) - scale.at(start) for start, end in folds) == pytest.approx(40)


def test_idle_is_what_nothing_is_busy_in() -> None:
    busy = [(at(0), at(10)), (at(5), at(20)), (at(21), at(30)), (at(500), at(510))]
    assert idle_stretches(busy, START, at(600)) == ((at(30), at(500)), (at(510), at(600)))


def test_a_run_that_only_waits_is_one_idle_stretch() -> None:
    assert idle_stretches([], START, at(60)) == ((START, at(60)),)


def test_marks_are_round_and_few() -> None:
    labels = [mark.label for mark in Scale(START, at(470)).marks()]
    assert labels == ["12:00:00", "+1 m", "+2 m", "+3 m", "+4 m", "+5 m", "+6 m", "+7 m"]


def test_marks_between_folds_differ() -> None:
    scale = Scale(START, at(4.2), ((at(0.08), at(4)),))
    assert [mark.label for mark in scale.marks()] == ["12:00:00", "+50 ms", "+4 s", "+4.05 s", "+4.1 s", "+4.15 s"]
    later = Scale(START, at(7300), ((at(10), at(7250)),))
    labels = [mark.label for mark in later.marks()]
    assert "+2 h 1 m" in labels
    assert len(set(labels)) == len(labels)


@given(st.floats(min_value=0.001, max_value=3e8))
def test_every_length_has_a_readable_axis(seconds: float) -> None:
    marks = Scale(START, START + timedelta(seconds=seconds)).marks()
    assert 1 <= len(marks) <= 10


@given(
    st.lists(st.tuples(st.integers(0, 500), st.integers(0, 500)), max_size=12),
    st.lists(st.integers(0, 1000), min_size=2, max_size=20),
)
def test_later_is_never_further_left(spans: list[tuple[int, int]], moments: list[int]) -> None:
    busy = [(at(min(span)), at(max(span))) for span in spans]
    scale = Scale(START, at(1000), idle_stretches(busy, START, at(1000)))
    positions = [scale.at(at(moment)) for moment in sorted(moments)]
    assert positions == sorted(positions)
    assert all(0 <= position <= 100 for position in positions)


def test_percent_has_a_point_whatever_the_language() -> None:
    assert [percent(value) for value in (0, 12.3456, 100)] == ["0%", "12.35%", "100%"]
