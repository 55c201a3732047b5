"""The table of transitions is what the design says it is."""

import pytest

from pikku_storage.workflows.statuses import (
    END_STATUSES,
    LIVE_RUN_STATUSES,
    RUN_TRANSITIONS,
    STEP_TRANSITIONS,
    TERMINAL_RUN_STATUSES,
    RunStatus,
    StepStatus,
    VersionStatus,
    run_statuses_before,
    step_statuses_before,
)


def test_the_statuses_are_the_contracts() -> None:
    assert RunStatus.values == ["running", "suspended", "completed", "failed", "cancelled"]
    assert StepStatus.values == ["pending", "scheduled", "running", "succeeded", "failed"]
    assert VersionStatus.values == ["draft", "active", "declined"]


def test_every_status_is_in_its_table() -> None:
    assert set(RUN_TRANSITIONS) == set(RunStatus)
    assert set(STEP_TRANSITIONS) == set(StepStatus)


def test_completed_failed_and_cancelled_are_never_left() -> None:
    assert TERMINAL_RUN_STATUSES == {"completed", "failed", "cancelled"}
    assert not any(RUN_TRANSITIONS[status] for status in TERMINAL_RUN_STATUSES)
    assert LIVE_RUN_STATUSES == {"running", "suspended"}


def test_a_waiter_also_stops_at_a_suspended_run() -> None:
    assert END_STATUSES == {"completed", "failed", "cancelled", "suspended"}


@pytest.mark.parametrize("status", RunStatus)
def test_only_a_live_run_changes_its_status(status: RunStatus) -> None:
    assert run_statuses_before(status) == ["running", "suspended"]


def test_a_succeeded_step_is_never_left() -> None:
    assert STEP_TRANSITIONS[StepStatus.SUCCEEDED] == frozenset()


def test_a_failed_step_is_left_only_by_a_new_attempt() -> None:
    assert STEP_TRANSITIONS[StepStatus.FAILED] == {StepStatus.PENDING, StepStatus.RUNNING}
    for status in StepStatus:
        assert StepStatus.FAILED not in step_statuses_before(status)


@pytest.mark.parametrize(
    ("status", "before"),
    [
        (StepStatus.PENDING, []),
        (StepStatus.SCHEDULED, ["pending"]),
        (StepStatus.RUNNING, ["pending", "scheduled"]),
        (StepStatus.SUCCEEDED, ["pending", "running", "scheduled"]),
        (StepStatus.FAILED, ["pending", "running", "scheduled"]),
    ],
)
def test_an_attempt_goes_forward_only(status: StepStatus, before: list[str]) -> None:
    assert step_statuses_before(status) == before
