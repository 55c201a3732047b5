"""`on_error`: once, told what it compensates, and the original failure is what the body sees."""

from collections.abc import Callable
from typing import Any

import pytest

from pikku_storage.db import clock
from pikku_storage.exceptions import WorkflowStepFailedError
from pikku_storage.ids import invocation_id
from pikku_storage.workflows import current_step, function, workflow
from pikku_storage.workflows.definitions import FunctionDefinition, WorkflowDefinition
from pikku_storage.workflows.flow import Flow
from pikku_storage.workflows.handle import WorkflowRunHandle
from pikku_storage.workflows.service import WorkflowService
from tests.conformance.recording import RecordingDispatcher
from tests.conformance.support import MINUTE, outcomes, step_names, step_of

pytestmark = pytest.mark.django_db(transaction=True)

Carry = Callable[[WorkflowDefinition[Any]], WorkflowRunHandle]


@pytest.fixture
def refunds() -> list[dict[str, Any]]:
    """What the compensation was told, each time."""
    return []


@pytest.fixture
def refund(refunds: list[dict[str, Any]]) -> FunctionDefinition[Any, Any]:
    """A compensation."""

    @function
    def refund(error: dict[str, Any], input: dict[str, Any], invocation_id: str) -> str:
        refunds.append({"error": error, "input": input, "invocation_id": invocation_id})
        return "refunded"

    return refund


@pytest.fixture(params=["inline", "in its run", "queued"])
def mode(request: pytest.FixtureRequest) -> str:
    """Where the failing step is carried out."""
    name: str = request.param
    return name


@pytest.fixture
def charge(mode: str) -> FunctionDefinition[Any, Any]:
    """A step that fails for good, in the second attempt."""

    class CardDeclined(Exception):
        code = "CARD_DECLINED"

    @function(queued=mode == "queued", retries=1, retry_delay=0)
    def charge(amount: int) -> None:
        raise CardDeclined(f"no funds for {amount}, attempt {current_step().attempt}")

    return charge


@pytest.fixture
def carry(mode: str, outbox: RecordingDispatcher) -> Carry:
    """Carries a run to its end."""

    def carry_out(definition: WorkflowDefinition[Any]) -> WorkflowRunHandle:
        if mode == "inline":
            return definition.run()
        run = definition.start()
        outbox.deliver()
        return run

    return carry_out


@pytest.mark.contract("OE-01")
def test_a_failed_step_runs_its_compensation_and_raises_the_original(
    carry: Carry,
    charge: FunctionDefinition[Any, Any],
    refund: FunctionDefinition[Any, Any],
    refunds: list[dict[str, Any]],
) -> None:
    """The contract tells the compensation the message only; ours is also told the input and the invocation id."""
    raised: list[WorkflowStepFailedError] = []

    @workflow
    def order(flow: Flow) -> None:
        try:
            flow.do("charge", charge, {"amount": 42}, on_error=refund)
        except WorkflowStepFailedError as error:
            raised.append(error)
            raise

    run = carry(order)

    message = "no funds for 42, attempt 2"
    assert refunds == [
        {
            "error": {"name": "CardDeclined", "message": message, "code": "CARD_DECLINED"},
            "input": {"amount": 42},
            "invocation_id": invocation_id(run.id, "charge"),
        }
    ]
    assert [(str(error), error.code, error.step_name) for error in raised] == [(message, "CARD_DECLINED", "charge")]
    assert run.status == "failed"
    assert run.error is not None
    assert (run.error["message"], run.error["code"]) == (message, "CARD_DECLINED")
    assert step_names(run.id) == ["charge", "charge:onError"]
    compensation = step_of(run.id, "charge:onError")
    assert (compensation.status, compensation.result, compensation.max_attempts) == ("succeeded", "refunded", 1)
    assert compensation.from_step_name == "charge"


@pytest.mark.contract("OE-02", "OE-03")
def test_a_step_that_is_with_the_broker_pauses_without_compensation(
    outbox: RecordingDispatcher, service: WorkflowService, refund: FunctionDefinition[Any, Any], refunds: list[Any]
) -> None:
    @function(queued=True)
    def charge() -> None: ...

    @workflow
    def order(flow: Flow) -> None:
        flow.do("charge", charge, on_error=refund)

    run = order.start()
    outbox.deliver_one()
    assert step_of(run.id, "charge").status == "scheduled"
    service.orchestrate_workflow(run.id)
    service.orchestrate_workflow(run.id)

    assert refunds == []
    assert step_names(run.id) == ["charge"]
    assert run.status == "running"


