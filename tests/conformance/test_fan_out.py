"""`flow.map` and `flow.gather`: fan out, join, order kept."""

from collections.abc import Callable
from typing import Any

import pytest

from pikku_storage.db import clock
from pikku_storage.exceptions import WorkflowStepFailedError
from pikku_storage.workflows import current_step, function, workflow
from pikku_storage.workflows.definitions import WorkflowDefinition
from pikku_storage.workflows.flow import Flow
from pikku_storage.workflows.handle import WorkflowRunHandle
from pikku_storage.workflows.service import WorkflowService
from tests.conformance.recording import RecordingDispatcher
from tests.conformance.support import MINUTE, outcomes, step_names, step_of

pytestmark = pytest.mark.django_db(transaction=True)

Carry = Callable[[WorkflowDefinition[Any]], WorkflowRunHandle]


@pytest.fixture(params=["inline", "queued"])
def carry(request: pytest.FixtureRequest, outbox: RecordingDispatcher) -> Carry:
    """Carries a run to its end."""

    def carry_out(definition: WorkflowDefinition[Any]) -> WorkflowRunHandle:
        if request.param == "inline":
            return definition.run()
        run = definition.start()
        outbox.deliver()
        return run

    return carry_out


def test_results_come_in_the_order_of_the_items(carry: Carry) -> None:
    @function
    def double(n: int) -> int:
        return 2 * n

    @workflow
    def order(flow: Flow) -> list[int]:
        return flow.map("double", double, [5, 3, 9, 3])

    run = carry(order)

    assert run.output == [10, 6, 18, 6]
    assert sorted(step_names(run.id)) == ["double[0]", "double[1]", "double[2]", "double[3]"]


def test_results_come_in_the_order_of_the_items_also_if_they_end_the_other_way_round(
    outbox: RecordingDispatcher,
) -> None:
    @function
    def double(n: int) -> int:
        return 2 * n

    @workflow
    def order(flow: Flow) -> list[int]:
        return flow.map("double", double, range(5))

    run = order.start()
    outbox.deliver_one()
    outbox.posted.reverse()
    outbox.deliver()

    assert run.output == [0, 2, 4, 6, 8]


def test_an_item_that_is_an_object_becomes_the_keyword_arguments(carry: Carry) -> None:
    @function
    def pack(sku: str, n: int = 1) -> str:
        return f"{n} {sku}"

    @workflow
    def order(flow: Flow) -> list[str]:
        return flow.map("pack", pack, [{"sku": "CUP", "n": 2}, {"sku": "POT"}])

    assert carry(order).output == ["2 CUP", "1 POT"]


@pytest.mark.parametrize("item", [0, False, "", [], None, [1, 2]], ids=repr)
def test_any_other_item_becomes_the_only_argument(carry: Carry, item: Any) -> None:
    @function
    def same(thing: Any) -> Any:
        return thing

    @workflow
    def order(flow: Flow) -> list[Any]:
        return flow.map("same", same, [item])

    assert carry(order).output == [item]


def test_an_item_that_does_not_fit_fails_the_run_before_any_step_begins(carry: Carry) -> None:
    called: list[Any] = []

    @function
    def pack(sku: str, n: int) -> None:
        called.append(sku)

    @workflow
    def order(flow: Flow) -> None:
        flow.map("pack", pack, [{"sku": "CUP", "n": 1}, {"sku": "POT"}])

    run = carry(order)
    assert run.status == "failed"
    assert (run.steps(), called) == ([], [])


def test_nothing_to_do_is_done_at_once(carry: Carry) -> None:
    @workflow
    def order(flow: Flow) -> list[Any]:
        return [flow.map("nothing", lambda n: n, []), flow.gather()]

    run = carry(order)
    assert run.output == [[], []]
    assert run.steps() == []


def test_different_steps_side_by_side(carry: Carry) -> None:
    @function
    def pack(n: int) -> str:
        return f"packed {n}"

    @function(queued=True)
    def bill(total: int) -> int:
        return total

    @workflow
    def order(flow: Flow) -> list[Any]:
        return flow.gather(("pack", pack, {"n": 1}), ("bill", bill, {"total": 0}), ("plain", lambda: "plain", {}))

    run = carry(order)
    assert run.output == ["packed 1", 0, "plain"]
    assert sorted(step_names(run.id)) == ["bill", "pack", "plain"]


