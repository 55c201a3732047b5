"""Steps and attempts become lanes and bars."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from console.workflows.drawing import ITEMS_PER_GROUP, LANES_PER_PAGE, LaneQuery, draw
from console.workflows.reads import STEP_COLUMNS
from console.workflows.records import AttemptRow, RunRow, StepRow
from console.workflows.states import State, state_of_group
from console.workflows.timeline import Lane, Timeline, at_moment, build_timeline, select_lanes
from pikku_storage.workflows.timeline import reconstruct_state_at
from tests.console.stories import Story, Try, failed_order, order_in_flight, sleeping_order

START = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)


def timeline_of(story: Story, *, now: float | None = None) -> Timeline:
    """The timeline of a story that is not written."""
    run = RunRow(
        id=story.run_id,
        workflow=story.workflow,
        status=story.status,
        error=None,
        inline=False,
        graph_hash=None,
        wire={},
        owner_id=None,
        idempotency_key=None,
        last_worker=None,
        due_at=None,
        created_at=story.started,
        updated_at=story.at(story.ended),
    )
    steps = [
        StepRow(
            **{name: getattr(step, name) for name in STEP_COLUMNS},
            planned_ms=str((step.data or {}).get("duration", "")),
        )
        for step in story.steps
    ]
    attempts = [AttemptRow(**{name: getattr(row, name) for name in AttemptRow.__slots__}) for row in story.attempts]
    return build_timeline(run, steps, attempts, now=story.at(story.ended if now is None else now))


def bars(lane: Lane) -> list[tuple[str, float, float]]:
    """Kind, start and end in seconds."""
    return [(bar.kind, (bar.start - START).total_seconds(), (bar.end - START).total_seconds()) for bar in lane.bars]


def by_name(timeline: Timeline) -> dict[str, Lane]:
    return {lane.name: lane for lane in (*timeline.lanes, *timeline.steps())}


def test_an_attempt_is_queued_and_then_runs() -> None:
    lane = by_name(timeline_of(order_in_flight(START)))["reserve stock"]
    assert bars(lane) == [("queued", 0, 2), ("ran", 2, 14)]
    assert (lane.state, lane.function, lane.note) == (State.SUCCEEDED, "reserve_stock", "")


def test_a_retry_waits_between_its_attempts() -> None:
    lane = by_name(timeline_of(order_in_flight(START)))["charge card"]
    assert bars(lane) == [("queued", 14, 16), ("failed", 16, 44), ("waiting", 44, 74), ("ran", 74, 92.2)]
    assert [bar.attempt for bar in lane.bars] == [1, 1, 1, 2]
    assert lane.note == "2 attempts"


def test_a_sleep_is_one_waiting_bar() -> None:
    lane = by_name(timeline_of(order_in_flight(START)))["cool down"]
    assert bars(lane) == [("waiting", 168, 288)]
    assert (lane.function, lane.note) == ("sleep 2 m", "slept 2 m")


def test_a_sleep_says_what_was_planned_and_what_it_took() -> None:
    story = Story(started=START).step("nap", [Try(0, None, 10.1, scheduled=0)], data={"duration": 2000})
    [lane] = timeline_of(story).lanes
    assert (lane.function, lane.note) == ("sleep 2 s", "slept 10.1 s")
    for data in ({}, {"duration": "soon"}, {"duration": 1e300}):
        story.steps[0].data = data
        assert [lane.function for lane in timeline_of(story).lanes] == ["sleep"]


def test_a_short_failure_is_painted_over_the_wait_beside_it() -> None:
    story = Story(started=START, ended=60)
    story.step("ship", [Try(0, 0.001, 0.003, error={"message": "no"}), Try(30, 30, 30.002)], function="ship")
    [drawn] = draw(timeline_of(story), LaneQuery()).lanes
    assert [bar.kind for bar in drawn.bars] == ["queued", "waiting", "failed", "ran"]
    assert [bar.width for bar in drawn.bars if bar.kind in {"failed", "ran"}] == ["0.35%", "0.35%"]


def test_a_sleep_that_is_not_over_says_how_long() -> None:
    lane = by_name(timeline_of(sleeping_order(START), now=600))["cool down"]
    assert bars(lane) == [("waiting", 2, 600)]
    assert (lane.state, lane.function, lane.note) == (State.WAITING, "sleep 59 m 58 s", "50 m 00 s left")


def test_a_retry_that_is_due_waits_up_to_now() -> None:
    lane = by_name(timeline_of(order_in_flight(START), now=500))["book parcel"]
    assert bars(lane)[-1] == ("waiting", 408, 500)
    assert (lane.state, lane.note) == (State.WAITING, "next attempt in 28.0 s")


def test_what_failed_for_good_does_not_wait() -> None:
    lane = by_name(timeline_of(failed_order(START)))["charge card"]
    assert bars(lane)[-1] == ("failed", 19, 24)
    assert (lane.state, lane.note) == (State.FAILED, "failed after 3 attempts")


def test_a_compensation_names_what_it_undoes() -> None:
    lanes = by_name(timeline_of(failed_order(START)))
    assert lanes["charge card:onError"].compensates == "charge card"
    assert lanes["charge card"].compensates is None


def test_items_of_a_fan_out_are_under_one_lane_in_their_order() -> None:
    story = Story(started=START, ended=30)
    for index in (10, 2, 0):
        story.step(f"pack[{index}]", [Try(0, 1, 5 + index)], function="pack_item", group="pack")
    story.step("pack[2]:onError", [Try(20, 20, 21)], function="undo")
    [lane] = timeline_of(story).lanes
    assert [child.name for child in lane.children] == ["pack[0]", "pack[2]", "pack[2]:onError", "pack[10]"]
    assert (lane.name, lane.function, lane.note) == ("pack", "pack_item × 4", "4 of 4")  # noqa: RUF001
    assert bars(lane) == [("queued", 0, 1), ("ran", 1, 21)]


def test_side_by_side_steps_stay_lanes_of_their_own() -> None:
    story = Story(started=START)
    story.step("invoice", [Try(0, 0, 1)], group="gather:invoice").step("mail", [Try(0, 0, 2)], group="gather:invoice")
    assert [lane.name for lane in timeline_of(story).lanes] == ["invoice", "mail"]


def test_a_group_does_what_its_liveliest_item_does() -> None:
    assert state_of_group([State.SUCCEEDED, State.RUNNING, State.FAILED]) is State.RUNNING
    assert state_of_group([State.SUCCEEDED, State.FAILED]) is State.FAILED
    assert state_of_group([State.SUCCEEDED, State.WAITING]) is State.WAITING
    assert state_of_group([State.SUCCEEDED, State.SUCCEEDED]) is State.SUCCEEDED
    assert state_of_group([State.UNREACHED]) is State.UNREACHED
    assert state_of_group([State.UNREACHED, State.SUCCEEDED]) is State.RUNNING


def test_what_an_ended_run_left_open_ends_with_it() -> None:
    story = Story(status="cancelled", started=START, ended=30).step("ship", [Try(10)], function="ship")
    [lane] = timeline_of(story, now=9999).lanes
    assert bars(lane) == [("queued", 10, 30)]
    assert lane.note == "not finished"


def test_a_step_without_attempts_still_has_a_lane() -> None:
    story = Story(started=START).step("ship", [Try(1, 2, 3)])
    story.attempts.clear()
    assert [lane.name for lane in timeline_of(story).lanes] == ["ship"]


def test_a_step_that_took_no_time_is_still_to_be_seen() -> None:
    story = Story(started=START, ended=1000).step("ship", [Try(1000, 1000, 1000)])
    [drawn] = draw(timeline_of(story), LaneQuery()).lanes
    assert (drawn.bars[0].x, drawn.bars[0].width) == ("99.65%", "0.35%")


def test_bars_are_to_scale() -> None:
    story = Story(started=START, ended=100).step("a", [Try(0, 25, 50)]).step("b", [Try(50, 50, 100)])
    drawn = draw(timeline_of(story), LaneQuery()).lanes
    assert [(bar.kind, bar.x, bar.width) for lane in drawn for bar in lane.bars] == [
        ("queued", "0%", "25%"),
        ("ran", "25%", "25%"),
        ("ran", "50%", "50%"),
    ]


def test_lanes_take_the_states_of_the_moment() -> None:
    timeline = timeline_of(order_in_flight(START), now=500)
    failed = next(event.seq for event in timeline.events if event.type == "failed")
    state = reconstruct_state_at(timeline.events, failed)
    states = {lane.name: lane.state for lane in (at_moment(lane, state) for lane in timeline.lanes)}
    assert states == {
        "reserve stock": State.SUCCEEDED,
        "charge card": State.FAILED,
        "pack": State.UNREACHED,
        "cool down": State.UNREACHED,
        "book parcel": State.UNREACHED,
    }


def test_bars_after_the_moment_are_the_future_and_one_around_it_is_open() -> None:
    timeline = timeline_of(order_in_flight(START), now=500)
    begun = next(event.seq for event in timeline.events if (event.step_name, event.type) == ("charge card", "running"))
    drawn = {lane.lane.name: lane for lane in draw(timeline, LaneQuery(at=begun)).lanes}
    assert [(bar.kind, bar.is_future, bar.is_open) for bar in drawn["charge card"].bars] == [
        ("queued", False, False),
        ("waiting", True, False),
        ("failed", False, True),
        ("ran", True, False),
    ]


def test_a_sleep_of_the_past_was_waiting() -> None:
    timeline = timeline_of(order_in_flight(START), now=500)
    begun = next(event.seq for event in timeline.events if (event.step_name, event.type) == ("cool down", "scheduled"))
    lane = next(lane for lane in timeline.lanes if lane.name == "cool down")
    assert at_moment(lane, reconstruct_state_at(timeline.events, begun)).state is State.WAITING


def names(lanes: Sequence[Lane]) -> list[str]:
    return [child.name for lane in lanes for child in lane.walk()]


def test_filters_look_inside_fan_outs() -> None:
    lanes = timeline_of(order_in_flight(START), now=500).lanes
    assert names(select_lanes(lanes, state="waiting")) == ["book parcel"]
    assert names(select_lanes(lanes, name="PACK[2")) == ["pack[2]"]
    assert names(select_lanes(lanes, name="charge_card")) == ["charge card"]
    assert select_lanes(lanes, name="no such thing") == []


def test_long_runs_are_paged_and_wide_fan_outs_cut() -> None:
    story = Story(started=START, ended=300)
    for index in range(LANES_PER_PAGE + 7):
        story.step(f"step {index}", [Try(index, index, index + 1)])
    for index in range(ITEMS_PER_GROUP + 5):
        story.step(f"pack[{index}]", [Try(200, 201, 202)], group="pack")
    timeline = timeline_of(story)
    first, second = draw(timeline, LaneQuery()), draw(timeline, LaneQuery(page=2))
    assert (len(first.lanes), first.page, first.pages, first.total) == (LANES_PER_PAGE, 1, 2, LANES_PER_PAGE + 8)
    assert len(second.lanes) == 8
    pack = second.lanes[-1]
    assert (len(pack.children), pack.hidden_children, pack.is_open) == (ITEMS_PER_GROUP, 5, False)
    assert draw(timeline, LaneQuery(group="pack")).total == ITEMS_PER_GROUP + 5
    assert draw(timeline, LaneQuery(page=99)).page == 2


def test_idle_time_can_be_folded_away() -> None:
    timeline = timeline_of(sleeping_order(START), now=3000)
    plain, folded = draw(timeline, LaneQuery()), draw(timeline, LaneQuery(hides_idle=True))
    assert not plain.has_folds
    assert folded.has_folds
    assert plain.lanes[0].bars[0].width == "0.35%"
    assert float(folded.lanes[0].bars[0].width.rstrip("%")) > 90


def test_ticks_show_the_worst_of_what_falls_together() -> None:
    story = failed_order(START)
    kinds = {tick.kind for tick in draw(timeline_of(story), LaneQuery()).ticks}
    assert "failed" in kinds
    assert len(draw(timeline_of(story), LaneQuery()).ticks) <= len(timeline_of(story).events)


def test_a_run_without_steps_has_an_empty_chart() -> None:
    chart = draw(timeline_of(Story(status="running", started=START, ended=0), now=0), LaneQuery())
    assert (chart.lanes, chart.ticks, chart.total) == ((), (), 0)


def test_a_moment_before_everything() -> None:
    timeline = timeline_of(order_in_flight(START), now=500)
    chart = draw(timeline, LaneQuery(at=-1))
    assert (chart.cursor, chart.veil) == ("0%", "100%")
    assert {lane.lane.state for lane in chart.lanes} == {State.UNREACHED}


def test_a_clock_that_was_behind_does_not_push_bars_out_of_the_track() -> None:
    story = Story(started=START, ended=10).step("early", [Try(-5, -4, 3)])
    timeline = timeline_of(story)
    assert timeline.start == START - timedelta(seconds=5)
