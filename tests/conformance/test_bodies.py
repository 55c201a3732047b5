"""Steps in a body: names, order, replay, state."""

from contextlib import suppress
from typing import Any

import pytest

from pikku_storage.db import clock
from pikku_storage.ids import invocation_id
from pikku_storage.workflows import current_step, function, workflow
from pikku_storage.workflows.flow import Flow
from pikku_storage.workflows.models import WorkflowRun
from pikku_storage.workflows.service import WorkflowService
from tests.conformance.conftest import Counter
from tests.conformance.recording import RecordingDispatcher
from tests.conformance.support import (
    MINUTE,
    about_sql,
    connection,
    data_statements,
    noting,
    step_names,
    step_of,
    transactions,
)
from tests.factories import StepFactory

pytestmark = pytest.mark.django_db(transaction=True)


# -- names and ordinals ------------------------------------------------------------------------------------------------


@pytest.mark.contract("SO-01")
def test_a_name_reached_twice_gives_two_rows_and_two_invocation_ids() -> None:
    @workflow
    def order(flow: Flow) -> list[str]:
        return [flow.do("pack", lambda: current_step().invocation_id) for _ in range(3)]

    run = order.run()

    assert step_names(run.id) == ["pack", "pack#1", "pack#2"]
    assert run.output == [invocation_id(run.id, name) for name in ("pack", "pack#1", "pack#2")]
    assert len(set(run.output)) == 3


@pytest.mark.contract("SO-02")
def test_a_name_reached_once_stays_as_it_is() -> None:
    @workflow
    def order(flow: Flow) -> None:
        flow.do("pack", lambda: 1)

    assert step_names(order.run().id) == ["pack"]


@pytest.mark.contract("SO-03")
def test_a_new_replay_finds_the_same_rows_and_calls_nothing_again(outbox: RecordingDispatcher) -> None:
    called: list[int] = []
    bodies: list[int] = []

    @workflow
    def order(flow: Flow) -> list[int]:
        bodies.append(1)
        results = [flow.do("pack", lambda n=n: noting(called, n, n)) for n in range(3)]
        flow.sleep("wait", "10s")
        return results

    run = order.start()
    outbox.deliver()
    first = step_names(run.id)
    with clock.travel(MINUTE):
        WorkflowService().relay()
        outbox.deliver()

    assert run.output == [0, 1, 2]
    assert called == [0, 1, 2]
    assert len(bodies) > 1
    assert step_names(run.id) == first == ["pack", "pack#1", "pack#2", "wait"]


def test_all_kinds_of_steps_share_the_counters() -> None:
    @workflow
    def order(flow: Flow) -> None:
        flow.do("a", lambda: 1)
        flow.sleep("a", 0)
        flow.map("a", lambda n: n, [{"n": 1}, {"n": 2}])
        flow.gather(("a", lambda: 1, {}), ("b", lambda: 1, {}))
        flow.do("b", lambda: 1)

    assert step_names(order.run().id) == ["a", "a#1", "a#2[0]", "a#2[1]", "a#3", "b", "b#1"]


def test_a_name_that_looks_like_an_ordinal_does_not_collide() -> None:
    @workflow
    def order(flow: Flow) -> list[int]:
        return [flow.do(name, lambda n=n: n) for n, name in enumerate(["a#1", "a", "a", "a"])]

    run = order.run()
    assert run.output == [0, 1, 2, 3]
    assert step_names(run.id) == ["a#1", "a", "a#2", "a#3"]


def test_each_step_knows_the_one_reached_before() -> None:
    @workflow
    def order(flow: Flow) -> Any:
        flow.do("a", lambda: 1)
        flow.sleep("b", 0)
        return flow.do("c", lambda: current_step().from_invocation_id)

    run = order.run()

    assert [(step.step_name, step.from_step_name) for step in run.steps()] == [("a", None), ("b", "a"), ("c", "b")]
    assert run.output == invocation_id(run.id, "b")


def test_a_step_function_knows_where_it_is(outbox: RecordingDispatcher) -> None:
    seen: list[Any] = []

    @function(retries=1, retry_delay=0)
    def pack() -> None:
        seen.append(current_step())
        if len(seen) == 1:
            raise ValueError("first")

    @workflow
    def order(flow: Flow) -> None:
        flow.do("pack", pack)

    run = order.start(owner="user-1")
    outbox.deliver()

    (step,) = run.steps()
    assert [where.attempt for where in seen] == [1, 2]
    for where in seen:
        assert (where.run_id, where.step_id, where.step_name) == (run.id, step.step_id, "pack")
        assert where.invocation_id == invocation_id(run.id, "pack")
        assert where.owner_id == "user-1"
        assert where.from_invocation_id is None


