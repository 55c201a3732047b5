"""Waiting for the end of a run."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import pytest

from pikku_storage.exceptions import (
    WorkflowRunCancelledError,
    WorkflowRunFailedError,
    WorkflowRunNotFoundError,
    WorkflowRunSuspendedError,
)
from pikku_storage.json import Json
from pikku_storage.workflows.handle import output_of, wait_for_end
from pikku_storage.workflows.records import Run

NOW = datetime(2026, 3, 2, tzinfo=UTC)


def run(status: str, *, output: Json = None, error: dict[str, Json] | None = None) -> Run:
    values = {"id": "run-1", "workflow": "orders", "status": status, "input": {}, "wire": {"type": "code"}}
    return Run.new({**values, "output": output, "error": error, "created_at": NOW, "updated_at": NOW})


def reads(*statuses: str) -> Callable[[], Run]:
    """A read that answers with these statuses, one after the other."""
    following: Iterator[str] = iter(statuses)
    return lambda: run(next(following))


@pytest.mark.contract("PO-01")
def test_a_run_that_ends_quickly_is_waited_for_much_less_than_the_longest_interval() -> None:
    slept: list[float] = []

    wait_for_end(reads("running", "running", "completed"), sleep=slept.append)

    assert sum(slept) == pytest.approx(0.010 + 0.016)


@pytest.mark.contract("PO-02")
def test_the_waits_grow_while_the_run_goes_on() -> None:
    slept: list[float] = []

    wait_for_end(reads(*["running"] * 5, "completed"), sleep=slept.append)

    assert slept == pytest.approx([0.010, 0.016, 0.0256, 0.04096, 0.065536])


@pytest.mark.contract("PO-03")
@pytest.mark.parametrize("ceiling", [0.5, 1.0])
def test_no_wait_is_longer_than_the_ceiling(ceiling: float) -> None:
    slept: list[float] = []

    wait_for_end(reads(*["running"] * 30, "completed"), sleep=slept.append, ceiling=ceiling)

    assert max(slept) == ceiling
    assert slept == sorted(slept)


@pytest.mark.contract("PO-04")
@pytest.mark.parametrize("status", ["completed", "failed", "cancelled", "suspended"])
def test_a_run_that_is_over_is_read_once_and_not_waited_for(status: str) -> None:
    slept: list[float] = []

    assert wait_for_end(reads(status), sleep=slept.append).status == status
    assert slept == []


@pytest.mark.contract("PO-05")
def test_a_failed_run_tells_its_message() -> None:
    with pytest.raises(WorkflowRunFailedError, match="no funds") as caught:
        output_of(run("failed", error={"message": "no funds", "code": "CARD_DECLINED"}))

    assert caught.value.run_id == "run-1"
    assert caught.value.error["code"] == "CARD_DECLINED"
    assert caught.value.http_status == 422


@pytest.mark.contract("PO-06")
def test_a_cancelled_run_is_an_error_to_who_waits_for_it() -> None:
    with pytest.raises(WorkflowRunCancelledError, match="run-1") as caught:
        output_of(run("cancelled"))

    assert caught.value.http_status == 409


def test_a_completed_run_answers_with_its_output() -> None:
    assert output_of(run("completed", output=0)) == 0


def test_a_suspended_run_ends_the_wait_and_says_what_it_waits_for() -> None:
    found = wait_for_end(reads("running", "suspended"), sleep=lambda _: None)
    with pytest.raises(WorkflowRunSuspendedError, match="is suspended: run-1"):
        output_of(found)


@pytest.mark.contract("PO-07")
def test_a_run_that_vanishes_while_it_is_waited_for_is_named() -> None:
    answers: Iterator[Run | None] = iter([run("running"), None])

    def read() -> Run:
        found = next(answers)
        if found is None:
            raise WorkflowRunNotFoundError("run-1")
        return found

    with pytest.raises(WorkflowRunNotFoundError, match="run-1"):
        wait_for_end(read, sleep=lambda _: None)


def test_a_wait_with_a_timeout_ends_with_it() -> None:
    with pytest.raises(TimeoutError, match=r"Run run-1 is still running after 0\.05 s"):
        wait_for_end(lambda: run("running"), timeout=0.05)


def test_a_timeout_of_zero_looks_once() -> None:
    slept: list[float] = []

    with pytest.raises(TimeoutError):
        wait_for_end(lambda: run("running"), timeout=0, sleep=slept.append)
    assert slept == []
