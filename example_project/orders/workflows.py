"""How the shop fulfils an order, and how it closes the day."""

from typing import Any

from example_project.orders.closing import look_at_the_shelves, propose_order, sum_up_sales, write_report
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
from pikku_storage.workflows import graph, item, node, ref, trigger, workflow

Kind = Notification.Kind

# Orders above this wait a moment, so that somebody could stop a fraud.
HOLD_ABOVE_CENTS = 20_000
# Failures that are a normal end of an order and no fault: what the customer is told.
REFUSALS = {"OUT_OF_STOCK": Kind.OUT_OF_STOCK, "CARD_DECLINED": Kind.DECLINED}


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

    packed = flow.map("pack", pack_item, [{"order_id": order_id, **item} for item in items])
    pieces = sum(item["quantity"] for item in packed)
    try:
        parcel = flow.do(
            "book parcel",
            book_parcel,
            {"order_id": order_id, "courier": courier, "postcode": postcode, "pieces": pieces},
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


close_day = graph(
    "close_day",
    entry=["sales", "shelves"],
    nodes={
        "sales": node(sum_up_sales, input={}),
        "shelves": node(
            look_at_the_shelves,
            input={"low_percent": trigger("low_percent", default=50)},
            next={"low": "propose", "enough": "report"},
        ),
        "propose": node(propose_order, for_each=ref("shelves"), input={"sku": item()}, next="report"),
        # Reached from the shelves, and waits for the sales as well.
        "report": node(write_report, input={"sales": ref("sales"), "orders": ref("propose", default=[])}),
    },
    output=ref("report"),
)
