"""How the shop fulfils an order, and what it looks back on every night."""

from datetime import timedelta
from typing import Any

from example_project.orders.forms import ReleaseForm
from example_project.orders.models import Notification
from example_project.orders.steps import (
    SHOP_TIMEZONE,
    book_parcel,
    charge_card,
    notify,
    pack_item,
    reserve_stock,
    sum_up_day,
    undo_order,
    write_invoice,
)
from pikku_storage.exceptions import WorkflowStepFailedError
from pikku_storage.workflows import workflow

Kind = Notification.Kind

# Orders above this wait a moment, so that somebody could stop a fraud.
HOLD_ABOVE_CENTS = 20_000
# Orders above this leave the house only when somebody releases them who did not start the run.
RELEASE_ABOVE_CENTS = 30_000
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


@workflow
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
    if total_cents > RELEASE_ABOVE_CENTS:
        answer = flow.approval("release", ReleaseForm, expiry="2days", approvers="not-initiator")
        if answer.is_expired or not answer.data["release"]:
            because = {"message": "nobody released it in time" if answer.is_expired else "it was not released"}
            undo = {"error": because, "input": {"order_id": order_id}, "invocation_id": ""}
            flow.do("give everything back", undo_order, undo)
            tell_customer(Kind.CANCELLED)
            return {"outcome": Kind.CANCELLED.value, "reason": because["message"]}

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


@workflow(schedule="0 3 * * *", timezone=SHOP_TIMEZONE)
def nightly_report(flow: Any, day: str | None = None) -> dict[str, Any]:
    """What the shop did on a day: by its schedule, on the one that has just ended. A run started by hand names its
    day."""
    day = day or (flow.fire_time - timedelta(days=1)).date().isoformat()
    figures: dict[str, Any] = flow.do("sum up the day", sum_up_day, {"day": day})
    return figures


WORKFLOWS = (fulfil_order.name, ship_parcel.name)
"""The names of the workflows that an order goes through."""
