"""What the users' tests are given: a driver, a clock, fakes and histories; inside the transaction of a test."""

import asyncio
import itertools
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import transaction

from pikku_storage.exceptions import FinalError, WorkflowError, WorkflowRunNotFoundError
from pikku_storage.testing import (
    FakeFunctions,
    FrozenClock,
    RunUntilIdle,
    as_step,
    assert_history,
    driving,
    faking,
    frozen_clock,
    history_of,
)
from pikku_storage.workflows import Limits, current_step, function, graph, node, ref, trigger, workflow
from pikku_storage.workflows.flow import Flow
from pikku_storage.workflows.invariants import find_violations
from pikku_storage.workflows.models import WorkflowRun
from pikku_storage.workflows.registry import registry
from pikku_storage.workflows.schedules import synchronising
from pikku_storage.workflows.schedules.service import ScheduleService
from pikku_storage.workflows.service import WorkflowService
from tests.conformance.recording import RecordingDispatcher
from tests.conformance.support import needs_transactions, outcomes, step_of, undeployed
from tests.factories import StepFactory

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _sound() -> Iterator[None]:
    """Whatever a test does by these tools, it leaves what must always hold."""
    yield
    assert list(find_violations()) == []


@pytest.fixture(autouse=True)
def definitions() -> None:
    """A shop's."""

    @function(name="take_money", retries=2, retry_delay="1min")
    def take_money(card: str, cents: int) -> dict[str, Any]:
        raise AssertionError("tests must not charge cards")

    @function(name="pack", queued=True, retries=1, retry_delay="10s")
    def pack(sku: str) -> str:
        return f"{sku} packed"

    @function(name="refund")
    def refund(error: dict[str, Any], input: dict[str, Any], invocation_id: str) -> dict[str, Any]:
        return {"refunded": input["cents"]}

    @workflow(name="checkout")
    def checkout(flow: Flow, card: str, skus: list[str]) -> dict[str, Any]:
        paid = flow.do("charge card", take_money, {"card": card, "cents": 4200}, on_error=refund)
        packed = flow.map("pack", pack, skus)
        flow.sleep("cool down", "2h")
        flow.set_state("parcels", len(packed))
        return {"payment": paid, "parcels": packed}


def start(name: str = "checkout", data: Any = None, **options: Any) -> Any:
    """A run of the shop."""
    data = {"card": "visa", "skus": ["tea", "pot"]} if data is None else data
    return WorkflowService().start_workflow(name, data, **options)


# -- the driver --------------------------------------------------------------------------------------------------------


def test_a_run_is_driven_until_it_waits_and_on_when_the_clock_comes_to_it(
    run_until_idle: RunUntilIdle, clock: FrozenClock, fake_function: FakeFunctions
) -> None:
    fake_function("take_money", returns={"payment": 1})
    run = start()
    assert run.steps() == []

    (waits,) = run_until_idle()

    assert str(waits) == "checkout, step 'cool down': sleeps; due after clock.advance(\"2h\")"
    assert repr(waits) == f"<{waits}>"
    assert (waits.run_id, waits.due_in) == (run.id, timedelta(hours=2))
    clock.advance("119min")
    assert [str(each) for each in run_until_idle()] == [
        "checkout, step 'cool down': sleeps; due after clock.advance(\"1min\")"
    ]
    clock.advance("1min")
    assert run_until_idle() == []
    assert run.output == {"payment": {"payment": 1}, "parcels": ["tea packed", "pot packed"]}


def test_retries_wait_for_the_clock(
    run_until_idle: RunUntilIdle, clock: FrozenClock, fake_function: FakeFunctions
) -> None:
    charge = fake_function("take_money", side_effect=[OSError("no answer"), OSError("still none"), {"payment": 1}])
    pack = fake_function("pack", side_effect=[OSError("no box"), "tea packed"])
    run = start(data={"card": "visa", "skus": ["tea"]})

    for expected in (
        "checkout, step 'charge card': waits for attempt 2 of 3, after: no answer; due after clock.advance(\"1min\")",
        "checkout, step 'charge card': waits for attempt 3 of 3, after: still none; due after clock.advance(\"1min\")",
    ):
        assert [str(waits) for waits in run_until_idle()] == [expected]
        assert [str(waits) for waits in run_until_idle()] == [expected], "nothing happens by driving alone"
        clock.advance("1min")
    assert [str(waits) for waits in run_until_idle()] == [
        "checkout, step 'pack[0]': waits for attempt 2 of 2, after: no box; due after clock.advance(\"10s\")"
    ]
    clock.advance("10s")
    run_until_idle()
    clock.advance("2h")
    assert run_until_idle() == []

    assert run.status == "completed"
    assert [len(charge.calls), len(pack.calls)] == [3, 2]
    assert outcomes(run.id, "charge card") == ["failed", "failed", "succeeded"]


