"""The order workflow, run in this process."""

import pytest

from example_project.orders import books, gateways
from example_project.orders.models import Invoice, Notification, Order, Parcel, Payment, Product, Refund
from pikku_storage.workflows.handle import WorkflowRunHandle
from tests.example.conftest import Fulfil, PlaceOrder

# An order number for which northmail fails twice, and one whose depot stays closed.
FLAKY = next(f"A{n}" for n in range(1000) if gateways.failing_attempts("northmail", f"A{n}") == 2)
CLOSED = next(f"A{n}" for n in range(1000) if gateways.failing_attempts("northmail", f"A{n}") > 100)


@pytest.fixture(autouse=True)
def _no_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inline runs wait for their retry delays; here the delays are no part of what is tested."""
    monkeypatch.setattr("example_project.orders.workflows.HOLD_ABOVE_CENTS", 10**9)


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


def attempts(run: WorkflowRunHandle, step_name: str) -> int:
    """How many attempts the run's step took."""
    return next(step.attempt_count for step in run.steps() if step.step_name == step_name)
