"""How durations, times and ids read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.utils.translation import override

from console.formatting import absolute, ago, ahead, duration, precise_clock, round_duration, short_id, shorten

NOON = datetime(2026, 11, 29, 12, 0, 0, 118_000, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-3, "0 ms"),
        (0, "0 ms"),
        (0.35, "350 ms"),
        (0.9999, "1.0 s"),
        (28, "28.0 s"),
        (59.96, "1 m 00 s"),
        (184, "3 m 04 s"),
        (3599.7, "1 h 00 m"),
        (7560, "2 h 06 m"),
        (273_600, "3 d 04 h"),
    ],
)
def test_duration(seconds: float, text: str) -> None:
    assert duration(timedelta(seconds=seconds)) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "200 ms"), (1.5, "1.5 s"), (10, "10 s"), (120, "2 m"), (90, "1 m 30 s"), (3600, "1 h"), (90_000, "1 d 1 h")],
)
def test_round_duration(seconds: float, text: str) -> None:
    assert round_duration(timedelta(seconds=seconds)) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(-5, "just now"), (0.5, "just now"), (12, "12 s ago"), (430, "7\xa0minutes ago")]
)
def test_ago(seconds: float, text: str) -> None:
    assert ago(NOON - timedelta(seconds=seconds), NOON) == text


@pytest.mark.parametrize(
    ("days", "length"), [(1, "1\xa0Tag"), (2, "2\xa0Tagen"), (15, "2\xa0Wochen"), (70, "2\xa0Monaten")]
)
def test_a_unit_has_the_case_of_its_preposition(days: int, length: str) -> None:
    with override("de"):
        assert ago(NOON - timedelta(days=days), NOON) == f"vor {length}"
        assert ahead(NOON + timedelta(days=days), NOON) == f"in {length}"


def test_times_are_in_the_viewers_zone(settings: object) -> None:
    from django.utils import timezone

    with timezone.override("Europe/Berlin"):
        assert absolute(NOON) == "2026-11-29 13:00:00 CET"
        assert precise_clock(NOON) == "13:00:00.118"


def test_short_ids_show_both_ends_because_ids_made_together_begin_alike() -> None:
    assert short_id("0197c2e4-7b1a-7c51-9d0e-52a1c3f0a9c2") == "0197c2e4…f0a9c2"
    assert short_id("order/1") == "order/1"


def test_shorten_keeps_the_first_line() -> None:
    assert shorten("one\ntwo", 10) == "one…"
    assert shorten("x" * 20, 5) == "xxxxx…"
    assert shorten("", 5) == ""
