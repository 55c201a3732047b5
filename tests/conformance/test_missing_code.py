"""Functions and workflows that this process does not know: the run waits, visibly, and goes on after deployment."""

import logging
from itertools import pairwise
from typing import Any

import pytest

from pikku_storage.db import clock
from pikku_storage.exceptions import (
    PikkuMissingMetaError,
    WorkflowNotFoundError,
    WorkflowRunNotFoundError,
    WorkflowRunSuspendedError,
)
from pikku_storage.workflows import function, workflow
from pikku_storage.workflows.flow import Flow
from pikku_storage.workflows.service import WorkflowService
from tests.conformance.recording import RecordingDispatcher
from tests.conformance.support import MINUTE, SECOND, outcomes, step_names, step_of, undeployed
from tests.factories import RunFactory

pytestmark = pytest.mark.django_db(transaction=True)

MISSING = "RPC 'pack' not found. Deploy the missing function and resume."


def _is_waiting(run: Any) -> bool:
    return bool(
        run.status == "suspended"
        and run.error == {"message": MISSING, "code": "RPC_NOT_FOUND"}
        and run.get().due_at is not None
        and run.get().completed_at is None
    )


# -- functions ---------------------------------------------------------------------------------------------------------


def test_a_run_waits_for_the_function_of_a_queued_step_and_the_relay_takes_it_up_again(
    outbox: RecordingDispatcher, service: WorkflowService, caplog: pytest.LogCaptureFixture
) -> None:
    @function(queued=True)
    def pack() -> str:
        return "packed"

    @workflow
    def order(flow: Flow) -> str:
        return flow.do("first", lambda: "ready to be ") + flow.do("pack", pack)

    run = order.start()
    outbox.deliver_one()
    with undeployed("pack") as deploy:
        with caplog.at_level(logging.WARNING):
            outbox.deliver()
        assert _is_waiting(run)
        assert MISSING in caplog.text
        step = step_of(run.id, "pack")
        assert (step.status, step.attempt_count) == ("scheduled", 1), (
            "no attempt is lost, and it can be dispatched again"
        )
        with clock.travel(2 * MINUTE):
            service.relay()
            outbox.deliver()
            assert outcomes(run.id, "pack") == ["scheduled"], "tried too early, it waits again"
        deploy()
        with clock.travel(10 * MINUTE):
            service.relay()
            outbox.deliver()

    assert (run.status, run.error, run.output) == ("completed", None, "ready to be packed")
    assert outcomes(run.id, "pack") == ["succeeded"]


def test_a_resumed_run_goes_on_at_once_after_the_deployment(outbox: RecordingDispatcher) -> None:
    @function(queued=True)
    def pack() -> str:
        return "packed"

    @workflow
    def order(flow: Flow) -> str:
        return flow.do("pack", pack)

    run = order.start()
    outbox.deliver_one()
    with undeployed("pack") as deploy:
        outbox.deliver()
        assert run.resume()
        outbox.deliver()
        assert outcomes(run.id, "pack") == ["scheduled"], "resumed too early, it waits again"
        deploy()
        assert run.resume()
        outbox.deliver()

    assert (run.status, run.output) == ("completed", "packed")


@pytest.mark.parametrize("by", ["relay", "resume"])
def test_a_run_that_is_taken_up_too_early_is_seen_to_wait_again(
    outbox: RecordingDispatcher, service: WorkflowService, by: str
) -> None:
    @function(queued=True)
    def pack() -> str:
        return "packed"

    @workflow
    def order(flow: Flow) -> str:
        return flow.do("pack", pack)

    run = order.start()
    outbox.deliver_one()
    with undeployed("pack"), clock.travel(2 * MINUTE):
        outbox.deliver()
        assert _is_waiting(run)
        with clock.travel(2 * MINUTE):
            service.relay() if by == "relay" else run.resume()
            outbox.deliver()
        assert _is_waiting(run)


def test_a_function_called_by_a_name_that_is_unknown_suspends_the_run(
    outbox: RecordingDispatcher, service: WorkflowService
) -> None:
    @function
    def pack() -> str:
        return "packed"

    called: list[str] = []

    @workflow
    def order(flow: Flow) -> Any:
        flow.set_state("stage", "packing")
        flow.do("first", lambda: called.append("first"))
        return flow.do("pack", "pack")

    with undeployed("pack") as deploy:
        run = order.start()
        outbox.deliver()
        assert _is_waiting(run)
        assert step_names(run.id) == ["first"]
        assert run.state == {"stage": "packing"}
        deploy()
        with clock.travel(MINUTE):
            assert service.relay() == [run.id]
            outbox.deliver()

    assert (run.status, run.output, called) == ("completed", "packed", ["first"])


