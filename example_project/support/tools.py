"""What the agent can do. The model only proposes: every tool looks for itself whether it may."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User

from example_project.orders.models import Notification, Order, Parcel
from example_project.support.workflows import why_not

LOOK_UP, REFUND = "look_up_order", "refund_order"


def look_up_order(customer: User, order_id: str) -> dict[str, Any]:
    """An order of the customer's own: `{order_id, status, total_cents, tracking}`, or `{error}`."""
    order = _order_of(customer, order_id)
    if order is None:
        return {"error": f"I find no order {order_id} of yours"}
    end = Notification.objects.filter(order=order).values_list("kind", flat=True).first()
    tracking = Parcel.objects.filter(order=order).values_list("tracking", flat=True).first()
    return {
        "order_id": order.pk,
        "status": end or "under way",
        "total_cents": order.total_cents,
        "tracking": tracking,
    }


def what_to_approve(customer: User, order_id: str) -> dict[str, Any]:
    """What a colleague is shown who decides about a refund, or `{error}` if there is nothing to decide."""
    order = _order_of(customer, order_id)
    if order is None:
        return {"error": f"there is no order {order_id}"}
    if reason := why_not(order_id):
        return {"error": f"order {order_id} was {reason}"}
    return {"order": order_id, "customer": order.customer, "amount_cents": order.total_cents}


def _order_of(customer: User, order_id: str) -> Order | None:
    # Who has no address has no orders.
    return Order.objects.filter(pk=order_id, email=customer.email).first() if customer.email else None
