"""`cancel(compensate=True)`: what a run did is undone before it is cancelled."""

import threading
from typing import Any

import pytest

from pikku_storage.db import clock
from pikku_storage.workflows import function, workflow
from pikku_storage.workflows.definitions import FunctionDefinition, WorkflowDefinition
from pikku_storage.workflows.flow import Flow
from pikku_storage.workflows.handle import WorkflowRunHandle
from pikku_storage.workflows.invariants import find_violations
from pikku_storage.workflows.service import WorkflowService
from tests.conformance.recording import RecordingDispatcher
from tests.conformance.support import MINUTE, outcomes, step_names, step_of

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def log() -> list[str]:
    """What was done and undone, in order."""
    return []


@pytest.fixture
def book(log: list[str]) -> FunctionDefinition[Any, Any]:
    """A step that does something."""

    @function(retries=0)
    def book(what: str) -> str:
        log.append(f"book {what}")
        return what

    return book


@pytest.fixture
def unbook(log: list[str]) -> FunctionDefinition[Any, Any]:
    """What undoes it."""

    @function
    def unbook(error: dict[str, Any], input: dict[str, Any], invocation_id: str) -> None:
        log.append(f"unbook {input['what']} ({error['code']})")

    return unbook


@pytest.fixture
def trip(book: FunctionDefinition[Any, Any], unbook: FunctionDefinition[Any, Any]) -> WorkflowDefinition[[]]:
    """Two bookings, one thing that cannot be undone, a wait, and another booking."""

    @workflow
    def trip(flow: Flow) -> str:
        flow.do("flight", book, {"what": "flight"}, on_error=unbook)
        flow.do("mail", book, {"what": "mail"})
        flow.map("hotel", book, [{"what": "Rome"}, {"what": "Bari"}], on_error=unbook)
        flow.sleep("until the day", "2h")
        flow.do("taxi", book, {"what": "taxi"}, on_error=unbook)
        return "gone"

    return trip


@pytest.fixture
def asleep(trip: WorkflowDefinition[[]], outbox: RecordingDispatcher, log: list[str]) -> WorkflowRunHandle:
    """A trip that waits for its day."""
    run = trip.start()
    outbox.deliver()
    assert step_of(run.id, "until the day").status == "scheduled"
    assert log == ["book flight", "book mail", "book Rome", "book Bari"]
    log.clear()
    return run


UNDONE = [f"unbook {what} (WORKFLOW_CANCELLED)" for what in ("Bari", "Rome", "flight")]


def test_what_was_done_is_undone_the_newest_first(
    asleep: WorkflowRunHandle, outbox: RecordingDispatcher, log: list[str]
) -> None:
    assert asleep.cancel("they stay at home", by="user-7", compensate=True)
    assert asleep.status == "running"
    outbox.deliver()

    assert log == UNDONE
    assert asleep.status == "cancelled"
    assert asleep.error == {"message": "they stay at home", "code": "WORKFLOW_CANCELLED", "by": "user-7"}
    assert "taxi" not in step_names(asleep.id)
    assert outcomes(asleep.id, "hotel[1]:onError") == ["succeeded"]
    assert list(find_violations(run_ids=[asleep.id])) == []


def test_it_is_asked_for_once(asleep: WorkflowRunHandle, outbox: RecordingDispatcher, log: list[str]) -> None:
    assert asleep.cancel("first", compensate=True)
    assert not asleep.cancel("second", compensate=True)
    outbox.deliver()

    assert not asleep.cancel("third", compensate=True)
    assert asleep.error == {"message": "first", "code": "WORKFLOW_CANCELLED"}
    assert log == UNDONE


def test_a_lost_message_costs_time_only(
    service: WorkflowService, asleep: WorkflowRunHandle, outbox: RecordingDispatcher, log: list[str]
) -> None:
    asleep.cancel(compensate=True)
    outbox.lose_everything()
    with clock.travel(MINUTE):
        service.relay()
        outbox.deliver()

    assert (asleep.status, log) == ("cancelled", UNDONE)


def test_undoing_can_be_given_up(asleep: WorkflowRunHandle, outbox: RecordingDispatcher, log: list[str]) -> None:
    asleep.cancel("undo", compensate=True)
    assert asleep.cancel("now")
    outbox.deliver()

    assert (asleep.status, log) == ("cancelled", [])
    assert (asleep.error or {})["message"] == "now"


def test_a_body_that_ended_meanwhile_is_undone_all_the_same(
    outbox: RecordingDispatcher,
    book: FunctionDefinition[Any, Any],
    unbook: FunctionDefinition[Any, Any],
    log: list[str],
) -> None:
    """Its only step was under way when the cancellation was asked for."""

    @function
    def cancelling(what: str) -> str:
        assert run.cancel("too late", compensate=True)
        log.append(f"book {what}")
        return what

    @workflow
    def errand(flow: Flow) -> str:
        answer: str = flow.do("go", cancelling, {"what": "errand"}, on_error=unbook)
        return answer

    run = errand.start()
    outbox.deliver()

    assert log == ["book errand", "unbook errand (WORKFLOW_CANCELLED)"]
    assert (run.status, run.output) == ("cancelled", None)


