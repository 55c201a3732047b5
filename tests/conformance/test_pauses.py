"""Pausing a whole workflow, and letting it go on."""

from __future__ import annotations

from typing import Any

import pytest

from pikku_storage.db import clock
from pikku_storage.workflows import Limits, function, workflow
from pikku_storage.workflows.engine import rules
from pikku_storage.workflows.flow import Flow
from pikku_storage.workflows.handle import WorkflowRunHandle
from pikku_storage.workflows.invariants import find_violations
from pikku_storage.workflows.service import WorkflowService
from tests.conformance.recording import RecordingDispatcher
from tests.conformance.support import MINUTE, SECOND, noting, step_names

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def done() -> list[str]:
    """The steps that were carried out."""
    return []


@pytest.fixture
def order(done: list[str]) -> Any:
    """A workflow with a step in place, a queued one and a nap."""

    @function(name="pack", retries=0)
    def pack() -> None:
        done.append("pack")

    @function(name="ship", retries=0, queued=True)
    def ship() -> None:
        done.append("ship")

    @workflow(name="order")
    def order(flow: Flow) -> str:
        flow.do("pack", pack)
        flow.do("ship", ship)
        flow.sleep("nap", "1min")
        return "done"

    return order


def paused(run: WorkflowRunHandle) -> bool:
    return (run.waits_for or {}).get("kind") == "paused"


def test_runs_of_a_paused_workflow_wait_and_say_so(
    order: Any, done: list[str], outbox: RecordingDispatcher, service: WorkflowService
) -> None:
    assert service.pause_workflow("order", reason="the courier is down", by="ada")
    run = order.start()
    outbox.deliver()

    assert (run.status, done) == ("running", [])
    waits_for = run.waits_for or {}
    assert waits_for["kind"] == "paused"
    assert waits_for["text"] == "The workflow order is paused by ada: the courier is down"
    control = service.get_workflow_control("order")
    assert control is not None
    assert (control.is_paused, control.paused_by, control.paused_reason) == (True, "ada", "the courier is down")

    assert service.unpause_workflow("order", by="bob")
    outbox.deliver()
    assert done == ["pack", "ship"]
    control = service.get_workflow_control("order")
    assert control is not None
    assert (control.is_paused, control.paused_reason, control.updated_by) == (False, None, "bob")


def test_pausing_twice_and_going_on_twice_say_that_nothing_changed(order: Any, service: WorkflowService) -> None:
    assert not service.unpause_workflow("order")
    assert service.pause_workflow("order", reason="first")
    assert not service.pause_workflow("order", reason="second")
    control = service.get_workflow_control("order")
    assert control is not None
    assert control.paused_reason == "first"
    assert service.unpause_workflow("order")
    assert not service.unpause_workflow("order")


def test_a_step_that_is_queued_waits_for_the_end_of_the_pause(
    order: Any, done: list[str], outbox: RecordingDispatcher, service: WorkflowService
) -> None:
    run = order.start()
    outbox.deliver_one()
    assert done == ["pack"]
    service.pause_workflow("order")

    outbox.deliver()
    assert (done, paused(run)) == (["pack"], True)
    assert [step.attempt_count for step in run.steps()] == [1, 1]

    service.unpause_workflow("order")
    service.relay()
    outbox.deliver()
    assert done == ["pack", "ship"]
    assert not paused(run)


def test_a_run_that_sleeps_wakes_into_the_pause(
    order: Any, outbox: RecordingDispatcher, service: WorkflowService
) -> None:
    run = order.start()
    outbox.deliver()
    service.pause_workflow("order")
    with clock.travel(2 * MINUTE):
        service.relay()
        outbox.deliver()
        assert (run.status, paused(run)) == ("running", True)
        service.unpause_workflow("order")
        outbox.deliver()
    assert run.status == "completed"
    assert list(find_violations()) == []


def test_a_run_that_is_under_way_stops_before_its_next_step(
    outbox: RecordingDispatcher, service: WorkflowService, done: list[str]
) -> None:
    @workflow
    def busy(flow: Flow) -> None:
        flow.do("first", lambda: noting(done, "first", service.pause_workflow("busy")))
        flow.do("second", lambda: done.append("second"))

    run = busy.start()
    outbox.deliver()
    assert (done, paused(run)) == (["first"], True)

    service.unpause_workflow("busy")
    outbox.deliver()
    assert (done, run.status) == (["first", "second"], "completed")


