"""A shop with a small catalogue, and orders made to measure."""

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from example_project.orders.demo.progress import order_input
from example_project.orders.models import Order, OrderLine, Product
from example_project.orders.workflows import fulfil_order
from pikku_storage.workflows.handle import WorkflowRunHandle

PlaceOrder = Callable[..., Order]
Fulfil = Callable[[Order], WorkflowRunHandle]


@pytest.fixture
def shop(db: None) -> None:
    """Ten teapots and a hundred cups."""
    Product.objects.create(sku="POT", name="Pot", price_cents=3000, opening_stock=10, stock=10)
    Product.objects.create(sku="CUP", name="Cup", price_cents=1000, opening_stock=100, stock=100)


@pytest.fixture
def place_order(shop: None) -> PlaceOrder:
    """Places an order: `place_order("A1", POT=2, card="tok_declined")`."""

    def place(order_id: str = "A1", *, card: str = "tok_visa", courier: str = "swift", **quantities: int) -> Order:
        quantities = quantities or {"POT": 1, "CUP": 4}
        products = Product.objects.in_bulk(quantities)
        order = Order.objects.create(
            id=order_id,
            customer="Aino Laine",
            email="aino@mail.example",
            postcode="OX1 2AB",
            courier=courier,
            card=card,
            total_cents=sum(products[sku].price_cents * quantity for sku, quantity in quantities.items()),
            placed_at=datetime(2026, 3, 2, 9, tzinfo=UTC),
        )
        for sku, quantity in quantities.items():
            OrderLine.objects.create(
                id=f"{order_id}/{sku}",
                order=order,
                product=products[sku],
                quantity=quantity,
                price_cents=products[sku].price_cents,
            )
        return order

    return place


@pytest.fixture
def fulfil() -> Fulfil:
    """Runs the workflow for an order, in this process, to its end."""
    return lambda order: fulfil_order.run(order_input(order))