def test_an_attempt_under_way_is_waited_for(
    service: WorkflowService, outbox: RecordingDispatcher, unbook: FunctionDefinition[Any, Any], log: list[str]
) -> None:
    """Whether it succeeds decides whether it must be undone."""

    @function(queued=True, retries=0)
    def slow(what: str) -> str:
        log.append(f"book {what}")
        run.cancel(compensate=True)
        outbox.deliver(worker="worker-2")
        assert run.status == "running", "it is not cancelled over the head of the attempt"
        return what

    @workflow
    def errand(flow: Flow) -> None:
        flow.do("go", slow, {"what": "errand"}, on_error=unbook)

    run = errand.start()
    outbox.deliver()
    with clock.travel(MINUTE):
        service.relay()
        outbox.deliver()

    assert log == ["book errand", "unbook errand (WORKFLOW_CANCELLED)"]
    assert run.status == "cancelled"


def test_a_step_that_waits_for_a_worker_is_not_begun(
    outbox: RecordingDispatcher, unbook: FunctionDefinition[Any, Any], log: list[str]
) -> None:
    @function(queued=True)
    def later(what: str) -> None:
        log.append(f"book {what}")

    @workflow
    def errand(flow: Flow) -> None:
        flow.do("go", later, {"what": "errand"}, on_error=unbook)

    run = errand.start()
    outbox.deliver_one()
    [message] = outbox.lose_everything()
    run.cancel(compensate=True)
    outbox.send([message])
    outbox.deliver()

    assert (run.status, log) == ("cancelled", [])
    assert step_of(run.id, "go").due_at is None


def test_a_step_that_failed_once_is_undone_too(
    outbox: RecordingDispatcher, unbook: FunctionDefinition[Any, Any], log: list[str]
) -> None:
    """Nobody knows how far an attempt came that failed."""

    class NoAnswer(Exception):
        code = "NO_ANSWER"

    @function(retries=3, retry_delay="1h")
    def unsure(what: str) -> None:
        raise NoAnswer

    @workflow
    def errand(flow: Flow) -> None:
        flow.do("go", unsure, {"what": "errand"}, on_error=unbook)

    run = errand.start()
    outbox.deliver()
    run.cancel(compensate=True)
    outbox.deliver()

    assert (run.status, log) == ("cancelled", ["unbook errand (NO_ANSWER)"])
    assert outcomes(run.id, "go") == ["failed"]


def test_a_compensation_that_fails_keeps_nothing_from_being_undone(
    outbox: RecordingDispatcher,
    book: FunctionDefinition[Any, Any],
    unbook: FunctionDefinition[Any, Any],
    log: list[str],
) -> None:
    @function(retries=0)
    def broken(error: dict[str, Any], input: dict[str, Any], invocation_id: str) -> None:
        raise ValueError("the hotel does not answer")

    @workflow
    def errand(flow: Flow) -> None:
        flow.do("flight", book, {"what": "flight"}, on_error=unbook)
        flow.do("hotel", book, {"what": "hotel"}, on_error=broken)
        flow.sleep("wait", "1h")

    run = errand.start()
    outbox.deliver()
    run.cancel(compensate=True)
    outbox.deliver()

    assert log[-1] == "unbook flight (WORKFLOW_CANCELLED)"
    assert run.status == "cancelled"
    assert outcomes(run.id, "hotel:onError") == ["failed"]


def test_a_killed_worker_undoes_nothing_twice(
    service: WorkflowService,
    outbox: RecordingDispatcher,
    no_goodbye: None,
    book: FunctionDefinition[Any, Any],
    unbook: FunctionDefinition[Any, Any],
    log: list[str],
) -> None:
    """It dies between two compensations; the run goes on elsewhere."""
    killed = threading.Event()

    @function(retries=5, retry_delay=0)
    def deadly(error: dict[str, Any], input: dict[str, Any], invocation_id: str) -> None:
        if not killed.is_set():
            killed.set()
            raise KeyboardInterrupt
        log.append("unbook hotel")

    @workflow
    def errand(flow: Flow) -> None:
        flow.do("hotel", book, {"what": "hotel"}, on_error=deadly)
        flow.do("flight", book, {"what": "flight"}, on_error=unbook)
        flow.sleep("wait", "1h")

    run = errand.start()
    outbox.deliver()
    log.clear()
    run.cancel(compensate=True)
    with pytest.raises(KeyboardInterrupt):
        outbox.deliver()
    for minutes in (5, 10, 15):
        with clock.travel(minutes * MINUTE):
            service.relay()
            outbox.deliver()

    assert (run.status, log) == ("cancelled", ["unbook flight (WORKFLOW_CANCELLED)", "unbook hotel"])
    assert outcomes(run.id, "hotel:onError") == ["failed", "succeeded"]


def test_without_a_broker(
    no_broker: None, book: FunctionDefinition[Any, Any], unbook: FunctionDefinition[Any, Any], log: list[str]
) -> None:
    @function(name="ask to stop")
    def stop(run_id: str) -> None:
        WorkflowService().cancel_workflow(run_id, compensate=True)

    @workflow
    def errand(flow: Flow) -> None:
        flow.do("flight", book, {"what": "flight"}, on_error=unbook)
        flow.do("stop", stop, {"run_id": flow.run_id})
        flow.do("hotel", book, {"what": "hotel"}, on_error=unbook)

    run = errand.run().wait(timeout=20)

    assert (run.status, log) == ("cancelled", ["book flight", "unbook flight (WORKFLOW_CANCELLED)"])
