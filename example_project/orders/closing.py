"""What is done when the shop closes: it looks at what was sold, and at what has to be bought. Nothing here changes
anything."""

from typing import Any

from django.db.models import F, Sum

from example_project.orders.models import Parcel, Payment, Product, Refund
from pikku_storage.workflows import current_step, function


@function(retries=3, retry_delay="500ms")
def sum_up_sales() -> dict[str, Any]:
    """What left the house and what it brought in, in cents."""
    taken = Payment.objects.aggregate(sum=Sum("amount_cents", default=0))["sum"]
    returned = Refund.objects.aggregate(sum=Sum("amount_cents", default=0))["sum"]
    return {"parcels": Parcel.objects.count(), "kept_cents": taken - returned}


@function(retries=3, retry_delay="500ms")
def look_at_the_shelves(low_percent: int) -> list[str]:
    """The products of which less than that is left of the opening stock. Chooses `low` or `enough`."""
    low = Product.objects.filter(stock__lt=F("opening_stock") * low_percent / 100).order_by("sku")
    found = list(low.values_list("sku", flat=True))
    current_step().branch("low" if found else "enough")
    return found


@function(retries=3, retry_delay="500ms")
def propose_order(sku: str) -> dict[str, Any]:
    """How much of a product brings it back to its opening stock."""
    product = Product.objects.get(pk=sku)
    return {"sku": sku, "quantity": product.opening_stock - product.stock}


@function
def write_report(sales: dict[str, Any], orders: list[dict[str, Any]]) -> dict[str, Any]:
    """The day in a few lines."""
    return {**sales, "products_to_order": len(orders), "pieces_to_order": sum(order["quantity"] for order in orders)}
