"""Retries mean the same inline and queued: `retries` extra attempts."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import pytest

from pikku_storage.db import clock
from pikku_storage.exceptions import FinalError
from pikku_storage.ids import invocation_id
from pikku_storage.workflows import current_step, function, workflow
from pikku_storage.workflows.definitions import WorkflowDefinition
from pikku_storage.workflows.flow import Flow
from pikku_storage.workflows.handle import WorkflowRunHandle
from pikku_storage.workflows.service import WorkflowService
from tests.conformance.recording import RecordingDispatcher
from tests.conformance.support import MINUTE, SECOND, attempts_of, outcomes, step_of

pytestmark = pytest.mark.django_db(transaction=True)

Carry = Callable[[WorkflowDefinition[Any]], WorkflowRunHandle]


@pytest.fixture(params=["inline", "in its run", "queued"])
def mode(request: pytest.FixtureRequest) -> str:
    """Where a step is carried out."""
    name: str = request.param
    return name


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


@pytest.mark.contract("RP-03")
@pytest.mark.parametrize(("retries", "attempts"), [(0, 1), (1, 2), (2, 3), (None, 6)])
def test_a_step_that_keeps_failing_has_its_retries_and_one_more(
    carry: Carry, mode: str, retries: int | None, attempts: int
) -> None:
    called: list[int] = []

    @function(queued=mode == "queued", retries=retries, retry_delay=0)
    def pack() -> None:
        called.append(current_step().attempt)
        raise ValueError(f"attempt {current_step().attempt}")

    @workflow
    def order(flow: Flow) -> None:
        flow.do("pack", pack)

    run = carry(order)

    assert called == list(range(1, attempts + 1))
    assert run.status == "failed"
    assert outcomes(run.id, "pack") == ["failed"] * attempts
    step = step_of(run.id, "pack")
    assert (step.status, step.attempt_count, step.max_attempts, step.due_at) == ("failed", attempts, attempts, None)
    assert [entry.error["message"] for entry in attempts_of(run.id, "pack") if entry.error] == [
        f"attempt {n}" for n in called
    ]
    assert run.error is not None
    assert run.error["message"] == f"attempt {attempts}"


@pytest.mark.contract("RP-07")
def test_the_invocation_id_stays_while_the_attempt_counts(carry: Carry, mode: str) -> None:
    """The step's id stays too; the contract's in-memory service makes a new one."""
    seen: list[tuple[str, str, int]] = []

    @function(queued=mode == "queued", retries=3, retry_delay=0)
    def pack() -> str:
        where = current_step()
        seen.append((where.invocation_id, where.step_id, where.attempt))
        if where.attempt < 3:
            raise ValueError("not yet")
        return "packed"

    @workflow
    def order(flow: Flow) -> Any:
        return flow.do("pack", pack)

    run = carry(order)

    (step,) = run.steps()
    assert seen == [(invocation_id(run.id, "pack"), step.step_id, n) for n in (1, 2, 3)]
    assert run.output == "packed"
    assert outcomes(run.id, "pack") == ["failed", "failed", "succeeded"]
    assert step.error is None


def test_a_final_error_is_not_tried_again(carry: Carry, mode: str) -> None:
    class CardDeclined(FinalError):
        code = "CARD_DECLINED"

    @function(queued=mode == "queued", retries=5, retry_delay=0)
    def charge() -> None:
        raise CardDeclined("no funds")

    @workflow
    def order(flow: Flow) -> None:
        flow.do("charge", charge)

    run = carry(order)

    assert outcomes(run.id, "charge") == ["failed"]
    assert run.status == "failed"
    assert run.error is not None
    assert (run.error["message"], run.error["code"]) == ("no funds", "CARD_DECLINED")


def test_a_step_overrides_the_policy_of_its_function(carry: Carry, mode: str) -> None:
    @function(queued=mode == "queued", retries=5, retry_delay="1h")
    def pack() -> None:
        raise ValueError("no box")

    @workflow
    def order(flow: Flow) -> None:
        flow.do("pack", pack, retries=1, retry_delay=0)

    run = carry(order)
    assert outcomes(run.id, "pack") == ["failed", "failed"]
    assert (step_of(run.id, "pack").retries, step_of(run.id, "pack").retry_delay) == (1, "0")


def test_a_plain_callable_is_tried_again_like_any_other(outbox: RecordingDispatcher) -> None:
    called: list[int] = []

    def pack() -> str:
        called.append(1)
        if len(called) < 2:
            raise ValueError("not yet")
        return "packed"

    @workflow
    def order(flow: Flow) -> str:
        return flow.do("pack", pack, retries=1, retry_delay=0)

    run = order.start()
    outbox.deliver()
    assert run.output == "packed"


# -- delays ------------------------------------------------------------------------------------------------------------


def _delays(run: WorkflowRunHandle, outbox: RecordingDispatcher, attempts: int) -> list[float]:
    """Seconds between the end of an attempt and the time its retry is due, going from one to the next."""
    service, delays = WorkflowService(), []
    with ExitStack() as time_passes:
        for _ in range(attempts):
            step = step_of(run.id, "pack")
            assert step.status == "failed"
            assert step.due_at is not None
            delays.append((step.due_at - step.updated_at).total_seconds())
            # A moment later, so that the message's countdown is over too.
            ahead = step.due_at - service._runtime.now() + timedelta(milliseconds=200)
            time_passes.enter_context(clock.travel(ahead))
            assert outbox.deliver(), "the retry has a message of its own"
    return delays


@pytest.mark.contract("RP-04", "RP-05", "RP-06")
@pytest.mark.parametrize(
    ("delay", "expected"),
    [(1500, [1.5] * 4), ("15s", [15.0] * 4), ("exponential", [1, 2, 4, 8]), (None, [1, 2, 4, 8])],
    ids=["number", "text", "exponential", "default"],
)
@pytest.mark.parametrize("queued", [True, False])
def test_a_retry_waits_for_its_delay(
    outbox: RecordingDispatcher, delay: Any, expected: list[float], queued: bool
) -> None:
    @function(queued=queued, retries=4, retry_delay=delay)
    def pack() -> None:
        raise ValueError("no box")

    @workflow
    def order(flow: Flow) -> None:
        flow.do("pack", pack)

    run = order.start()
    outbox.deliver()

    assert _delays(run, outbox, 4) == expected
    assert run.status == "failed"
    assert outcomes(run.id, "pack") == ["failed"] * 5


@pytest.mark.parametrize("queued", [True, False])
def test_a_retry_does_not_begin_early(outbox: RecordingDispatcher, service: WorkflowService, queued: bool) -> None:
    @function(queued=queued, retries=1, retry_delay="20s")
    def pack() -> str:
        if current_step().attempt == 1:
            raise ValueError("no box")
        return "packed"

    @workflow
    def order(flow: Flow) -> str:
        return flow.do("pack", pack)

    run = order.start()
    outbox.deliver()
    with clock.travel(10 * SECOND):
        service.execute_workflow_step(run.id, "pack")
        service.orchestrate_workflow(run.id)
        run.resume()
        outbox.deliver()
        service.relay()
        outbox.deliver()
        assert outcomes(run.id, "pack") == ["failed"]
        assert run.status == "running"
    with clock.travel(21 * SECOND):
        outbox.deliver()
        assert outcomes(run.id, "pack") == ["failed", "succeeded"]
    assert run.output == "packed"


@pytest.mark.parametrize("queued", [True, False])
def test_a_retry_whose_message_is_lost_comes_from_the_relay(
    outbox: RecordingDispatcher, service: WorkflowService, queued: bool
) -> None:
    @function(queued=queued, retries=1, retry_delay="20s")
    def pack() -> str:
        if current_step().attempt == 1:
            raise ValueError("no box")
        return "packed"

    @workflow
    def order(flow: Flow) -> str:
        return flow.do("pack", pack)

    run = order.start()
    outbox.deliver()
    outbox.lose_everything()
    with clock.travel(MINUTE):
        assert service.relay() == [run.id]
        outbox.deliver()

    assert run.output == "packed"


def test_a_long_delay_is_left_to_the_relay(outbox: RecordingDispatcher) -> None:
    """A worker holds a message with a countdown in memory; hours are a row, not a message."""

    @function(queued=True, retries=1, retry_delay="2h")
    def pack() -> None:
        raise ValueError("no box")

    @workflow
    def order(flow: Flow) -> None:
        flow.do("pack", pack)

    order.start()
    outbox.deliver()
    assert outbox.waiting == []


def test_an_inline_run_really_waits_for_the_delay() -> None:
    begun = time.monotonic()

    @workflow
    def order(flow: Flow) -> None:
        flow.do("pack", lambda: 1 // (current_step().attempt - 1), retries=1, retry_delay="200ms")

    assert order.run().status == "completed"
    assert time.monotonic() - begun >= 0.2


# -- time limits -------------------------------------------------------------------------------------------------------


def test_an_attempt_that_takes_too_long_fails_and_is_tried_again(carry: Carry, mode: str) -> None:
    @function(queued=mode == "queued", retries=1, retry_delay=0, timeout="50ms")
    def pack() -> str:
        if current_step().attempt == 1:
            time.sleep(5)
        return "packed"

    @workflow
    def order(flow: Flow) -> str:
        return flow.do("pack", pack)

    run = carry(order)

    assert run.output == "packed"
    first, second = attempts_of(run.id, "pack")
    assert first.error is not None
    assert (first.status, first.error["code"]) == ("failed", "STEP_TIMEOUT")
    assert second.status == "succeeded"


@pytest.mark.parametrize("kind", ["registered", "plain"])
def test_a_step_may_set_the_limit(kind: str) -> None:
    @function(timeout="1h")
    def pack() -> None:
        time.sleep(5)

    @workflow
    def order(flow: Flow) -> None:
        flow.do("pack", pack if kind == "registered" else (lambda: time.sleep(5)), retries=0, timeout=50)

    run = order.run()
    assert run.status == "failed"
    assert run.error is not None
    assert run.error["code"] == "STEP_TIMEOUT"
    assert run.error["message"] == "The step ran longer than its timeout of 50 ms"


def test_a_limit_set_by_the_step_holds_also_when_it_is_queued(outbox: RecordingDispatcher) -> None:
    @function(queued=True, timeout="1h")
    def pack() -> str:
        time.sleep(0.5)
        return "packed"

    @workflow
    def order(flow: Flow) -> str:
        return flow.do("pack", pack, retries=0, timeout=50)

    run = order.start()
    outbox.deliver()
    assert run.error is not None
    assert run.error["code"] == "STEP_TIMEOUT"


# -- the budget --------------------------------------------------------------------------------------------------------


def test_no_message_gets_more_than_the_budget(outbox: RecordingDispatcher, service: WorkflowService) -> None:
    called: list[int] = []

    @function(queued=True, retries=1, retry_delay=0)
    def pack() -> None:
        called.append(1)
        raise ValueError("no box")

    @workflow
    def order(flow: Flow) -> None:
        flow.do("pack", pack)
        flow.sleep("never", "1h")

    run = order.start()
    outbox.deliver_one()
    for _ in range(5):
        service.execute_workflow_step(run.id, "pack")
        outbox.duplicate_everything()
    outbox.deliver()

    assert called == [1, 1]
    assert outcomes(run.id, "pack") == ["failed", "failed"]


def test_a_cancelled_run_gets_no_further_attempt(mode: str, carry: Carry, service: WorkflowService) -> None:
    called: list[int] = []

    @function(queued=mode == "queued", retries=3, retry_delay=timedelta())
    def pack() -> None:
        called.append(1)
        service.cancel_workflow(current_step().run_id)
        raise ValueError("no box")

    @workflow
    def order(flow: Flow) -> None:
        flow.do("pack", pack)

    run = carry(order)

    assert run.status == "cancelled"
    assert called == [1]