def test_a_workers_lease_runs_out_when_the_clock_comes_to_its_end(
    run_until_idle: RunUntilIdle, clock: FrozenClock, fake_function: FakeFunctions
) -> None:
    fake_function("take_money", returns=1)
    pack = fake_function("pack", returns="packed")
    run = start(data={"card": "visa", "skus": ["tea"]})
    service = WorkflowService(worker="worker-7")
    service.orchestrate_workflow(run.id)
    assert service.claim_step(run.id, "pack[0]") is not None

    assert [str(waits) for waits in run_until_idle()] == [
        "checkout, step 'pack[0]': runs, on worker worker-7; due after clock.advance(\"1min\")"
    ]
    clock.advance("1min")
    assert [waits.reason for waits in run_until_idle()] == [
        "waits for attempt 2 of 2, after: The worker worker-7 stopped renewing its lease; the attempt is lost"
    ]
    clock.advance("10s")
    run_until_idle()

    assert pack.calls == [{"sku": "tea"}]
    assert outcomes(run.id, "pack[0]") == ["failed", "succeeded"]


def test_stored_schedules_fire_when_the_clock_comes_to_them(
    run_until_idle: RunUntilIdle, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.workflows.clear()
    monkeypatch.setattr(synchronising, "_last_looks", {})

    @workflow(name="nightly", schedule="0 3 * * *", timezone="UTC")
    def nightly(flow: Flow) -> str:
        assert flow.fire_time is not None
        return f"{flow.fire_time:%H:%M}"

    clock.advance("1d")
    assert run_until_idle() == []
    assert not WorkflowRun.objects.exists(), "a test that does not ask for the declared ones is left alone by them"

    assert ScheduleService().synchronise() == 1
    clock.advance("1d")
    assert run_until_idle() == []
    assert list(WorkflowRun.objects.values_list("workflow", "status", "output")) == [("nightly", "completed", "03:00")]


def test_a_pass_of_another_worker_is_waited_for(run_until_idle: RunUntilIdle, clock: FrozenClock) -> None:
    @workflow(name="quiet")
    def quiet(flow: Flow) -> None: ...

    run = start("quiet", {})
    runtime = WorkflowService(worker="worker-7")._runtime
    at = runtime.now()
    assert runtime.runs.enter(run.id, "token", worker="worker-7", at=at, until=runtime.lease_end(at))

    assert [str(waits) for waits in run_until_idle()] == [
        'quiet: another worker is inside; due after clock.advance("1min")'
    ]
    clock.advance("1min")
    assert run_until_idle() == []
    assert run.status == "completed"


def test_what_waits_for_code_says_so(run_until_idle: RunUntilIdle, fake_function: FakeFunctions) -> None:
    fake_function("take_money", returns=1)
    run = start()
    with undeployed("pack"):
        (waits,) = run_until_idle()
        assert waits.step_name is None
        assert "suspended: RPC 'pack' not found" in str(waits)
        assert run.status == "suspended"
    with undeployed("checkout"):
        (waits,) = run_until_idle()
        assert "suspended: Workflow not found: checkout" in str(waits)
    (waits,) = run_until_idle()
    assert waits.step_name == "cool down"


def test_a_step_that_nobody_may_take_is_named(run_until_idle: RunUntilIdle) -> None:
    """Its run is not registered here, and it has no queue: another program drives it."""
    StepFactory.create(step_name="by hand", rpc_name="elsewhere")
    (waits,) = run_until_idle()
    assert waits.workflow == "orders"
    assert "Workflow not found: orders" in waits.reason


def test_what_waits_for_its_turn_says_so_and_gets_it(run_until_idle: RunUntilIdle, clock: FrozenClock) -> None:
    @workflow(name="alone", limits=Limits(concurrency=1, keep_while_waiting=True))
    def alone(flow: Flow) -> None:
        flow.sleep("nap", "1h")

    @workflow(name="rare", limits=Limits(rate_limit="1/1h"))
    def rare(flow: Flow) -> None: ...

    @workflow(name="paused")
    def paused(flow: Flow) -> None: ...

    WorkflowService().pause_workflow("paused", reason="it is broken")
    runs = [WorkflowService().start_workflow(name) for name in ("alone", "alone", "rare", "rare", "paused")]
    waiting = run_until_idle()
    assert [str(waits) for waits in waiting] == [
        "alone, step 'nap': sleeps; due after clock.advance(\"1h\")",
        "alone: At most one run of alone may be inside at once",
        'rare: At most 1/1h runs of rare may begin; due after clock.advance("1h")',
        "paused: The workflow paused is paused: it is broken",
    ]

    WorkflowService().unpause_workflow("paused")
    clock.advance("1h")
    assert len(run_until_idle()) == 1
    assert [run.status for run in runs] == ["completed", "running", "completed", "completed", "completed"]
    clock.advance("1h")
    assert run_until_idle() == []


def test_runs_that_were_stored_before_are_driven_too(settings: Any, outbox: RecordingDispatcher) -> None:
    with faking() as fake_function, frozen_clock() as clock:
        fake_function("take_money", returns=1)
        early = start()
        with driving() as run_until_idle:
            late = start()
            assert len(run_until_idle()) == 2
            clock.advance("2h")
            assert run_until_idle() == []
        assert (early.status, late.status) == ("completed", "completed")
    assert late.id not in {message.run_id for message in outbox.sent}


def test_runs_that_runs_start_are_driven_as_well(run_until_idle: RunUntilIdle) -> None:
    @workflow(name="child")
    def child(flow: Flow, number: int) -> int:
        return number

    @workflow(name="parent")
    def parent(flow: Flow, number: int) -> str:
        return flow.do("start", lambda: child.start({"number": number}, idempotency_key=str(number)).id)

    runs = [start("parent", {"number": number}) for number in range(3)]
    assert run_until_idle() == []
    children = [WorkflowService().get_handle(run.output) for run in runs]
    assert [run.output for run in children] == [0, 1, 2]


def test_a_project_without_a_dispatcher_has_queued_steps_here_too(
    no_broker: None, run_until_idle: RunUntilIdle, fake_function: FakeFunctions
) -> None:
    fake_function("take_money", returns=1)
    run = start()
    assert run.status == "running"
    run_until_idle()
    assert step_of(run.id, "pack[1]").queue is not None


def test_a_failing_run_is_no_error_of_the_driver(run_until_idle: RunUntilIdle, fake_function: FakeFunctions) -> None:
    fake_function("take_money", raises=FinalError("declined"))
    run = start()
    assert run_until_idle() == []
    assert run.status == "failed"


def test_what_never_comes_to_rest_is_told(
    monkeypatch: pytest.MonkeyPatch, run_until_idle: RunUntilIdle, clock: FrozenClock
) -> None:
    @function(name="tick", queued=True)
    def tick() -> None: ...

    @workflow(name="clockwork")
    def clockwork(flow: Flow) -> None:
        while True:
            flow.do("tick", tick)
            flow.sleep("pause", "1s")

    monkeypatch.setattr("pikku_storage.testing.driver.MOST_ROUNDS", 20)
    seconds = itertools.count()
    monkeypatch.setattr(clock, "now", lambda told=None: _moment(next(seconds)))
    start("clockwork", {})
    with pytest.raises(AssertionError, match=r"Still busy after 20 rounds: clockwork, step "):
        run_until_idle()


def _moment(seconds: int) -> datetime:
    return datetime(2026, 3, 2, tzinfo=UTC) + timedelta(seconds=seconds)


@needs_transactions
def test_a_run_whose_start_was_rolled_back_is_not_driven(run_until_idle: RunUntilIdle) -> None:
    with transaction.atomic():
        start()
        transaction.set_rollback(True)
    assert run_until_idle() == []


@pytest.mark.django_db(transaction=True)
def test_committed_runs_are_driven(
    run_until_idle: RunUntilIdle, clock: FrozenClock, fake_function: FakeFunctions, outbox: RecordingDispatcher
) -> None:
    fake_function("take_money", returns=1)
    run = start()
    run_until_idle()
    clock.advance("2h")
    assert run_until_idle() == []
    assert run.status == "completed"
    assert outbox.sent == []


# -- the clock ---------------------------------------------------------------------------------------------------------


def test_time_stands_still_and_goes_on_by_what_it_is_told(clock: FrozenClock) -> None:
    service = WorkflowService()
    began = clock.now()
    assert abs(began - datetime.now(UTC)) < timedelta(minutes=1)
    assert service._runtime.now() == began

    assert clock.advance(500) == began + timedelta(milliseconds=500)
    assert clock.advance(timedelta(days=1)) == clock.now() == service._runtime.now()
    assert clock.advance_to(began + timedelta(days=2)) == began + timedelta(days=2)
    assert repr(clock) == f"<FrozenClock {clock.now().isoformat()}>"

    with pytest.raises(ValueError, match="already; it cannot go back to"):
        clock.advance_to(began)
    with pytest.raises(ValueError, match="Invalid duration"):
        clock.advance("2 hours")
    with pytest.raises(ValueError, match="Invalid duration"):
        clock.advance(-1)


def test_an_inline_run_waits_by_the_clock(clock: FrozenClock, fake_function: FakeFunctions) -> None:
    fake_function("take_money", side_effect=[OSError("no answer"), 1])
    began = clock.now()
    run = WorkflowService().run_inline("checkout", {"card": "visa", "skus": []})

    assert run.status == "completed"
    assert clock.now() == began + timedelta(hours=2, minutes=1)


def test_after_the_block_time_is_what_it_was() -> None:
    with frozen_clock() as clock:
        clock.advance("100d")
    assert abs(WorkflowService()._runtime.now() - datetime.now(UTC)) < timedelta(minutes=1)


# -- fakes -------------------------------------------------------------------------------------------------------------


def test_a_fake_answers_and_remembers_wherever_it_is_called(
    run_until_idle: RunUntilIdle, clock: FrozenClock, fake_function: FakeFunctions
) -> None:
    charge = fake_function("take_money", raises=FinalError)
    refund = fake_function("refund", returns="refunded")
    pack = fake_function("pack", side_effect=lambda sku: sku.upper())

    @workflow(name="order")
    def order(flow: Flow) -> Any:
        try:
            flow.do("charge", "take_money", {"card": "visa", "cents": 1}, on_error=refund_definition)
        except Exception:  # noqa: BLE001 - as a body may
            return [*flow.map("pack", "pack", ["tea", "pot"]), flow.do("one", "pack", {"sku": "cup"})]

    from pikku_storage.workflows.registry import registry

    refund_definition = registry.function("refund")
    run = start("order", {})
    assert run_until_idle() == []

    assert run.output == ["TEA", "POT", "CUP"]
    assert charge.calls == [{"card": "visa", "cents": 1}]
    assert pack.calls == [{"sku": "tea"}, {"sku": "pot"}, {"sku": "cup"}]
    assert [call["input"] for call in refund.calls] == [{"card": "visa", "cents": 1}]
    assert [step.step_name for step in pack.steps if step] == ["pack[0]", "pack[1]", "one"]
    assert {step.run_id for step in pack.steps if step} == {run.id}
    assert repr(pack) == "<FakeFunction pack, called 3 times>"


def test_a_node_calls_the_fake_too(run_until_idle: RunUntilIdle, fake_function: FakeFunctions) -> None:
    fake = fake_function("pack", returns="faked")
    nodes = {"pack": node("pack", for_each=trigger("skus"))}
    run = graph("drawn", entry="pack", nodes=nodes, output=ref("pack")).start({"skus": ["tea", "pot"]})
    run_until_idle()
    assert run.output == ["faked", "faked"]
    assert [call["sku"] for call in fake.calls] == ["tea", "pot"]


def test_a_fake_is_gone_after_the_test_and_the_one_before_is_back() -> None:
    @function(name="greet")
    def greet(name: str) -> str:
        return f"Hello, {name}"

    with faking() as fake_function:
        outer = fake_function(greet, returns="outer")
        with faking() as inner_fakes:
            inner = inner_fakes("greet", returns="inner")
            assert greet("Ada") == "inner"
        assert greet(name="Bob") == "outer"
    assert greet("Cy") == "Hello, Cy"
    assert (inner.calls, outer.calls) == ([{"name": "Ada"}], [{"name": "Bob"}])
    assert (inner.steps, outer.steps) == ([None], [None])


def test_a_coroutine_function_is_faked_by_a_plain_value_or_a_coroutine(fake_function: FakeFunctions) -> None:
    @function(name="fetch")
    async def fetch(url: str) -> str:
        raise AssertionError

    async def answer(url: str) -> str:
        await asyncio.sleep(0)
        return f"{url}: 200"

    @workflow(name="reader")
    def reader(flow: Flow) -> Any:
        return flow.do("fetch", fetch, {"url": "a"}, retries=0)

    fake_function(fetch, returns="plain")
    assert reader.run().output == "plain"
    fake_function(fetch, side_effect=answer)
    assert reader.run().output == "a: 200"


def test_the_real_functions_signature_and_options_still_hold(fake_function: FakeFunctions) -> None:
    charge = fake_function("take_money", returns=1)

    @workflow(name="wrong")
    def wrong(flow: Flow) -> Any:
        return flow.do("charge", "take_money", {"amount": 1})

    run = wrong.run()
    assert run.status == "failed"
    assert "missing 'card', 'cents'; unexpected 'amount'" in str(run.error)
    assert charge.calls == []


def test_a_call_too_many_fails_the_step_at_once(fake_function: FakeFunctions) -> None:
    fake_function("pack", side_effect=["one"])

    @workflow(name="packing")
    def packing(flow: Flow) -> Any:
        return [flow.do("pack", "pack", {"sku": sku}) for sku in ("tea", "pot")]

    run = packing.run()
    assert run.error is not None
    assert run.error["message"] == (
        "The fake of 'pack' was called once more than its side_effect has outcomes (1), with {'sku': 'pot'}"
    )
    assert step_of(run.id, "pack#1").attempt_count == 1


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("take_mony", "There is no @function 'take_mony'. Did you mean 'take_money'?"),
        ("zzz", "There is no @function 'zzz'. Known are: "),
        ("checkout", "'checkout' is a workflow; only a @function can be faked"),
    ],
)
def test_a_name_that_cannot_be_faked_is_told(fake_function: FakeFunctions, name: str, message: str) -> None:
    with pytest.raises(LookupError, match=message.replace("?", r"\?")):
        fake_function(name)


