"""When a cron expression fires: compared with a count of all minutes, above all where clocks change."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pikku_storage.workflows.schedules.fires import NAMED, Fires, local

MINUTE = timedelta(minutes=1)

# A zone, and a moment close to which its clocks change.
HALF_AN_HOUR_BACK = ("Australia/Lord_Howe", datetime(2026, 4, 4, 15, tzinfo=UTC))
CHANGES = [
    ("Europe/Berlin", datetime(2026, 3, 29, 1, tzinfo=UTC)),  # 2:00 becomes 3:00
    ("Europe/Berlin", datetime(2026, 10, 25, 1, tzinfo=UTC)),  # 3:00 becomes 2:00
    ("America/New_York", datetime(2026, 3, 8, 7, tzinfo=UTC)),
    ("America/New_York", datetime(2026, 11, 1, 6, tzinfo=UTC)),
    HALF_AN_HOUR_BACK,
    ("Australia/Lord_Howe", datetime(2026, 10, 3, 15, 30, tzinfo=UTC)),  # half an hour forward
    ("America/Sao_Paulo", datetime(2018, 11, 4, 3, tzinfo=UTC)),  # midnight is skipped
    ("America/Sao_Paulo", datetime(2018, 2, 18, 2, tzinfo=UTC)),  # midnight becomes 23:00
    ("Asia/Beirut", datetime(2026, 3, 28, 22, tzinfo=UTC)),
    ("America/Havana", datetime(2026, 11, 1, 5, tzinfo=UTC)),  # 1:00 becomes 0:00
    ("Pacific/Apia", datetime(2011, 12, 30, 10, tzinfo=UTC)),  # a whole day is skipped
    ("Asia/Kolkata", datetime(2026, 6, 1, tzinfo=UTC)),  # never
    ("UTC", datetime(2026, 6, 1, tzinfo=UTC)),
]


@st.composite
def fields(draw: st.DrawFn, size: int) -> tuple[str, set[int]]:
    """A field of an expression, and what it means."""
    everything = range(size)
    kind = draw(st.sampled_from(["star", "step", "values", "range"]))
    if kind == "star":
        return "*", set(everything)
    if kind == "step":
        step = draw(st.integers(1, size - 1))
        return f"*/{step}", set(everything[::step])
    if kind == "values":
        values = draw(st.sets(st.integers(0, size - 1), min_size=1, max_size=4))
        return ",".join(map(str, sorted(values))), values
    first, last = sorted(draw(st.tuples(st.integers(0, size - 1), st.integers(0, size - 1))))
    return f"{first}-{last}", set(everything[first : last + 1])


@cache
def shown(name: str, moment: datetime) -> dict[datetime, datetime]:
    """What the wall's clock shows in the days around a moment: each local time and when it comes, the first time. One
    that is skipped comes with the next one that is not."""
    zone, days = ZoneInfo(name), timedelta(days=4)
    seen: dict[datetime, datetime] = {}
    for when in every_minute(moment - days, moment + days):
        seen.setdefault(when.astimezone(zone).replace(tzinfo=None), when)
    times, following = {}, moment + days
    for time in reversed(list(every_minute(min(seen), max(seen)))):
        times[time] = following = seen.get(time, following)
    return times


def every_minute(start: datetime, end: datetime) -> Iterator[datetime]:
    while start <= end:
        yield start
        start += MINUTE


def counted(change: tuple[str, datetime], start: datetime, minutes: set[int], hours: set[int]) -> list[datetime]:
    """The fires of the day after `start`, found minute by minute."""
    end = start + timedelta(days=1)
    if len(hours) == 24:
        zone = ZoneInfo(change[0])
        return [when for when in every_minute(start + MINUTE, end) if when.astimezone(zone).minute in minutes]
    fires = {when for time, when in shown(*change).items() if time.minute in minutes and time.hour in hours}
    return sorted(when for when in fires if start < when <= end)


@settings(deadline=None)
@given(st.sampled_from(CHANGES), fields(60), fields(24), st.integers(-1800, 1800))
@example(HALF_AN_HOUR_BACK, ("30", {30}), ("*", set(range(24))), -2)
@example(HALF_AN_HOUR_BACK, ("15", {15}), ("*", set(range(24))), -90)
def test_every_local_time_fires_once_and_no_other(
    change: tuple[str, datetime], minute: tuple[str, set[int]], hour: tuple[str, set[int]], offset: int
) -> None:
    name, moment = change
    start = moment + offset * MINUTE
    fires = Fires.of(f"{minute[0]} {hour[0]} * * *", name)

    found = list(fires.between(start + MINUTE, start + timedelta(days=1)))

    assert found == counted(change, start, minute[1], hour[1])


@settings(deadline=None)
@given(
    st.sampled_from(CHANGES),
    st.tuples(fields(60), fields(24)).map(lambda parts: f"{parts[0][0]} {parts[1][0]}"),
    st.sampled_from(["* * *", "1 * *", "* * 1-5", "28-31 * *", "15 * 0", "L * *", "* * MON#1", "* 3,10,11 *"]),
    st.integers(-10_000, 10_000),
)
def test_from_wherever_one_looks_the_fires_are_the_same(
    change: tuple[str, datetime], time: str, days: str, offset: int
) -> None:
    """Each fire is after the one before, and is found from any moment between the two."""
    name, moment = change
    fires = Fires.of(f"{time} {days}", name)
    start = moment + timedelta(seconds=offset * 37)

    found = fires.next(8, after=start)

    assert len(set(found)) == 8
    assert all(earlier < later for earlier, later in pairwise([start, *found]))
    for earlier, later in pairwise([start, *found]):
        for between in (earlier, earlier + (later - earlier) / 2, later - timedelta(milliseconds=1)):
            assert fires.after(between) == later
    assert all((fire.second, fire.microsecond, fire.tzinfo) == (0, 0, UTC) for fire in found)


@settings(deadline=None)
@given(st.sampled_from(CHANGES), fields(60), fields(24), st.integers(1, 120), st.integers(0, 40))
def test_the_last_fires_are_the_end_of_all(
    change: tuple[str, datetime], minute: tuple[str, set[int]], hour: tuple[str, set[int]], count: int, hours: int
) -> None:
    name, end = change
    fires = Fires.of(f"{minute[0]} {hour[0]} * * *", name)
    start = end - timedelta(hours=hours)
    assert fires.last(count, start=start, end=end) == list(fires.between(start, end))[-count:]


def test_a_time_that_is_skipped_fires_right_after_the_gap() -> None:
    fires = Fires.of("30 2 * * *", "Europe/Berlin")
    found = fires.next(3, after=datetime(2026, 3, 28, 0, 0, tzinfo=UTC))
    assert [f"{local(fire, fires.timezone):%d %H:%M %z}" for fire in found] == [
        "28 02:30 +0100",
        "29 03:00 +0200",
        "30 02:30 +0200",
    ]


def test_a_time_that_is_repeated_fires_the_first_time() -> None:
    fires = Fires.of("30 2 * * *", "Europe/Berlin")
    found = fires.next(3, after=datetime(2026, 10, 24, 0, 0, tzinfo=UTC))
    assert [f"{local(fire, fires.timezone):%d %H:%M %z}" for fire in found] == [
        "24 02:30 +0200",
        "25 02:30 +0200",
        "26 02:30 +0100",
    ]


def test_several_skipped_times_are_one_fire() -> None:
    fires = Fires.of("*/15 2,3 * * *", "Europe/Berlin")
    found = fires.between(datetime(2026, 3, 29, tzinfo=UTC), datetime(2026, 3, 29, 12, tzinfo=UTC))
    assert [f"{local(fire, fires.timezone):%H:%M}" for fire in found] == ["03:00", "03:15", "03:30", "03:45"]


def test_what_names_every_hour_fires_in_each_hour_that_there_is() -> None:
    fires = Fires.of("@hourly", "Europe/Berlin")
    for day in (29, 25):
        start = datetime(2026, 3 if day == 29 else 10, day, tzinfo=UTC)
        found = list(fires.between(start, start + timedelta(hours=5)))
        assert {later - earlier for earlier, later in pairwise(found)} == {timedelta(hours=1)}


@pytest.mark.parametrize(("name", "expression"), NAMED.items())
def test_a_name_stands_for_its_expression(name: str, expression: str) -> None:
    start = datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert Fires.of(f" {name.upper()} ", "UTC").next(3, after=start) == Fires.of(expression, "UTC").next(3, after=start)


def test_fires_long_ago_are_not_all_counted() -> None:
    """A minute's schedule that was asleep for ten years: five million fires."""
    end = datetime(2026, 1, 1, tzinfo=UTC)
    found = Fires.of("* * * * *", "Europe/Berlin").last(100, start=datetime(2016, 1, 1, tzinfo=UTC), end=end)
    assert found == [end - number * MINUTE for number in reversed(range(100))]


