"""A sleep is a row with a wake-up time; no worker is held meanwhile."""

import time
from datetime import timedelta
from typing import Any

import pytest

from pikku_storage.db import clock
from pikku_storage.workflows import workflow
from pikku_storage.workflows.definitions import WorkflowDefinition
from pikku_storage.workflows.flow import Flow
from pikku_storage.workflows.service import WorkflowService
from tests.conformance.recording import RecordingDispatcher
from tests.conformance.support import SECOND, outcomes, step_names, step_of

pytestmark = pytest.mark.django_db(transaction=True)

HOUR = timedelta(hours=1)


@pytest.fixture
def order() -> WorkflowDefinition[Any]:
    """Sleeps between two steps."""

    @workflow
    def order(flow: Flow, duration: Any) -> str:
        flow.do("before", lambda: 1)
        flow.sleep("cool down", duration)
        return flow.do("after", lambda: "rested")

    return order


@pytest.mark.parametrize("duration", [7_200_000, "2h", "7200s"], ids=repr)
def test_a_sleeping_run_is_rows_with_due_times(
    outbox: RecordingDispatcher, order: WorkflowDefinition[Any], duration: Any
) -> None:
    run = order.start({"duration": duration})
    outbox.deliver()

    step = step_of(run.id, "cool down")
    assert (step.status, step.rpc_name, step.data, step.max_attempts) == ("scheduled", None, {"duration": 7_200_000}, 1)
    assert step.due_at is not None
    assert step.due_at - step.created_at == 2 * HOUR
    assert run.status == "running"
    assert run.get().due_at is not None
    assert step_names(run.id) == ["before", "cool down"]


def test_a_timedelta_is_a_duration(outbox: RecordingDispatcher) -> None:
    @workflow
    def order(flow: Flow) -> None:
        flow.sleep("nap", timedelta(minutes=1))

    run = order.start()
    outbox.deliver()
    assert step_of(run.id, "nap").data == {"duration": 60_000}


def test_a_run_wakes_when_its_time_has_come_and_not_before(
    outbox: RecordingDispatcher, service: WorkflowService, order: WorkflowDefinition[Any]
) -> None:
    run = order.start({"duration": "2h"})
    outbox.deliver()

    with clock.travel(2 * HOUR - SECOND):
        run.resume()
        service.relay()
        outbox.deliver()
        service.orchestrate_workflow(run.id)
        assert step_of(run.id, "cool down").status == "scheduled"
        assert run.status == "running"
    with clock.travel(2 * HOUR + SECOND):
        assert run.id in service.relay()
        assert step_of(run.id, "cool down").status == "succeeded"
        outbox.deliver()

    assert run.output == "rested"
    assert outcomes(run.id, "cool down") == ["succeeded"]
    assert step_of(run.id, "cool down").result is None
    assert [event.type for event in run.timeline() if event.step_name == "cool down"] == [
        "pending",
        "scheduled",
        "succeeded",
    ]


def test_a_long_sleep_is_no_message_and_a_short_one_is_one_with_a_countdown(
    outbox: RecordingDispatcher, order: WorkflowDefinition[Any]
) -> None:
    order.start({"duration": "2h"})
    outbox.deliver()
    assert outbox.waiting == []

    run = order.start({"duration": "10s"})
    outbox.deliver()
    (posted,) = outbox.posted
    assert posted.message.run_id == run.id
    assert posted.message.countdown is not None
    assert 9 < posted.message.countdown <= 10
    with clock.travel(11 * SECOND):
        outbox.deliver()
    assert run.output == "rested"


def test_a_sleep_is_over_once_however_often_it_is_looked_at(
    outbox: RecordingDispatcher, service: WorkflowService, order: WorkflowDefinition[Any]
) -> None:
    run = order.start({"duration": "2h"})
    outbox.deliver()
    with clock.travel(3 * HOUR):
        service.relay()
        service.relay()
        outbox.duplicate_everything()
        outbox.deliver()
        service.relay()

    assert run.status == "completed"
    assert outcomes(run.id, "cool down") == ["succeeded"]
    assert outcomes(run.id, "after") == ["succeeded"]


def test_a_sleep_whose_time_has_come_ends_also_without_the_relay(
    outbox: RecordingDispatcher, service: WorkflowService, order: WorkflowDefinition[Any]
) -> None:
    run = order.start({"duration": "2h"})
    outbox.deliver()
    with clock.travel(3 * HOUR):
        service.orchestrate_workflow(run.id)

    assert run.output == "rested"
    assert outcomes(run.id, "cool down") == ["succeeded"]


def test_an_inline_run_really_waits(order: WorkflowDefinition[Any]) -> None:
    begun = time.monotonic()

    run = order.run({"duration": "150ms"})

    assert time.monotonic() - begun >= 0.15
    assert run.output == "rested"
    assert outcomes(run.id, "cool down") == ["succeeded"]


def test_no_time_at_all_is_no_wait(outbox: RecordingDispatcher, order: WorkflowDefinition[Any]) -> None:
    run = order.start({"duration": 0})
    assert outbox.deliver() == 1
    assert run.output == "rested"


def test_a_cancelled_run_does_not_wake(
    outbox: RecordingDispatcher, service: WorkflowService, order: WorkflowDefinition[Any]
) -> None:
    run = order.start({"duration": "2h"})
    outbox.deliver()
    assert run.cancel()

    with clock.travel(3 * HOUR):
        assert service.relay() == []
        assert outbox.deliver() == 0
    assert run.status == "cancelled"
    assert step_names(run.id) == ["before", "cool down"]
    assert step_of(run.id, "cool down").due_at is None


def test_many_sleepers_wake_in_one_round(
    outbox: RecordingDispatcher, service: WorkflowService, order: WorkflowDefinition[Any]
) -> None:
    sleepers = [order.start({"duration": "2h"}) for _ in range(25)]
    outbox.deliver()
    with clock.travel(3 * HOUR):
        assert set(service.relay(limit=10)) == {run.id for run in sleepers}
        outbox.deliver()

    assert {run.status for run in sleepers} == {"completed"}