def test_a_step_may_be_called_by_the_name_of_its_function() -> None:
    @function(name="orders.pack")
    def pack(n: int) -> int:
        return n + 1

    @workflow
    def order(flow: Flow) -> int:
        return int(flow.do("pack", "orders.pack", {"n": 1}))

    run = order.run()
    assert run.output == 2
    assert step_of(run.id, "pack").rpc_name == "orders.pack"


def test_an_async_step_function_is_awaited() -> None:
    @function
    async def pack(n: int) -> int:
        return n + 1

    async def wrap() -> str:
        return "wrapped"

    @workflow
    def order(flow: Flow) -> Any:
        return [flow.do("pack", pack, {"n": 1}), flow.do("wrap", wrap)]

    assert order.run().output == [2, "wrapped"]


@pytest.mark.parametrize("result", [0, False, "", [], {}, None], ids=repr)
def test_a_falsy_result_is_recorded_and_answers_on_replay(outbox: RecordingDispatcher, result: Any) -> None:
    called: list[int] = []

    @workflow
    def order(flow: Flow) -> Any:
        value = flow.do("pack", lambda: noting(called, 1, result))
        flow.sleep("wait", "10s")
        return [value]

    run = order.start()
    outbox.deliver()
    with clock.travel(MINUTE):
        WorkflowService().relay()
        outbox.deliver()

    assert run.output == [result]
    assert type(run.output[0]) is type(result)
    assert called == [1]


def test_a_first_pass_and_a_replay_see_the_same_value(outbox: RecordingDispatcher) -> None:
    seen: list[Any] = []

    @workflow
    def order(flow: Flow) -> None:
        seen.append(flow.do("pack", lambda: {"pair": (1, 2), "n": 1.0, "text": "ä☕"}))
        flow.sleep("wait", "10s")

    order.start()
    outbox.deliver()
    with clock.travel(MINUTE):
        WorkflowService().relay()
        outbox.deliver()

    assert len(seen) >= 2
    assert all(value == seen[0] for value in seen)
    assert [type(value["pair"]) for value in seen] == [list] * len(seen)


def test_a_result_handed_on_is_the_same_in_a_replay(outbox: RecordingDispatcher) -> None:
    @function
    def double(n: float) -> float:
        return 2 * n

    @workflow
    def order(flow: Flow) -> float:
        n = flow.do("measure", lambda: 1e20)
        flow.sleep("wait", "10s")
        return flow.do("double", double, {"n": n})

    run = order.start()
    outbox.deliver()
    with clock.travel(MINUTE):
        WorkflowService().relay()
        outbox.deliver()

    assert (run.status, run.error) == ("completed", None)
    assert run.output == 2e20


def test_what_a_body_does_to_a_result_does_not_change_what_is_stored() -> None:
    @workflow
    def order(flow: Flow) -> Any:
        parcel = flow.do("pack", lambda: {"items": [1]})
        parcel["items"].append(2)
        return parcel

    run = order.run()
    assert run.output == {"items": [1, 2]}
    assert step_of(run.id, "pack").result == {"items": [1]}


def test_a_step_that_calls_another_function_than_it_was_recorded_with_waits_for_the_old_code(
    outbox: RecordingDispatcher,
) -> None:
    """New code, old run: what was recorded for another function is not taken for this one's result. The contract fails
    such a run; ours waits, visibly, and goes on with code that fits."""

    @function
    def pack() -> str:
        return "packed"

    @function
    def wrap() -> str:
        raise AssertionError("not to be called")

    target = pack

    @workflow
    def order(flow: Flow) -> Any:
        parcel = flow.do("parcel", target)
        flow.sleep("wait", "10s")
        return parcel

    run = order.start()
    outbox.deliver()
    target = wrap
    with clock.travel(MINUTE):
        WorkflowService().relay()
        outbox.deliver()

        assert run.status == "suspended"
        assert run.error is not None
        assert run.error["code"] == "VERSION_CONFLICT"
        assert "belongs to function 'pack', not 'wrap'" in run.error["message"]
        target = pack
        run.resume()
        outbox.deliver()
    assert (run.status, run.output) == ("completed", "packed")


