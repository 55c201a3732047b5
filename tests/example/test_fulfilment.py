"""The order workflow, run in this process."""

from pathlib import Path

import pytest

from example_project.orders import books, gateways
from example_project.orders.demo import data, progress
from example_project.orders.demo.progress import order_input
from example_project.orders.models import Invoice, Notification, Order, Parcel, Payment, Product, Refund
from example_project.orders.workflows import fulfil_order
from pikku_storage.exceptions import WorkflowApprovalForbiddenError
from pikku_storage.testing import FakeFunctions, FrozenClock, RunUntilIdle
from pikku_storage.testing.plugin import AssertHistory
from pikku_storage.workflows.handle import WorkflowRunHandle
from tests.example.conftest import Fulfil, PlaceOrder

# An order number for which northmail fails twice, and one whose depot stays closed.
FLAKY = next(f"A{n}" for n in range(1000) if gateways.failing_attempts("northmail", f"A{n}") == 2)
CLOSED = next(f"A{n}" for n in range(1000) if gateways.failing_attempts("northmail", f"A{n}") > 100)


# Inline runs wait for retries and for the hold by this clock, and so do not wait.
pytestmark = pytest.mark.usefixtures("clock")


def test_an_order_is_reserved_charged_packed_shipped_billed_and_told(place_order: PlaceOrder, fulfil: Fulfil) -> None:
    order = place_order(POT=2, CUP=3)

    run = fulfil(order)

    assert run.status == "completed"
    assert run.output["outcome"] == "shipped"
    assert list(Product.objects.values_list("sku", "stock")) == [("CUP", 97), ("POT", 8)]
    assert Payment.objects.get().amount_cents == 9000
    assert Parcel.objects.get().pieces == 5
    assert Invoice.objects.get().amount_cents == 9000
    assert Notification.objects.get().kind == "shipped"
    assert books.check() == []


def test_a_declined_card_gives_the_stock_back(place_order: PlaceOrder, fulfil: Fulfil) -> None:
    run = fulfil(place_order(card="tok_declined"))

    assert run.status == "completed"
    assert run.output["outcome"] == "declined"
    assert "the bank declined the card" in run.output["reason"]
    assert list(Product.objects.values_list("sku", "stock")) == [("CUP", 100), ("POT", 10)]
    assert not Payment.objects.exists()
    assert books.check() == []


def test_an_order_that_cannot_be_had_takes_nothing(place_order: PlaceOrder, fulfil: Fulfil) -> None:
    run = fulfil(place_order(CUP=1, POT=11))

    assert run.status == "completed"
    assert run.output["outcome"] == "out of stock"
    assert list(Product.objects.values_list("sku", "stock")) == [("CUP", 100), ("POT", 10)]
    assert books.check() == []


def test_a_payment_whose_answer_was_lost_is_taken_once(place_order: PlaceOrder, fulfil: Fulfil) -> None:
    run = fulfil(place_order(card="tok_slow"))

    assert run.status == "completed"
    assert attempts(run, "charge card") == 2
    assert Payment.objects.count() == 1
    assert books.check() == []


def test_a_flaky_courier_is_asked_again(place_order: PlaceOrder, fulfil: Fulfil) -> None:
    run = fulfil(place_order(FLAKY, courier="northmail"))

    assert run.status == "completed"
    (parcel,) = run.children()
    assert attempts(parcel, "book parcel") == 3
    assert Parcel.objects.count() == 1
    assert books.check() == []


@pytest.mark.parametrize(
    ("order_id", "postcode", "code"), [(CLOSED, "OX1 2AB", "COURIER_UNAVAILABLE"), ("A1", "JE2 3AB", "AREA_NOT_SERVED")]
)
def test_an_order_that_no_courier_takes_is_undone(
    place_order: PlaceOrder, fulfil: Fulfil, order_id: str, postcode: str, code: str
) -> None:
    order = place_order(order_id, courier="northmail")
    Order.objects.update(postcode=postcode)
    order.refresh_from_db()

    run = fulfil(order)

    assert run.status == "failed"
    assert run.error is not None
    assert run.error["code"] == code
    assert Refund.objects.get().amount_cents == order.total_cents
    assert list(Product.objects.values_list("sku", "stock")) == [("CUP", 100), ("POT", 10)]
    assert Notification.objects.get().kind == "cancelled"
    assert books.check() == []


def test_an_expensive_order_is_held_and_then_packed_by_the_workers(
    place_order: PlaceOrder, run_until_idle: RunUntilIdle, clock: FrozenClock
) -> None:
    run = fulfil_order.start(order_input(place_order(POT=6, CUP=4)))

    (waits,) = run_until_idle()
    assert waits.step_name == "fraud hold"
    assert not Parcel.objects.exists()

    clock.advance("2s")
    assert run_until_idle() == []
    assert run.status == "completed"
    assert books.check() == []


def test_the_history_of_an_order_that_no_courier_takes(
    place_order: PlaceOrder, fulfil: Fulfil, fake_function: FakeFunctions, assert_history: AssertHistory
) -> None:
    fake_function("book_parcel", raises=gateways.AreaNotServed("not there"))
    undo = fake_function("undo_order", returns="undone")

    run = fulfil(place_order(POT=1))

    assert [call["error"]["code"] for call in undo.calls] == ["AREA_NOT_SERVED"]
    assert_history(run, Path("histories/no_courier.txt"))


@pytest.fixture
def large_order(place_order: PlaceOrder, monkeypatch: pytest.MonkeyPatch) -> Order:
    """An order that somebody must release."""
    monkeypatch.setattr("example_project.orders.workflows.RELEASE_ABOVE_CENTS", 6_999)
    return place_order()


def test_a_large_order_is_paid_and_held_until_it_is_released(
    large_order: Order, fulfil: Fulfil, run_until_idle: RunUntilIdle
) -> None:
    run = fulfil(large_order)

    assert run.status == "suspended"
    assert Payment.objects.get().amount_cents == 7000
    assert books.orders_to_release() == {"A1"}
    assert books.check() == []
    with pytest.raises(WorkflowApprovalForbiddenError, match="signed-in"):
        run.approve("release", {"release": True})

    run.approve("release", {"release": True, "note": "known customer"}, by="admin")
    run_until_idle()
    assert run.output["outcome"] == "shipped"
    assert books.check() == []


def test_a_large_order_that_is_not_released_is_undone(
    large_order: Order, fulfil: Fulfil, run_until_idle: RunUntilIdle
) -> None:
    run = fulfil(large_order)

    run.approve("release", {"release": False}, by="admin")
    run_until_idle()

    assert run.output == {"outcome": "cancelled", "reason": "it was not released"}
    assert Refund.objects.get().amount_cents == 7000
    assert list(Product.objects.values_list("sku", "stock")) == [("CUP", 100), ("POT", 10)]
    assert Notification.objects.get().kind == "cancelled"
    assert books.check() == []


def test_all_large_orders_but_one_are_released_by_the_demo(
    place_order: PlaceOrder, fulfil: Fulfil, run_until_idle: RunUntilIdle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("example_project.orders.workflows.RELEASE_ABOVE_CENTS", 0)
    admin, _ = data.make_users()
    runs = [fulfil(place_order(f"A{number}")) for number in range(3)]

    assert progress.release_all_but_one(admin) == 1
    run_until_idle()

    assert [run.status for run in runs] == ["suspended", "completed", "completed"]
    assert books.check() == []


def attempts(run: WorkflowRunHandle, step_name: str) -> int:
    """How many attempts the run's step took."""
    return next(step.attempt_count for step in run.steps() if step.step_name == step_name)