@pytest.mark.parametrize(
    ("cron", "says"),
    [
        ("", "0 fields"),
        ("* * * *", "4 fields"),
        ("0 * * * * *", "6 fields"),
        ("61 * * * *", "Bad minute"),
        ("* 24 * * *", "Bad hour"),
        ("* * 0 * *", "Bad day-of-month"),
        ("* * * 13 *", "Bad month"),
        ("* * * * 8", "Bad day-of-week"),
        ("*/0 * * * *", "Bad minute"),
        ("5-1 * * * *", "Bad minute"),
        ("0 3 * * someday", "Bad day-of-week"),
        ("0 0 31 2 *", "Bad day-of-month"),
        ("* * */20 * 1L", "never fires"),
        ("@reboot", "the names are @yearly"),
    ],
)
def test_what_is_no_expression_is_refused(cron: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Fires.of(cron, "UTC")


@pytest.mark.parametrize("name", ["", "Mars/Phobos", "Europe", "../etc/passwd", "/etc/localtime", "Europe/Berlin\x00"])
def test_what_is_no_time_zone_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is no time zone"):
        Fires.of("0 3 * * *", name)


@settings(deadline=None)
@given(st.text(alphabet="*/,-#LW0123456789@ monfri", max_size=30))
def test_any_text_fires_or_is_refused(text: str) -> None:
    try:
        fires = Fires.of(text, "UTC")
    except ValueError:
        return
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    assert fires.after(moment) > moment