# -- replay: one read per pass -----------------------------------------------------------------------------------------


def _replayed(outbox: RecordingDispatcher, statements: Counter, count: int) -> tuple[Any, list[str]]:
    """A run with `count` finished steps is carried on after its sleep; its output, and the statements that took."""

    @workflow
    def order(flow: Flow) -> list[int]:
        results = [flow.do(f"step {n}", lambda n=n: n) for n in range(count)]
        flow.sleep("wait", "10s")
        return results

    run = order.start()
    outbox.deliver()
    service = WorkflowService()
    with clock.travel(MINUTE):
        service.relay()
        outbox.lose_everything()
        with statements() as seen:
            service.orchestrate_workflow(run.id)
    return run.output, data_statements(seen)


@pytest.mark.contract("RS-01", "RS-02", "KW-14")
def test_a_replay_over_finished_steps_reads_them_all_at_once(outbox: RecordingDispatcher, statements: Counter) -> None:
    output, texts = _replayed(outbox, statements, 25)

    assert output == list(range(25))
    read = f"FROM {connection.ops.quote_name('workflow_step')}"
    reads = [
        text
        for text in texts
        if read in text or text.startswith(("db.workflow_step.aggregate", "db.workflow_step.find("))
    ]
    assert len(reads) == 1
    assert not any("workflow_step_history" in text for text in texts)


@pytest.mark.contract("RS-01")
@pytest.mark.parametrize("count", [0, 1, 40])
def test_a_replay_costs_the_same_however_many_steps_are_finished(
    outbox: RecordingDispatcher, statements: Counter, count: int
) -> None:
    _, texts = _replayed(outbox, statements, count)

    # Enter the run and read it (on PostgreSQL one statement), read its steps, settle.
    assert len(texts) == (3 if connection.vendor == "postgresql" else 4)


@pytest.mark.contract("RS-03", "RS-04")
def test_a_step_first_reached_in_a_replay_is_created_and_the_next_replay_sees_it(outbox: RecordingDispatcher) -> None:
    called: list[str] = []

    @workflow
    def order(flow: Flow) -> list[str]:
        names = []
        for name in ("a", "b", "c"):
            names.append(flow.do(name, lambda name=name: noting(called, name, name)))
            flow.sleep(f"after {name}", "10s")
        return names

    run = order.start()
    outbox.deliver()
    seen = [step_names(run.id)]
    for minutes in (1, 2, 3):
        with clock.travel(minutes * MINUTE):
            WorkflowService().relay()
            outbox.deliver()
        seen.append(step_names(run.id))

    assert seen[:3] == [
        ["a", "after a"],
        ["a", "after a", "b", "after b"],
        ["a", "after a", "b", "after b", "c", "after c"],
    ]
    assert run.output == ["a", "b", "c"]
    assert called == ["a", "b", "c"]


@pytest.mark.contract("RS-05")
def test_outside_of_a_replay_steps_are_read_one_by_one(service: WorkflowService, statements: Counter) -> None:
    step = StepFactory.create()
    other = StepFactory.create(run_id=step.run_id)

    with statements() as seen:
        service.get_step_state(step.run_id, step.step_name)
        service.get_step_state(step.run_id, other.step_name)

    assert len(data_statements(seen)) == 2


@about_sql
def test_an_inline_step_costs_at_most_four_statements_in_two_transactions(statements: Counter) -> None:
    @workflow
    def order(flow: Flow, count: int) -> None:
        for n in range(count):
            flow.do(f"step {n}", lambda: 1)

    order.run({"count": 1})
    costs = []
    for count in (0, 10):
        with statements() as seen:
            order.run({"count": count})
        costs.append((len(data_statements(seen)), transactions(seen)))

    (base, base_transactions), (whole, whole_transactions) = costs
    assert (whole_transactions - base_transactions) / 10 == 2
    assert (whole - base) / 10 == (2 if connection.vendor == "postgresql" else 4)


# -- state -------------------------------------------------------------------------------------------------------------


def test_state_is_seen_by_the_body_at_once_and_by_others_before_the_next_step(service: WorkflowService) -> None:
    @workflow
    def order(flow: Flow) -> Any:
        flow.set_state("courier", "dhl")
        seen = [flow.get_state("courier"), service.get_run_state(flow.run_id)]
        seen.append(flow.do("look", lambda: service.get_run_state(current_step().run_id)))
        return seen

    run = order.run()
    assert run.output == ["dhl", {}, {"courier": "dhl"}]
    assert run.state == {"courier": "dhl"}


