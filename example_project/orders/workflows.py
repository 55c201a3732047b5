"""How the shop fulfils an order."""

from typing import Any

from example_project.orders.models import Notification
from example_project.orders.steps import (
    book_parcel,
    charge_card,
    notify,
    pack_item,
    reserve_stock,
    undo_order,
    write_invoice,
)
from pikku_storage.exceptions import WorkflowStepFailedError
from pikku_storage.workflows import workflow

Kind = Notification.Kind

# Orders above this wait a moment, so that somebody could stop a fraud.
HOLD_ABOVE_CENTS = 20_000
# Failures that are a normal end of an order and no fault: what the customer is told.
REFUSALS = {"OUT_OF_STOCK": Kind.OUT_OF_STOCK, "CARD_DECLINED": Kind.DECLINED}


@workflow
def ship_parcel(flow: Any, order_id: str, courier: str, postcode: str, items: list[dict[str, Any]]) -> dict[str, Any]:
    """Pack the lines of an order, and have the courier collect the parcel."""
    packed = flow.map("pack", pack_item, [{"order_id": order_id, **item} for item in items])
    pieces = sum(item["quantity"] for item in packed)
    collection = {"order_id": order_id, "courier": courier, "postcode": postcode, "pieces": pieces}
    booked: dict[str, Any] = flow.do("book parcel", book_parcel, collection)
    return booked


@workflow(http="orders.add_order")
def fulfil_order(
    flow: Any,
    order_id: str,
    email: str,
    card: str,
    courier: str,
    postcode: str,
    total_cents: int,
    items: list[dict[str, Any]],
) -> dict[str, Any]:
    """Reserve, charge, pack, ship and tell the customer; give everything back when that cannot be done."""

    def tell_customer(kind: Kind) -> None:
        flow.do("tell the customer", notify, {"order_id": order_id, "email": email, "kind": kind.value})

    try:
        flow.do("reserve stock", reserve_stock, {"order_id": order_id})
        flow.do(
            "charge card",
            charge_card,
            {"order_id": order_id, "card": card, "amount_cents": total_cents},
            on_error=undo_order,
        )
    except WorkflowStepFailedError as failure:
        if failure.code not in REFUSALS:
            raise
        kind = REFUSALS[failure.code]
        tell_customer(kind)
        return {"outcome": kind.value, "reason": str(failure)}

    if total_cents > HOLD_ABOVE_CENTS:
        flow.sleep("fraud hold", "2s")

    try:
        parcel = flow.do(
            "ship parcel",
            ship_parcel,
            {"order_id": order_id, "courier": courier, "postcode": postcode, "items": items},
            on_error=undo_order,
        )
    except WorkflowStepFailedError:
        tell_customer(Kind.CANCELLED)
        raise
    flow.set_state("tracking", parcel["tracking"])

    flow.gather(
        ("write invoice", write_invoice, {"order_id": order_id, "amount_cents": total_cents}),
        ("tell the customer", notify, {"order_id": order_id, "email": email, "kind": Kind.SHIPPED.value}),
    )
    return {"outcome": Kind.SHIPPED.value, "tracking": parcel["tracking"]}


WORKFLOWS = (fulfil_order.name, ship_parcel.name)
"""The names of all workflows of the shop."""