def test_a_fake_does_one_thing(fake_function: FakeFunctions) -> None:
    with pytest.raises(ValueError, match="one of returns, raises and side_effect"):
        fake_function("pack", returns=1, raises=OSError)


def test_a_step_function_is_called_alone_as_if_it_were_a_step() -> None:
    with as_step("pay", run_id="run 1", from_step_name="pack", owner_id="7") as context:
        assert current_step() is context
        assert (context.attempt, context.step_name, context.run_id, context.owner_id) == (1, "pay", "run 1", "7")
    with as_step("pay", run_id="run 1", attempt=2) as again:
        assert again.invocation_id == context.invocation_id
        assert (again.attempt, again.from_invocation_id) == (2, None)
    with as_step("pack", run_id="run 1") as before:
        assert before.invocation_id == context.from_invocation_id
    with pytest.raises(WorkflowError, match="outside of a step function"):
        current_step()


# -- histories ---------------------------------------------------------------------------------------------------------

HISTORY = """
    checkout: completed
      input: {"card": "visa", "skus": ["tea", "pot"]}
      output: {"parcels": ["tea packed", "pot packed"], "payment": {"payment": 1}}
      state: {"parcels": 2}
    charge card: succeeded
      take_money: {"card": "visa", "cents": 4200}
      1. failed: OSError: no answer
      2. succeeded: {"payment": 1}
    pack[0]: succeeded
      pack: {"sku": "tea"}
      1. succeeded: "tea packed"
    pack[1]: succeeded
      pack: {"sku": "pot"}
      1. succeeded: "pot packed"
    cool down: succeeded
      sleep: 2h
      1. succeeded
"""


