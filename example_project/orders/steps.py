"""What the shop does for an order, one step function each.

Each writes its effect under the step's invocation id, which all attempts of the step share: a step that runs again
after a crash finds what it did before and does it no second time.
"""

from datetime import datetime, timedelta
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

from django.db import transaction
from django.db.models import F, Sum

from example_project.orders import gateways
from example_project.orders.models import (
    Effect,
    Invoice,
    Notification,
    Order,
    OrderLine,
    PackedItem,
    Parcel,
    Payment,
    Product,
    Refund,
    StockRelease,
    StockReservation,
)
from pikku_storage.exceptions import FinalError
from pikku_storage.workflows import current_step, function

EffectT = TypeVar("EffectT", bound=Effect)

SHOP_TIMEZONE = "Europe/London"


class OutOfStock(FinalError):
    """There is not enough of a product; trying again would not bring more."""

    code = "OUT_OF_STOCK"


def once(effect: type[EffectT], **values: Any) -> tuple[EffectT, bool]:
    """The current step's effect, and whether this attempt made it."""
    return effect._default_manager.get_or_create(invocation_id=current_step().invocation_id, defaults=values)


@function(retries=3, retry_delay="500ms", timeout="30s")
def reserve_stock(order_id: str) -> dict[str, Any]:
    """Take all lines of the order from the stock, or none. Raises OutOfStock."""
    lines = lines_of(order_id)
    with transaction.atomic():
        _, is_new = once(StockReservation, order_id=order_id)
        if is_new:
            for line in lines:
                take_from_stock(line)
    return {"pieces": sum(line.quantity for line in lines)}


@function(retries=3, retry_delay="500ms", timeout="30s")
def charge_card(order_id: str, card: str, amount_cents: int) -> dict[str, Any]:
    """Take the money. Raises CardDeclined or ProviderTimeout."""
    gateways.authorise(card)
    payment, _ = once(Payment, order_id=order_id, amount_cents=amount_cents)
    if gateways.answer_gets_lost(card, current_step().attempt):
        raise gateways.ProviderTimeout("no answer within 10 s; the card may or may not have been charged")
    return {"payment": payment.pk, "amount_cents": payment.amount_cents}


@function(retries=5, retry_delay="500ms", timeout="30s")
def pack_item(order_id: str, sku: str, quantity: int) -> dict[str, Any]:
    """Put one line of the order into its parcel."""
    once(PackedItem, order_id=order_id, line_id=f"{order_id}/{sku}")
    return {"sku": sku, "quantity": quantity}


@function(retries=3, retry_delay="500ms", timeout="30s")
def book_parcel(order_id: str, courier: str, postcode: str, pieces: int) -> dict[str, Any]:
    """Have the courier collect the parcel. Raises AreaNotServed or CourierUnavailable."""
    tracking = gateways.request_collection(courier, order_id, postcode, current_step().attempt)
    parcel, _ = once(Parcel, order_id=order_id, courier=courier, tracking=tracking, pieces=pieces)
    return {"tracking": parcel.tracking}


@function(retries=3, retry_delay="500ms", timeout="30s")
def write_invoice(order_id: str, amount_cents: int) -> dict[str, Any]:
    """Bill the order."""
    invoice, _ = once(Invoice, order_id=order_id, amount_cents=amount_cents)
    return {"invoice": invoice.pk}


@function(retries=3, retry_delay="500ms", timeout="30s")
def notify(order_id: str, email: str, kind: str) -> dict[str, Any]:
    """Tell the customer how the order ended."""
    once(Notification, order_id=order_id, email=email, kind=kind)
    return {"sent": kind}


@function(retries=5, retry_delay="500ms", timeout="30s")
def undo_order(error: dict[str, Any], input: dict[str, Any], invocation_id: str) -> dict[str, Any]:
    """Compensation: give back the money and the stock that the order still holds.

    Called with the failed step's error, input and invocation id. Looks at what was really done, because a payment that
    failed may have been taken all the same.
    """
    order_id = input["order_id"]
    with transaction.atomic():
        # One undoing at a time: the order's row is the lock.
        Order.objects.select_for_update().get(pk=order_id)
        amount = money_held(order_id)
        if amount:
            once(Refund, order_id=order_id, amount_cents=amount)
        if holds_stock(order_id):
            once(StockRelease, order_id=order_id)
            for line in lines_of(order_id):
                Product.objects.filter(pk=line.product_id).update(stock=F("stock") + line.quantity)
    return {"because": error["message"], "refunded_cents": amount}


@function(timeout="1min")
def sum_up_day(day: str) -> dict[str, Any]:
    """What the shop took, gave back and sent on a day, in its own time zone."""
    begin = datetime.fromisoformat(day).replace(tzinfo=ZoneInfo(SHOP_TIMEZONE))
    taken, returned, parcels = (
        model._default_manager.filter(created_at__gte=begin, created_at__lt=begin + timedelta(days=1))
        for model in (Payment, Refund, Parcel)
    )
    return {
        "day": day,
        "taken_cents": taken.aggregate(sum=Sum("amount_cents", default=0))["sum"],
        "refunded_cents": returned.aggregate(sum=Sum("amount_cents", default=0))["sum"],
        "parcels": parcels.count(),
    }


def lines_of(order_id: str) -> list[OrderLine]:
    """The order's lines, always in the same order, so that two reservations cannot wait for each other."""
    return list(OrderLine.objects.filter(order_id=order_id).order_by("product_id"))


def take_from_stock(line: OrderLine) -> None:
    """Raises OutOfStock, and then nothing was taken."""
    enough = Product.objects.filter(pk=line.product_id, stock__gte=line.quantity)
    if not enough.update(stock=F("stock") - line.quantity):
        raise OutOfStock(f"fewer than {line.quantity} of {line.product_id} left")


def money_held(order_id: str) -> int:
    """What was taken for the order and not given back, in cents."""
    taken, returned = (
        model._default_manager.filter(order_id=order_id).aggregate(sum=Sum("amount_cents"))["sum"] or 0
        for model in (Payment, Refund)
    )
    return int(taken - returned)


def holds_stock(order_id: str) -> bool:
    """Does the order hold stock that was not put back?"""
    reserved, released = (
        model._default_manager.filter(order_id=order_id).count() for model in (StockReservation, StockRelease)
    )
    return reserved > released
