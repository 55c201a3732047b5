"""How the shop closes the day: a graph."""

import pytest
from rich.console import Console

from example_project.orders.demo import report
from example_project.orders.models import Product
from example_project.orders.workflows import close_day
from tests.example.conftest import Fulfil, PlaceOrder

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_day_with_full_shelves(place_order: PlaceOrder, fulfil: Fulfil) -> None:
    fulfil(place_order(POT=1))
    run = close_day.run()

    assert run.output == {"parcels": 1, "kept_cents": 3000, "products_to_order": 0, "pieces_to_order": 0}
    assert [step.step_name for step in run.steps()] == ["sales", "shelves", "report"]


def test_what_is_nearly_sold_out_is_ordered_again(
    place_order: PlaceOrder, fulfil: Fulfil, capsys: pytest.CaptureFixture[str]
) -> None:
    fulfil(place_order(POT=6, CUP=11))
    Product.objects.filter(sku="CUP").update(stock=40)
    run = close_day.run({"low_percent": 60})

    assert run.output == {"parcels": 1, "kept_cents": 29_000, "products_to_order": 2, "pieces_to_order": 66}
    assert [step.step_name for step in run.steps()] == ["sales", "shelves", "propose[0]", "propose[1]", "report"]
    report.print_closing(Console(width=120), run.output)
    assert "1 parcels, €290.00 kept, 2 products to order again with 66 pieces" in capsys.readouterr().out