def test_nobody_is_asked_while_the_workflow_is_paused(
    outbox: RecordingDispatcher, service: WorkflowService, done: list[str]
) -> None:
    @workflow
    def asking(flow: Flow) -> None:
        flow.do("first", lambda: noting(done, "first", service.pause_workflow("asking")))
        flow.approval("release")

    run = asking.start()
    outbox.deliver()
    assert paused(run)
    assert step_names(run.id) == ["first"]

    service.unpause_workflow("asking")
    outbox.deliver()
    assert (run.status, (run.waits_for or {})["kind"]) == ("suspended", "approval")


def test_a_process_that_remembers_the_pause_asks_again(
    order: Any, done: list[str], outbox: RecordingDispatcher, service: WorkflowService
) -> None:
    service.pause_workflow("order")
    run = order.start()
    outbox.deliver()
    remembered = rules._read.copy()
    rules.rules_of(service._runtime, "order")
    remembered = dict(rules._read)
    service.unpause_workflow("order")
    rules._read.update(remembered)

    outbox.deliver()
    assert done == ["pack", "ship"]
    assert not paused(run)


def test_other_processes_learn_of_it_within_a_second(
    order: Any, done: list[str], outbox: RecordingDispatcher, service: WorkflowService, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr("pikku_storage.workflows.engine.rules.time.monotonic", lambda: now[0])
    rules.rules_of(service._runtime, "order", fresh=True)
    # Another process pauses it: this one's memory stays as it is.
    service._runtime.controls.pause("order", at=service._runtime.now(), by=None, reason=None)
    order.start()
    outbox.deliver_one()
    assert done == ["pack"]

    now[0] += 1.1
    run = order.start()
    outbox.deliver()
    assert paused(run)


def test_the_waiting_ones_go_on_in_the_order_of_their_priority(
    order: Any, outbox: RecordingDispatcher, service: WorkflowService
) -> None:
    service.pause_workflow("order")
    runs = [order.start(priority=priority) for priority in (5, 1, 9)]
    outbox.deliver()
    service.unpause_workflow("order")

    assert [message.run_id for message in outbox.waiting] == [runs[index].id for index in (2, 0, 1)]


def test_a_paused_workflow_keeps_its_limits_afterwards(
    outbox: RecordingDispatcher, service: WorkflowService, done: list[str]
) -> None:
    @workflow(limits=Limits(concurrency=1))
    def single(flow: Flow, number: int) -> None:
        flow.do("work", lambda: done.append(str(number)))

    service.pause_workflow("single")
    runs = [single.start({"number": number}) for number in range(4)]
    outbox.deliver()
    service.unpause_workflow("single")
    outbox.deliver()

    assert {run.status for run in runs} == {"completed"}
    assert done == ["0", "1", "2", "3"]


def test_another_workflow_is_not_concerned(order: Any, outbox: RecordingDispatcher, service: WorkflowService) -> None:
    @workflow
    def other(flow: Flow) -> str:
        return "done"

    service.pause_workflow("order")
    run = other.start()
    outbox.deliver()
    assert run.status == "completed"


def test_a_run_of_a_paused_workflow_can_be_cancelled_and_meets_its_deadline(
    order: Any, outbox: RecordingDispatcher, service: WorkflowService
) -> None:
    service.pause_workflow("order")
    first, second = order.start(), order.start(deadline="1min")
    outbox.deliver()
    assert first.cancel()
    with clock.travel(MINUTE + SECOND):
        service.relay()
    assert (first.status, second.status) == ("cancelled", "failed")
    assert not service._runtime.runs.filter(line__isnull=False).exists()


def test_no_more_than_a_look_a_second_is_paid_for_it(order: Any, service: WorkflowService, statements: Any) -> None:
    with statements() as seen:
        for _ in range(10):
            rules.rules_of(service._runtime, "order")
    assert len(seen.captured_queries) == 0