def test_a_history_is_the_same_each_time(
    run_until_idle: RunUntilIdle, clock: FrozenClock, fake_function: FakeFunctions
) -> None:
    for _ in range(2):
        fake_function("take_money", side_effect=[OSError("no answer"), {"payment": 1}])
        run = start()
        run_until_idle()
        clock.advance("1min")
        run_until_idle()
        clock.advance("2h")
        run_until_idle()
        assert_history(run, HISTORY)
        assert_history(run.id, HISTORY)
        assert_history(run.get(), HISTORY)


def test_a_history_of_what_is_under_way(
    run_until_idle: RunUntilIdle, clock: FrozenClock, fake_function: FakeFunctions
) -> None:
    fake_function("take_money", raises=OSError("two\nlines"))
    run = start()
    run_until_idle()
    assert_history(
        run,
        """
        checkout: running
          input: {"card": "visa", "skus": ["tea", "pot"]}
        charge card: failed
          take_money: {"card": "visa", "cents": 4200}
          1. failed: OSError: two
            lines
          waits for attempt 2 of 3
        """,
    )
    for _ in range(2):
        clock.advance("1min")
        run_until_idle()
    assert_history(
        run,
        """
        checkout: failed
          input: {"card": "visa", "skus": ["tea", "pot"]}
          error: WorkflowStepFailedError: two
            lines
        charge card: failed
          take_money: {"card": "visa", "cents": 4200}
          1. failed: OSError: two
            lines
          2. failed: OSError: two
            lines
          3. failed: OSError: two
            lines
        charge card:onError: succeeded
          refund: {
            "error": {
              "message": "two\\nlines",
              "name": "OSError"
            },
            "input": {
              "card": "visa",
              "cents": 4200
            },
            "invocation_id": "<invocation id of charge card>"
          }
          1. succeeded: {"refunded": 4200}
        """,
    )