def test_state_set_last_is_there_when_the_run_is_completed() -> None:
    @workflow
    def order(flow: Flow) -> None:
        flow.do("pack", lambda: 1)
        flow.set_state("parcel", {"id": 1})

    assert order.run().state == {"parcel": {"id": 1}}


def test_state_set_last_is_there_when_the_run_is_failed() -> None:
    @workflow
    def order(flow: Flow) -> None:
        flow.set_state("stage", "packing")
        raise ValueError("no stock")

    run = order.run()
    assert run.status == "failed"
    assert run.state == {"stage": "packing"}


@pytest.mark.parametrize("value", [0, False, "", [], {}, None], ids=repr)
def test_a_falsy_value_is_a_value(value: Any) -> None:
    @workflow
    def order(flow: Flow) -> Any:
        flow.set_state("key", value)
        flow.do("step", lambda: 1)
        return [flow.get_state("key", "default"), flow.get_state("other", "default"), flow.get_state("none")]

    run = order.run()
    assert run.output == [value, "default", None]
    assert run.state == {"key": value}


def test_state_is_written_once_and_not_on_each_replay(outbox: RecordingDispatcher, service: WorkflowService) -> None:
    @workflow
    def order(flow: Flow) -> Any:
        flow.set_state("stage", "packing")
        flow.do("pack", lambda: 1)
        flow.sleep("wait", "10s")
        return flow.get_state("stage")

    run = order.start()
    outbox.deliver()
    assert run.state == {"stage": "packing"}
    service.update_run_state(run.id, "stage", "changed by hand")
    with clock.travel(MINUTE):
        service.relay()
        outbox.deliver()

    assert run.state == {"stage": "changed by hand"}
    assert run.output == "packing", "within a pass the body sees what it set"


def test_state_that_others_set_is_read(outbox: RecordingDispatcher, service: WorkflowService) -> None:
    @workflow
    def order(flow: Flow) -> Any:
        return [flow.get_state("courier"), flow.get_state("other", "none")]

    run = order.start()
    service.update_run_state(run.id, "courier", "dhl")
    outbox.deliver()

    assert run.output == ["dhl", "none"]


# -- bodies that swallow -----------------------------------------------------------------------------------------------


def test_a_body_that_swallows_every_exception_still_waits(
    outbox: RecordingDispatcher, service: WorkflowService
) -> None:
    @function(queued=True)
    def pack() -> str:
        return "packed"

    @workflow
    def order(flow: Flow) -> Any:
        try:
            return flow.do("pack", pack)
        except BaseException:  # noqa: BLE001
            return "gave up"

    run = order.start()
    outbox.deliver_one()
    assert run.status == "running"
    assert step_of(run.id, "pack").status == "scheduled"
    outbox.deliver()

    assert run.output == "packed"


def test_a_body_that_swallows_every_exception_begins_nothing_while_it_waits(outbox: RecordingDispatcher) -> None:
    called: list[str] = []

    @workflow
    def order(flow: Flow) -> str:
        with suppress(BaseException):
            flow.sleep("cool down", "1h")
        return flow.do("ship", lambda: noting(called, "ship", "shipped"))

    run = order.start()
    outbox.deliver()

    assert run.status == "running"
    assert called == [], "the hour is not over"


def test_a_body_that_swallows_the_end_of_its_pass_writes_nothing_more(service: WorkflowService) -> None:
    called: list[str] = []

    def work(name: str) -> None:
        called.append(name)
        service.cancel_workflow(current_step().run_id)

    @workflow
    def order(flow: Flow) -> str:
        for name in ("cancel", "second", "third"):
            with suppress(BaseException):
                flow.do(name, work, {"name": name})
        return "swallowed"

    run = order.run()

    assert run.status == "cancelled"
    assert run.output is None
    assert called == ["cancel"]
    assert step_names(run.id) == ["cancel"]


def test_a_body_may_handle_the_failure_of_a_step() -> None:
    def fail() -> None:
        raise ValueError("no box")

    @workflow
    def order(flow: Flow) -> Any:
        try:
            flow.do("pack", fail, retries=0)
        except Exception as error:  # noqa: BLE001
            return [str(error), type(error).__name__]

    run = order.run()
    assert run.status == "completed"
    assert run.output == ["no box", "WorkflowStepFailedError"]
    assert WorkflowRun.objects.get().error is None
