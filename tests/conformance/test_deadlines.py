"""A run's deadline."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pikku_storage.db import clock
from pikku_storage.exceptions import WorkflowInputError, WorkflowRunFailedError
from pikku_storage.workflows import function, workflow
from pikku_storage.workflows.flow import Flow
from pikku_storage.workflows.invariants import find_violations
from pikku_storage.workflows.models import WorkflowRun, WorkflowStep
from pikku_storage.workflows.service import WorkflowService
from tests.conformance.recording import RecordingDispatcher
from tests.conformance.support import MINUTE, SECOND, outcomes, step_names

pytestmark = pytest.mark.django_db(transaction=True)

HOUR = timedelta(hours=1)


@pytest.fixture
def order() -> Any:
    """A workflow of an hour at most, which sleeps, waits for a queued step, or is tried again."""

    @function(name="ship", queued=True, retries=3, retry_delay="2h")
    def ship(fails: bool = False) -> None:
        if fails:
            raise ValueError("no")

    @function(name="pack", retries=3, retry_delay="2h")
    def pack() -> None:
        raise ValueError("no")

    @workflow(name="order", deadline="1h")
    def order(flow: Flow, how: str) -> None:
        match how:
            case "sleep":
                flow.sleep("nap", "2h")
            case "queued":
                flow.do("ship", ship)
            case "queued retry":
                flow.do("ship", ship, {"fails": True})
            case "retry":
                flow.do("pack", pack)

    return order


def is_exceeded(run: Any) -> bool:
    return run.status == "failed" and (run.error or {}).get("code") == "DEADLINE_EXCEEDED"


def test_it_is_counted_from_the_start_and_kept_with_the_run(order: Any) -> None:
    run = order.start({"how": "sleep"}).get()
    assert run.deadline_at == run.created_at + HOUR
    own = order.start({"how": "sleep"}, deadline="2min").get()
    assert own.deadline_at == own.created_at + 2 * MINUTE
    at = datetime(2040, 1, 1, tzinfo=UTC)
    assert order.start({"how": "sleep"}, deadline=at).get().deadline_at == at


@pytest.mark.parametrize("deadline", [0, "soon", datetime(2040, 1, 1)], ids=str)  # noqa: DTZ001
def test_what_is_no_deadline_is_refused(order: Any, deadline: Any) -> None:
    with pytest.raises(WorkflowInputError, match=r"deadline|duration"):
        order.start({"how": "sleep"}, deadline=deadline)
    assert WorkflowRun.objects.count() == 0


@pytest.mark.parametrize("how", ["sleep", "queued", "queued retry", "retry"])
def test_the_relay_ends_a_run_that_waits_when_its_time_is_over(
    order: Any, how: str, outbox: RecordingDispatcher, service: WorkflowService
) -> None:
    run = order.start({"how": how})
    if how == "queued":
        outbox.deliver_one()
    else:
        outbox.deliver()
    assert run.status == "running"
    stored = run.get()
    assert stored.due_at is not None
    assert stored.deadline_at is not None
    assert stored.due_at <= stored.deadline_at

    outbox.lose_everything()
    with clock.travel(HOUR + SECOND):
        service.relay()
        outbox.deliver()
    assert is_exceeded(run)
    with pytest.raises(WorkflowRunFailedError, match="had not ended by its deadline"):
        run.result()
    # As with a cancelled run, nothing of it is due any more, and no further attempt began.
    assert not WorkflowStep.objects.filter(due_at__isnull=False).exists()
    assert all(step.attempt_count == 1 for step in run.steps())
    assert list(find_violations()) == []


def test_a_step_under_way_ends_and_none_begins_after_it(outbox: RecordingDispatcher, service: WorkflowService) -> None:
    time = clock.travel(2 * MINUTE)

    @workflow(deadline="1min")
    def slow(flow: Flow) -> None:
        flow.do("first", time.__enter__)
        flow.do("second", lambda: None)

    run = slow.start()
    try:
        outbox.deliver()
    finally:
        time.__exit__(None, None, None)
    assert is_exceeded(run)
    assert (step_names(run.id), outcomes(run.id, "first")) == (["first"], ["succeeded"])


def test_the_relay_ends_a_run_that_a_worker_is_inside_of(outbox: RecordingDispatcher, service: WorkflowService) -> None:
    @workflow(deadline="1min")
    def long(flow: Flow) -> None:
        def work() -> None:
            with clock.travel(2 * MINUTE):
                WorkflowService().relay()

        flow.do("first", work)
        flow.do("second", lambda: None)

    run = long.start()
    outbox.deliver()
    assert is_exceeded(run)
    assert step_names(run.id) == ["first"]
    assert list(find_violations()) == []


@pytest.mark.parametrize("expiry", [None, "3h"])
@pytest.mark.parametrize("how", ["relay", "message"])
def test_nobody_is_asked_any_longer_than_it(
    how: str, expiry: str | None, outbox: RecordingDispatcher, service: WorkflowService
) -> None:
    @workflow(deadline="1h")
    def order(flow: Flow) -> None:
        flow.approval("release", expiry=expiry)

    run = order.start()
    outbox.deliver()
    row = run.get()
    assert (row.status, row.due_at) == ("suspended", row.deadline_at)

    with clock.travel(HOUR + SECOND):
        if how == "message":
            service.orchestrate_workflow(run.id)
        service.relay()
    assert is_exceeded(run)
    assert [step.status for step in run.steps()] == ["failed"]
    assert list(find_violations()) == []


def test_a_message_that_comes_after_it_ends_the_run(order: Any, outbox: RecordingDispatcher) -> None:
    queued, fresh = order.start({"how": "queued"}), order.start({"how": "sleep"})
    outbox.deliver_one()
    with clock.travel(HOUR + SECOND):
        outbox.deliver()
    assert is_exceeded(queued)
    assert is_exceeded(fresh)
    assert [step.status for step in queued.steps()] == ["scheduled"]
    assert fresh.steps() == []


def test_a_run_is_due_at_its_deadline_while_a_worker_is_inside(
    outbox: RecordingDispatcher, service: WorkflowService
) -> None:
    seen: list[Any] = []

    @workflow(deadline="30s")
    def quick(flow: Flow) -> None:
        flow.do("look", lambda: seen.append(WorkflowRun.objects.values_list("due_at", "deadline_at").get()))

    quick.start()
    outbox.deliver()
    assert seen[0][0] == seen[0][1]


def test_an_inline_run_sleeps_no_longer_than_it(order: Any) -> None:
    run = order.run({"how": "sleep"}, deadline="60ms")
    assert is_exceeded(run)


def test_a_retry_has_as_long_as_the_first(order: Any, outbox: RecordingDispatcher, service: WorkflowService) -> None:
    run = order.start({"how": "sleep"}, priority=8)
    with clock.travel(HOUR + SECOND):
        service.relay()
        again = service.retry_run(run.id).get()
        assert again.deadline_at == again.created_at + HOUR
        assert again.priority == 8


def test_a_run_that_ends_in_time_is_not_concerned(outbox: RecordingDispatcher) -> None:
    @workflow(deadline="1min")
    def quick(flow: Flow) -> str:
        return "done"

    run = quick.start()
    outbox.deliver()
    with clock.travel(2 * MINUTE):
        WorkflowService().relay()
    assert (run.status, run.output) == ("completed", "done")