def test_a_step_that_waits_for_its_retry_is_not_compensated(
    outbox: RecordingDispatcher, service: WorkflowService, refund: FunctionDefinition[Any, Any], refunds: list[Any]
) -> None:
    """The contract takes such a step for failed if its run is replayed in between; ours waits."""

    @function(queued=True, retries=1, retry_delay="20s")
    def charge() -> None:
        if current_step().attempt == 1:
            raise ValueError("no funds")

    @workflow
    def order(flow: Flow) -> None:
        flow.do("charge", charge, on_error=refund)

    run = order.start()
    outbox.deliver()
    service.orchestrate_workflow(run.id)
    assert run.status == "running"
    with clock.travel(MINUTE):
        outbox.deliver()

    assert run.status == "completed"
    assert refunds == []


@pytest.mark.contract("OE-04")
def test_a_failed_step_without_compensation_just_raises(carry: Carry, charge: FunctionDefinition[Any, Any]) -> None:
    @workflow
    def order(flow: Flow) -> None:
        flow.do("charge", charge, {"amount": 1})

    run = carry(order)
    assert run.status == "failed"
    assert step_names(run.id) == ["charge"]


def test_a_step_that_succeeds_is_not_compensated(refund: FunctionDefinition[Any, Any], refunds: list[Any]) -> None:
    @workflow
    def order(flow: Flow) -> None:
        flow.do("charge", lambda: 1, on_error=refund)

    assert order.run().status == "completed"
    assert refunds == []


def test_a_replay_does_not_compensate_again(
    outbox: RecordingDispatcher,
    service: WorkflowService,
    refund: FunctionDefinition[Any, Any],
    refunds: list[Any],
) -> None:
    raised: list[tuple[str, str | None]] = []

    def charge() -> None:
        raise ValueError("no funds")

    @workflow
    def order(flow: Flow) -> str:
        try:
            flow.do("charge", charge, on_error=refund, retries=0)
        except WorkflowStepFailedError as error:
            raised.append((str(error), error.error_type))
        flow.sleep("wait", "10s")
        return "settled"

    run = order.start()
    outbox.deliver()
    with clock.travel(MINUTE):
        service.relay()
        outbox.deliver()

    assert run.output == "settled"
    assert len(refunds) == 1
    assert len(raised) >= 2
    assert set(raised) == {("no funds", "ValueError")}, "a first pass and a replay raise the same"


def test_a_compensation_that_fails_is_recorded_and_the_original_is_raised(
    carry: Carry, charge: FunctionDefinition[Any, Any]
) -> None:
    @function
    def broken(error: Any, input: Any, invocation_id: str) -> None:
        raise RuntimeError("refund failed")

    @workflow
    def order(flow: Flow) -> None:
        flow.do("charge", charge, {"amount": 1}, on_error=broken)

    run = carry(order)

    assert outcomes(run.id, "charge:onError") == ["failed"]
    assert run.error is not None
    assert run.error["message"] == "no funds for 1, attempt 2"


def test_a_compensation_is_tried_again_only_if_its_function_says_so(
    carry: Carry, charge: FunctionDefinition[Any, Any]
) -> None:
    @function(retries=2, retry_delay=0)
    def stubborn(error: Any, input: Any, invocation_id: str) -> int:
        if current_step().attempt < 3:
            raise RuntimeError("refund failed")
        return current_step().attempt

    @workflow
    def order(flow: Flow) -> None:
        flow.do("charge", charge, {"amount": 1}, on_error=stubborn)

    run = carry(order)
    assert outcomes(run.id, "charge:onError") == ["failed", "failed", "succeeded"]
    assert run.status == "failed"


def test_each_failed_item_of_a_fan_out_is_compensated_with_its_own_input(
    carry: Carry,
    charge: FunctionDefinition[Any, Any],
    refund: FunctionDefinition[Any, Any],
    refunds: list[dict[str, Any]],
) -> None:
    @workflow
    def order(flow: Flow) -> None:
        flow.map("charge", charge, [1, 2], on_error=refund)

    run = carry(order)

    assert run.status == "failed"
    assert [told["input"] for told in refunds] == [{"amount": 1}, {"amount": 2}]
    assert [told["invocation_id"] for told in refunds] == [invocation_id(run.id, f"charge[{n}]") for n in (0, 1)]


def test_a_compensation_that_cannot_be_told_is_refused_before_the_step_begins() -> None:
    @function
    def refund(order_id: str) -> None: ...

    called: list[int] = []

    @workflow
    def order(flow: Flow) -> None:
        flow.do("charge", lambda: called.append(1), on_error=refund)

    run = order.run()
    assert run.status == "failed"
    assert called == []