def test_items_spread_over_the_workers(outbox: RecordingDispatcher) -> None:
    @function
    def work(n: int) -> str:
        return str(step_of(current_step().run_id, current_step().step_name).claimed_by)

    @workflow
    def order(flow: Flow) -> list[str]:
        return flow.map("work", work, [1, 2, 3])

    run = order.start()
    outbox.deliver_one(worker="a")
    assert len(outbox.waiting) == 3
    for worker in "bcd":
        assert run.status == "running"
        outbox.deliver_one(worker=worker)

    assert run.output == ["b", "c", "d"]
    assert outbox.waiting == []
    assert run.get().status == "completed"


def test_all_items_are_carried_to_their_end_before_the_first_failure_is_raised(carry: Carry) -> None:
    called: list[int] = []
    raised: list[str] = []

    @function(retries=0)
    def work(n: int) -> int:
        called.append(n)
        if n % 2:
            raise ValueError(f"odd {n}")
        return n

    @workflow
    def order(flow: Flow) -> str:
        try:
            flow.map("work", work, range(4))
        except WorkflowStepFailedError as error:
            raised.append(error.step_name)
        return "went on"

    run = carry(order)

    assert sorted(called) == [0, 1, 2, 3]
    assert set(raised) == {"work[1]"}
    assert run.output == "went on"
    assert [outcomes(run.id, f"work[{n}]") for n in range(4)] == [["succeeded"], ["failed"]] * 2


def test_the_items_of_a_fan_out_are_retried_each_on_its_own(carry: Carry) -> None:
    @function(retries=1, retry_delay=0)
    def work(n: int) -> int:
        if n == 1 and current_step().attempt == 1:
            raise ValueError("once")
        return n

    @workflow
    def order(flow: Flow) -> list[int]:
        return flow.map("work", work, range(3))

    run = carry(order)
    assert run.output == [0, 1, 2]
    assert [outcomes(run.id, f"work[{n}]") for n in range(3)] == [["succeeded"], ["failed", "succeeded"], ["succeeded"]]


def test_the_run_goes_on_only_after_the_last_item(outbox: RecordingDispatcher, service: WorkflowService) -> None:
    @function
    def work(n: int) -> int:
        return n

    @workflow
    def order(flow: Flow) -> list[int]:
        return flow.map("work", work, range(3))

    run = order.start()
    outbox.deliver_one()
    for done in range(3):
        assert run.status == "running"
        service.orchestrate_workflow(run.id)
        assert sum(step.status == "succeeded" for step in run.steps()) == done
        outbox.deliver_one()
    assert run.output == [0, 1, 2]


def test_a_fan_out_whose_messages_are_lost_is_dispatched_by_the_relay(
    outbox: RecordingDispatcher, service: WorkflowService
) -> None:
    @function
    def work(n: int) -> int:
        return n

    @workflow
    def order(flow: Flow) -> list[int]:
        return flow.map("work", work, range(7))

    run = order.start()
    outbox.deliver_one()
    outbox.deliver_one()
    assert len(outbox.lose_everything()) == 6
    with clock.travel(MINUTE):
        service.relay()
        outbox.deliver()

    assert run.output == list(range(7))


def test_a_fan_out_inside_a_fan_out_of_names(carry: Carry) -> None:
    @function
    def work(n: int) -> int:
        return n

    @workflow
    def order(flow: Flow) -> list[list[int]]:
        return [flow.map("work", work, [n, n + 1]) for n in (0, 10)]

    run = carry(order)
    assert run.output == [[0, 1], [10, 11]]
    assert sorted(step_names(run.id)) == ["work#1[0]", "work#1[1]", "work[0]", "work[1]"]


def test_more_items_than_one_statement_takes(carry: Carry) -> None:
    @function
    def work(n: int) -> int:
        return n

    @workflow
    def order(flow: Flow) -> int:
        return sum(flow.map("work", work, range(120)))

    assert carry(order).output == sum(range(120))


def test_a_generator_of_items_is_a_list_of_items(carry: Carry) -> None:
    @function
    def work(n: int) -> int:
        return n

    @workflow
    def order(flow: Flow) -> list[int]:
        return flow.map("work", work, (n for n in range(3)))

    assert carry(order).output == [0, 1, 2]
