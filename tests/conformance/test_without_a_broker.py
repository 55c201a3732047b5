"""`DISPATCHER=None`: a project that has no workers, where whoever asks for something carries it out."""

import logging
from typing import Any

import pytest
from pytest_django import Settings

from pikku_storage.db import clock
from pikku_storage.workflows import current_step, function, workflow
from pikku_storage.workflows.definitions import WorkflowDefinition
from pikku_storage.workflows.dispatch import InlineDispatcher, Message
from pikku_storage.workflows.flow import Flow
from pikku_storage.workflows.handle import WorkflowRunHandle
from pikku_storage.workflows.invariants import find_violations
from pikku_storage.workflows.service import WorkflowService
from tests.conformance.recording import RecordingDispatcher
from tests.conformance.support import MINUTE, outcomes, step_of, undeployed
from tests.factories import RunFactory

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def order() -> WorkflowDefinition[Any]:
    """A step in place, a queued one, a fan-out."""

    @function(queued=True)
    def pack(n: int) -> int:
        return n + 1

    @workflow
    def order(flow: Flow) -> Any:
        first = flow.do("first", lambda: 1)
        second = flow.do("second", pack, {"n": first})
        return [first, second, *flow.map("rest", pack, [2, 3])]

    return order


def _without_broker(settings: Settings) -> None:
    settings.PIKKU_STORAGE = {"DISPATCHER": None}


def test_a_started_run_is_over_when_start_returns(no_broker: None, order: WorkflowDefinition[Any]) -> None:
    run = order.start()

    assert (run.status, run.output) == ("completed", [1, 2, 3, 4])
    assert run.get().inline
    assert list(find_violations()) == []


@pytest.mark.parametrize("delivered", [0, 1, 2, 3, 4])
def test_what_a_broker_left_behind_is_carried_out_by_the_relay(
    outbox: RecordingDispatcher,
    service: WorkflowService,
    settings: Settings,
    order: WorkflowDefinition[Any],
    delivered: int,
) -> None:
    """The project gave its broker up with a run half-way."""
    run = order.start()
    for _ in range(delivered):
        outbox.deliver_one()
    outbox.lose_everything()
    _without_broker(settings)

    for minutes in (1, 11, 21, 31):
        with clock.travel(minutes * MINUTE):
            service.relay()

    assert (run.status, run.output) == ("completed", [1, 2, 3, 4])
    assert all(outcomes(run.id, step.step_name) == ["succeeded"] for step in run.steps())
    assert list(find_violations()) == []


def test_a_stored_run_that_stalled_is_carried_out_by_the_relay(
    no_broker: None, service: WorkflowService, order: WorkflowDefinition[Any]
) -> None:
    run_id = RunFactory.create(name="order").id
    with clock.travel(10 * MINUTE):
        assert service.relay() == [run_id]
    assert service.get_handle(run_id).output == [1, 2, 3, 4]


def test_a_failed_run_is_tried_again_here(no_broker: None) -> None:
    broken = True
    called: list[str] = []

    def work(name: str) -> str:
        called.append(name)
        if name == "ship" and broken:
            raise ValueError("no courier")
        return name

    @workflow
    def order(flow: Flow) -> list[str]:
        return [flow.do(name, work, {"name": name}, retries=0) for name in ("pack", "ship")]

    failed = order.run()
    assert failed.status == "failed"
    broken = False
    again = failed.retry()

    assert (again.status, again.output) == ("completed", ["pack", "ship"])
    assert called == ["pack", "ship", "ship"]


@pytest.mark.parametrize("queued", [True, False], ids=["queued", "in its run"])
def test_a_retry_that_a_broker_left_behind_is_hurried_here(
    outbox: RecordingDispatcher, settings: Settings, queued: bool
) -> None:
    @function(queued=queued, retries=1, retry_delay="2h")
    def pack() -> int:
        return 1 // (current_step().attempt - 1)

    @workflow
    def order(flow: Flow) -> Any:
        return flow.do("pack", pack)

    run = order.start()
    outbox.deliver()
    _without_broker(settings)
    assert run.retry() == run

    assert (run.status, run.output) == ("completed", 1)


def test_a_suspended_run_is_resumed_here(no_broker: None, service: WorkflowService) -> None:
    @function
    def pack() -> str:
        return "packed"

    @workflow
    def order(flow: Flow) -> Any:
        return flow.do("pack", "pack")

    with undeployed("pack") as deploy:
        run = order.start()
        assert run.status == "suspended"
        assert run.resume()
        assert run.status == "suspended"
        deploy()
        assert run.resume()

    assert (run.status, run.output) == ("completed", "packed")


@pytest.fixture
def retired(outbox: RecordingDispatcher, settings: Settings) -> WorkflowRunHandle:
    """A live run of a workflow that this process does not know."""
    run_id = RunFactory.create(name="retired").id
    _without_broker(settings)
    return WorkflowService().get_handle(run_id)


def test_one_run_of_an_unknown_workflow_does_not_keep_the_relay_from_the_others(
    retired: WorkflowRunHandle,
    service: WorkflowService,
    order: WorkflowDefinition[Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    other = RunFactory.create(name="order").id
    with clock.travel(10 * MINUTE), caplog.at_level(logging.WARNING):
        service.relay()

    assert service.get_handle(other).status == "completed"
    assert retired.status == "suspended"
    assert "Workflow not found: retired" in caplog.text


def test_resuming_a_run_of_an_unknown_workflow_here_leaves_it_suspended(retired: WorkflowRunHandle) -> None:
    """As it does with a broker: the run waits, which is no error of who resumed it."""
    assert retired.resume()
    assert retired.status == "suspended"


def test_a_message_about_what_is_not_due_yet_is_left_alone(outbox: RecordingDispatcher, settings: Settings) -> None:
    @function(queued=True, retries=1, retry_delay="2h")
    def pack() -> None:
        raise ValueError("no box")

    @workflow
    def order(flow: Flow) -> Any:
        return flow.do("pack", pack)

    run = order.start()
    outbox.deliver()
    assert step_of(run.id, "pack").status == "failed"
    _without_broker(settings)
    InlineDispatcher().send([Message(run_id=run.id, step_name="pack", countdown=7_200)])

    assert outcomes(run.id, "pack") == ["failed"]


def test_a_run_that_carries_itself_on_does_not_go_round_in_circles(
    no_broker: None, service: WorkflowService, order: WorkflowDefinition[Any]
) -> None:
    """A step that resumes its own run, which it is inside of."""

    @workflow
    def restless(flow: Flow) -> Any:
        return [flow.do(f"step {n}", lambda: service.resume_workflow(current_step().run_id)) for n in range(3)]

    run = restless.start()
    assert (run.status, run.output) == ("completed", [True, True, True])
    assert all(outcomes(run.id, step.step_name) == ["succeeded"] for step in run.steps())
