"""The check of the books finds what it is there to find."""

from collections.abc import Callable

import pytest
from django.db.models import F

from example_project.orders import books
from example_project.orders.models import (
    Effect,
    Invoice,
    Notification,
    Order,
    PackedItem,
    Parcel,
    Payment,
    Product,
    Refund,
    StockRelease,
    StockReservation,
)
from tests.example.conftest import Fulfil, PlaceOrder


@pytest.fixture
def order(place_order: PlaceOrder, fulfil: Fulfil) -> Order:
    """An order that was fulfilled, so that the books balance."""
    order = place_order()
    fulfil(order)
    assert books.check() == []
    return order


def test_an_order_that_nothing_was_done_for_is_missed(place_order: PlaceOrder) -> None:
    place_order()

    assert [str(found) for found in books.check()] == [
        "order A1: the customer must be told one end of the order, was told nothing"
    ]


@pytest.mark.parametrize("effect", [StockReservation, Payment, PackedItem, Parcel, Invoice, Notification])
def test_a_lost_effect_is_found(order: Order, effect: type[Effect]) -> None:
    lost = effect._default_manager.values_list("invocation_id", flat=True).first()
    assert lost is not None
    effect._default_manager.filter(pk=lost).delete()

    [found] = books.check_steps()
    assert lost in found.problem
    assert "succeeded" in found.problem


@pytest.mark.parametrize(
    "double",
    [
        lambda order: Payment.objects.create(invocation_id="again", order=order, amount_cents=order.total_cents),
        lambda order: Refund.objects.create(invocation_id="again", order=order, amount_cents=1),
        lambda order: Parcel.objects.create(invocation_id="again", order=order, tracking="X", pieces=5),
        lambda order: Invoice.objects.create(invocation_id="again", order=order, amount_cents=order.total_cents),
        lambda order: PackedItem.objects.create(invocation_id="again", order=order, line=order.lines.first()),
        lambda order: StockReservation.objects.create(invocation_id="again", order=order),
        lambda order: StockRelease.objects.create(invocation_id="again", order=order),
        lambda order: Notification.objects.create(invocation_id="again", order=order, kind="shipped"),
    ],
    ids=["payment", "refund", "parcel", "invoice", "packing", "reservation", "release", "notification"],
)
def test_an_effect_that_happened_twice_is_found(order: Order, double: Callable[[Order], object]) -> None:
    double(order)

    assert any(found.subject.startswith("order A1") for found in books.check())


def test_a_piece_missing_from_the_shelf_is_found(order: Order) -> None:
    Product.objects.filter(pk="CUP").update(stock=F("stock") - 1)

    assert [found.subject for found in books.check()] == ["product CUP"]


def test_a_cent_too_much_is_found(order: Order) -> None:
    Payment.objects.update(amount_cents=F("amount_cents") + 1)

    assert [str(found) for found in books.check()] == ["order A1 (shipped): cents held: 7001, expected 7000"]
