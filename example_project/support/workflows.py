"""How support gives money back."""

from typing import Any

from example_project.orders.models import Notification, Order
from example_project.orders.steps import once
from example_project.support.models import GoodwillRefund
from pikku_storage.exceptions import FinalError
from pikku_storage.workflows import current_step, function, workflow


class NotRefundable(FinalError):
    """The order was not shipped, or its price was given back already."""

    code = "NOT_REFUNDABLE"


def why_not(order_id: str) -> str | None:
    """Why the order's price cannot be given back; `None` if it can."""
    if GoodwillRefund.objects.filter(order_id=order_id).exists():
        return "refunded before"
    if not Notification.objects.filter(order_id=order_id, kind=Notification.Kind.SHIPPED).exists():
        return "not shipped"
    return None


@function(retries=3, retry_delay="500ms", timeout="30s")
def give_money_back(order_id: str) -> dict[str, Any]:
    """Give the price of a shipped order back. Raises NotRefundable."""
    # What an earlier attempt of this step did is no reason against it.
    is_done = GoodwillRefund.objects.filter(pk=current_step().invocation_id).exists()
    if not is_done and (reason := why_not(order_id)):
        raise NotRefundable(f"{order_id}: {reason}")
    order = Order.objects.get(pk=order_id)
    refund, _ = once(GoodwillRefund, order_id=order_id, amount_cents=order.total_cents)
    return {"refund": refund.pk, "amount_cents": refund.amount_cents}


@workflow
def refund_order(flow: Any, order_id: str) -> dict[str, Any]:
    """Give the price of an order back, after a colleague approved it."""
    given: dict[str, Any] = flow.do("give money back", give_money_back, {"order_id": order_id})
    return given
