"""A run's history as events, and its state at any of them."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pikku_storage.workflows.records import HistoryEntry
from pikku_storage.workflows.timeline import (
    ReconstructedState,
    ReconstructedStep,
    TimelineEvent,
    build_run_timeline,
    reconstruct_state_at,
)
from tests.data.vectors import vectors

START = datetime(2024, 1, 1, tzinfo=UTC)


def entry(name: str, status: str = "succeeded", *, attempt: int = 1, created: int = 0, **values: Any) -> HistoryEntry:
    """An attempt; times are milliseconds after `START`."""
    stamps: dict[str, Any] = {
        stamp: START + timedelta(milliseconds=values.pop(stamp)) if stamp in values else None
        for stamp in ("running_at", "scheduled_at", "succeeded_at", "failed_at")
    }
    created_at = START + timedelta(milliseconds=created)
    return HistoryEntry(
        step_id=f"s-{name}",
        step_name=name,
        status=status,
        attempt_count=attempt,
        created_at=created_at,
        updated_at=START + timedelta(milliseconds=values.pop("updated_at", created)),
        **{
            "rpc_name": None,
            "from_step_name": None,
            "result": None,
            "error": None,
            "retries": None,
            "retry_delay": None,
            "worker": None,
            **values,
        },
        **stamps,
    )


def at(milliseconds: int) -> datetime:
    return START + timedelta(milliseconds=milliseconds)


# -- the vectors -------------------------------------------------------------------------------------------------------


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def _entry(row: dict[str, Any]) -> HistoryEntry:
    created_at, updated_at = _time(row["createdAt"]), _time(row["updatedAt"])
    assert created_at is not None
    assert updated_at is not None
    return HistoryEntry(
        step_id=row["stepId"],
        step_name=row["stepName"],
        rpc_name=row.get("rpcName"),
        from_step_name=row.get("fromStepName"),
        status=row["status"],
        result=row.get("result"),
        error=row.get("error"),
        attempt_count=row["attemptCount"],
        retries=row.get("retries"),
        retry_delay=row.get("retryDelay"),
        worker=None,
        created_at=created_at,
        updated_at=updated_at,
        running_at=_time(row.get("runningAt")),
        scheduled_at=_time(row.get("scheduledAt")),
        succeeded_at=_time(row.get("succeededAt")),
        failed_at=_time(row.get("failedAt")),
    )


def _event(row: dict[str, Any]) -> TimelineEvent:
    moment = _time(row["at"])
    assert moment is not None
    return TimelineEvent(
        seq=row["seq"],
        at=moment,
        type=row["type"],
        step_name=row["stepName"],
        attempt_count=row["attemptCount"],
        from_step_name=row.get("fromStepName"),
        result=row.get("result"),
        error=row.get("error"),
    )


def _state(row: dict[str, Any]) -> ReconstructedState:
    return ReconstructedState(
        seq=row["seq"],
        at=_time(row.get("at")),
        steps=tuple(
            ReconstructedStep(
                step_name=step["stepName"],
                status=step["status"],
                attempt_count=step["attemptCount"],
                from_step_name=step.get("fromStepName"),
                result=step.get("result"),
                error=step.get("error"),
            )
            for step in row["steps"]
        ),
        results=row["results"],
        path=tuple(row["path"]),
        phase=row["phase"],
    )


@pytest.mark.contract("TL-01", "TL-02")
@pytest.mark.parametrize("vector", vectors("run-timeline"), ids=lambda vector: str(vector["name"]))
def test_a_history_becomes_the_events_of_the_contract(vector: dict[str, Any]) -> None:
    assert build_run_timeline(map(_entry, vector["history"])) == [_event(row) for row in vector["timeline"]]


@pytest.mark.parametrize("vector", vectors("run-timeline"), ids=lambda vector: str(vector["name"]))
def test_each_point_of_a_timeline_is_the_state_of_the_contract(vector: dict[str, Any]) -> None:
    timeline = build_run_timeline(map(_entry, vector["history"]))

    by_number = [(cut["seq"], reconstruct_state_at(timeline, cut["seq"])) for cut in vector["at"]]
    assert by_number == [(cut["seq"], _state(cut["state"])) for cut in vector["at"]]
    by_time = [(cut["date"], reconstruct_state_at(timeline, _time(cut["date"]))) for cut in vector["atDates"]]
    assert by_time == [(cut["date"], _state(cut["state"])) for cut in vector["atDates"]]
    assert reconstruct_state_at(timeline) == _state(vector["final"])


# -- the rules, one by one ---------------------------------------------------------------------------------------------


@pytest.mark.contract("TL-01")
def test_an_attempt_is_pending_then_running_then_succeeded() -> None:
    timeline = build_run_timeline([entry("a", running_at=1, succeeded_at=2, result={"n": 1})])

    assert [(event.seq, event.type, event.at) for event in timeline] == [
        (0, "pending", at(0)),
        (1, "running", at(1)),
        (2, "succeeded", at(2)),
    ]
    assert [event.result for event in timeline] == [None, None, {"n": 1}]


@pytest.mark.contract("TL-02")
def test_events_of_one_instant_go_by_lifecycle_then_row() -> None:
    timeline = build_run_timeline(
        [entry("b", running_at=0, scheduled_at=0, succeeded_at=0), entry("a", running_at=0, succeeded_at=0)]
    )

    assert [(event.type, event.step_name) for event in timeline] == [
        ("pending", "b"),
        ("pending", "a"),
        ("scheduled", "b"),
        ("running", "b"),
        ("running", "a"),
        ("succeeded", "b"),
        ("succeeded", "a"),
    ]


@pytest.mark.contract("TL-03")
def test_where_a_step_came_from_is_told_by_its_pending_event_only() -> None:
    timeline = build_run_timeline([entry("b", running_at=1, succeeded_at=2, from_step_name="a")])

    assert [event.from_step_name for event in timeline] == ["a", None, None]


@pytest.mark.contract("TL-04")
@pytest.mark.parametrize("status", ["succeeded", "failed"])
def test_the_end_follows_the_status_even_without_its_stamp(status: str) -> None:
    timeline = build_run_timeline([entry("a", status, updated_at=7)])

    assert [(event.type, event.at) for event in timeline] == [("pending", at(0)), (status, at(7))]


def test_a_stamp_that_contradicts_the_status_is_no_event() -> None:
    timeline = build_run_timeline([entry("a", "running", running_at=1, succeeded_at=2, failed_at=3)])

    assert [event.type for event in timeline] == ["pending", "running"]


@pytest.mark.contract("TL-05")
@pytest.mark.parametrize("cut", [-1, at(-1)], ids=["number", "time"])
def test_before_everything_there_is_nothing(cut: int | datetime) -> None:
    state = reconstruct_state_at(build_run_timeline([entry("a")]), cut)

    assert state == ReconstructedState(seq=-1, at=None, steps=(), results={}, path=(), phase="pending")


@pytest.mark.contract("TL-06")
def test_a_cut_by_number_shows_what_had_happened_by_then() -> None:
    timeline = build_run_timeline([entry("a", succeeded_at=1, result=1), entry("b", created=2, succeeded_at=3)])

    state = reconstruct_state_at(timeline, 1)

    assert state.path == ("a",)
    assert state.results == {"a": 1}
    assert (state.seq, state.at, state.phase) == (1, at(1), "idle")


@pytest.mark.contract("TL-07")
def test_a_step_in_flight_is_running() -> None:
    state = reconstruct_state_at(build_run_timeline([entry("a", "running", running_at=1)]))

    assert [step.status for step in state.steps] == ["running"]
    assert state.phase == "running"


@pytest.mark.contract("TL-08")
def test_a_cut_by_time_includes_that_instant() -> None:
    timeline = build_run_timeline([entry("a", running_at=1, succeeded_at=2)])

    assert reconstruct_state_at(timeline, at(1)).steps[0].status == "running"
    assert reconstruct_state_at(timeline, at(2)).steps[0].status == "succeeded"


@pytest.mark.contract("TL-09")
def test_the_final_state_has_the_whole_path_and_all_results() -> None:
    timeline = build_run_timeline(
        [entry(name, created=n, succeeded_at=n, result=n) for n, name in enumerate(["a", "b", "a#1"])]
    )

    state = reconstruct_state_at(timeline)

    assert state.path == ("a", "b", "a#1")
    assert state.results == {"a": 0, "b": 1, "a#1": 2}


def _failed_then_succeeded() -> list[TimelineEvent]:
    return build_run_timeline(
        [
            entry("a", "failed", running_at=1, failed_at=2, error={"message": "no"}, from_step_name="start"),
            entry("a", attempt=2, created=5, running_at=6, succeeded_at=7, result=0),
        ]
    )


@pytest.mark.contract("TL-10")
def test_between_two_attempts_the_step_is_failed() -> None:
    state = reconstruct_state_at(_failed_then_succeeded(), at(4))

    assert [(step.status, step.error) for step in state.steps] == [("failed", {"message": "no"})]
    assert state.phase == "failed"


@pytest.mark.contract("TL-11")
def test_the_next_attempt_opens_the_step_again_and_clears_its_error() -> None:
    (step,) = reconstruct_state_at(_failed_then_succeeded(), at(5)).steps

    assert (step.status, step.attempt_count, step.error) == ("pending", 2, None)
    assert step.from_step_name == "start"


@pytest.mark.contract("TL-12")
def test_after_the_retry_the_result_is_there_even_if_it_is_zero() -> None:
    state = reconstruct_state_at(_failed_then_succeeded())

    assert state.results == {"a": 0}
    assert state.steps[0].attempt_count == 2


def test_attempts_that_all_fall_into_one_millisecond_come_one_after_the_other() -> None:
    """A retry without a delay begins in the very millisecond in which the attempt before it failed."""
    timeline = build_run_timeline(
        [
            entry("a", "failed", running_at=0, failed_at=0, error={"message": "first"}),
            entry("a", "failed", attempt=2, running_at=0, failed_at=0, error={"message": "second"}),
            entry("a", attempt=3, running_at=0, succeeded_at=0, result=0),
        ]
    )

    assert [(event.attempt_count, event.type) for event in timeline] == [
        *((attempt, kind) for attempt in (1, 2) for kind in ("pending", "running", "failed")),
        *((3, kind) for kind in ("pending", "running", "succeeded")),
    ]
    assert [event.seq for event in timeline] == list(range(9))
    states = [reconstruct_state_at(timeline, seq).steps[0] for seq in range(9)]
    assert [(state.status, state.attempt_count) for state in states] == [
        (event.type, event.attempt_count) for event in timeline
    ]
    assert reconstruct_state_at(timeline).results == {"a": 0}


def test_a_tie_between_attempts_of_one_step_does_not_move_another_step() -> None:
    timeline = build_run_timeline(
        [
            entry("a", "failed", running_at=1, failed_at=5, error={"message": "no"}),
            entry("b", created=5, running_at=5, succeeded_at=5, result="b"),
            entry("a", attempt=2, created=5, running_at=6, succeeded_at=7, result="a"),
        ]
    )

    of_a = [(event.attempt_count, event.type) for event in timeline if event.step_name == "a"]
    of_b = [event.type for event in timeline if event.step_name == "b"]
    assert of_a == [
        *((1, kind) for kind in ("pending", "running", "failed")),
        *((2, kind) for kind in ("pending", "running", "succeeded")),
    ]
    assert of_b == ["pending", "running", "succeeded"]
    assert reconstruct_state_at(timeline).results == {"a": "a", "b": "b"}


def test_a_later_attempt_may_tie_with_one_that_took_time() -> None:
    timeline = build_run_timeline(
        [
            entry("a", "failed", running_at=0, failed_at=0, error={"message": "first"}),
            entry("a", "failed", attempt=2, running_at=0, failed_at=3, error={"message": "second"}),
            entry("a", attempt=3, created=3, running_at=3, succeeded_at=3, result=0),
        ]
    )

    assert [event.attempt_count for event in timeline] == [1, 1, 1, 2, 2, 2, 3, 3, 3]