def test_an_inline_run_of_an_unknown_function_waits_for_a_worker_that_knows_it(
    outbox: RecordingDispatcher, service: WorkflowService
) -> None:
    @function
    def pack() -> str:
        return "packed"

    @workflow
    def order(flow: Flow) -> Any:
        return flow.do("pack", "pack")

    with undeployed("pack"):
        run = order.run()
        assert _is_waiting(run)
        with pytest.raises(WorkflowRunSuspendedError, match="Deploy the missing function"):
            run.result()
    with clock.travel(MINUTE):
        service.relay()
        outbox.deliver()

    assert run.output == "packed"


def test_a_body_that_swallows_exceptions_waits_for_a_missing_function_all_the_same() -> None:
    @workflow
    def order(flow: Flow) -> Any:
        try:
            return flow.do("pack", "pack")
        except Exception:  # noqa: BLE001
            return "gave up"

    assert order.run().status == "suspended"


def test_a_missing_function_is_looked_for_less_and_less_often(
    outbox: RecordingDispatcher, service: WorkflowService
) -> None:
    @workflow
    def order(flow: Flow) -> Any:
        return flow.do("pack", "pack")

    run = order.start()
    outbox.deliver()
    rounds = []
    for seconds in range(0, 3_600, 15):
        with clock.travel(seconds * SECOND):
            if service.relay():
                rounds.append(seconds)
            outbox.deliver()

    pauses = [later - earlier for earlier, later in pairwise(rounds)]
    assert pauses == sorted(pauses), "never more often than before"
    assert max(pauses) <= 615
    assert 5 <= len(rounds) <= 20
    assert _is_waiting(run)


def test_a_missing_function_is_looked_for_after_delays_that_double(
    outbox: RecordingDispatcher, service: WorkflowService
) -> None:
    @workflow
    def order(flow: Flow) -> Any:
        return flow.do("pack", "pack")

    run = order.start()
    outbox.deliver()
    pauses = []
    for _ in range(4):
        stored = run.get()
        assert stored.due_at is not None
        pauses.append(round((stored.due_at - stored.updated_at).total_seconds()))
        with clock.travel(stored.due_at - service._runtime.now()):
            service.relay()
            outbox.deliver()
    assert pauses == [30, 60, 120, 240]


def test_the_other_items_of_a_fan_out_are_not_held_up_by_a_missing_function(outbox: RecordingDispatcher) -> None:
    @function(queued=True)
    def pack() -> str:
        return "packed"

    @function(queued=True)
    def bill() -> str:
        return "billed"

    @workflow
    def order(flow: Flow) -> Any:
        return flow.gather(("pack", pack, {}), ("bill", bill, {}))

    run = order.start()
    outbox.deliver_one()
    with undeployed("pack"):
        outbox.deliver()
        assert step_of(run.id, "bill").status == "succeeded"
        assert _is_waiting(run)
    run.resume()
    outbox.deliver()
    assert run.output == ["packed", "billed"]


def test_a_run_that_waits_for_code_can_be_cancelled(outbox: RecordingDispatcher, service: WorkflowService) -> None:
    @workflow
    def order(flow: Flow) -> Any:
        return flow.do("pack", "pack")

    run = order.start()
    outbox.deliver()
    assert run.cancel("no longer needed")
    with clock.travel(10 * MINUTE):
        assert service.relay() == []
    assert run.status == "cancelled"


# -- workflows ---------------------------------------------------------------------------------------------------------


@pytest.mark.contract("MM-01", "MM-02")
def test_a_stored_run_of_an_unknown_workflow_reports_it_and_waits(service: WorkflowService) -> None:
    run = RunFactory.create(name="retired")

    with pytest.raises(PikkuMissingMetaError, match="Workflow not found: retired") as caught:
        service.orchestrate_workflow(run.id)

    assert isinstance(caught.value, WorkflowNotFoundError)
    after = service.get_run(run.id)
    assert after is not None
    assert after.status == "suspended"
    assert after.error is not None
    assert after.error["code"] == "WORKFLOW_NOT_FOUND"
    assert after.due_at is not None


@pytest.mark.contract("MM-03")
def test_a_run_goes_on_once_its_workflow_is_deployed(outbox: RecordingDispatcher, service: WorkflowService) -> None:
    @workflow
    def order(flow: Flow) -> str:
        return "done"

    run = order.start()
    with undeployed("order") as deploy:
        outbox.deliver()
        assert run.status == "suspended"
        with clock.travel(2 * MINUTE):
            service.relay()
            outbox.deliver()
        assert run.status == "suspended"
        deploy()
        with clock.travel(10 * MINUTE):
            service.relay()
            outbox.deliver()

    assert (run.status, run.error, run.output) == ("completed", None, "done")


def test_a_run_that_does_not_exist_is_named(service: WorkflowService) -> None:
    for drive in (service.orchestrate_workflow, service.run_workflow_job):
        with pytest.raises(WorkflowRunNotFoundError, match="Workflow run not found: nothing"):
            drive("nothing")