def test_ids_and_whatever_else_changes_are_replaced() -> None:
    @workflow(name="idle")
    def idle(flow: Flow) -> Any:
        flow.sleep("pause", 0)
        step = flow.do(r"\1", lambda: [current_step().run_id, current_step().step_id, current_step().invocation_id])
        return {"ids": step, "ticket": "T-8231"}

    run = idle.run()
    assert history_of(run, replace={r"T-\d+": "<ticket>"}).splitlines() == [
        "idle: completed",
        "  input: {}",
        '  output: {"ids": ["<run id>", "<step id of \\1>", "<invocation id of \\1>"], "ticket": "<ticket>"}',
        "pause: succeeded",
        "  sleep: 0ms",
        "  1. succeeded",
        r"\1: succeeded",
        "  (a plain callable): {}",
        '  1. succeeded: ["<run id>", "<step id of \\1>", "<invocation id of \\1>"]',
    ]


def test_a_history_of_a_retry_has_what_was_taken_over_in_its_order_and_first(
    run_until_idle: RunUntilIdle, fake_function: FakeFunctions
) -> None:
    """Although all of it began at the same moment."""
    names = [f"step {number}" for number in range(8)]

    @workflow(name="long")
    def long(flow: Flow) -> None:
        for name in names:
            flow.do(name, "pack", {"sku": name})

    fake_function("pack", side_effect=lambda sku: 1 // (sku != names[-1]))
    run = start("long", {})
    for _ in range(3):
        run_until_idle()
        run.cancel()
        run = run.retry()
    run_until_idle()
    lines = [line for line in history_of(run).splitlines() if line.startswith("step ")]
    assert lines == [*(f"{name}: succeeded" for name in names[:-1]), f"{names[-1]}: failed"]


def test_a_difference_is_shown() -> None:
    @workflow(name="sum")
    def add(flow: Flow, a: int) -> Any:
        return a + 1

    run = add.run({"a": 1})
    with pytest.raises(AssertionError) as raised:
        assert_history(run, 'sum: completed\n  input: {"a": 1}\n  output: 3')
    assert str(raised.value).splitlines() == [
        "The run has another history:",
        "",
        "--- expected",
        "+++ the run's history",
        "@@ -1,3 +1,3 @@",
        " sum: completed",
        '   input: {"a": 1}',
        "-  output: 3",
        "+  output: 2",
    ]


def test_a_history_is_compared_with_a_file(tmp_path: Path) -> None:
    @workflow(name="sum")
    def add(flow: Flow, a: int) -> Any:
        return a + 1

    file = tmp_path / "histories" / "sum.txt"
    run = add.run({"a": 1})
    with pytest.raises(AssertionError, match=r"There is no file .*--pikku-update-histories"):
        assert_history(run, file)
    assert_history(run, file, update=True)
    assert file.read_text() == 'sum: completed\n  input: {"a": 1}\n  output: 2\n'
    assert_history(run, file)
    with pytest.raises(AssertionError, match=r'input: \{"a": 2\}[\s\S]*--pikku-update-histories'):
        assert_history(add.run({"a": 2}), file)


def test_there_is_no_history_of_what_is_not_there() -> None:
    with pytest.raises(WorkflowRunNotFoundError):
        history_of("nothing")
