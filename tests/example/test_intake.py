"""The orders file: what is accepted, and what is said about the rest."""

import json
from pathlib import Path
from typing import Any

import pytest

from example_project.orders.intake import (
    Article,
    BadRow,
    Item,
    parse_order,
    read_catalogue,
    read_orders,
)

CATALOGUE = {
    "POT": Article(sku="POT", name="Pot", price_cents=3000, opening_stock=10),
    "CUP": Article(sku="CUP", name="Cup", price_cents=1000, opening_stock=10),
}
GOOD: dict[str, Any] = {
    "id": "A1",
    "placed_at": "2026-03-02T09:00:00Z",
    "customer": "Aino Laine",
    "email": "aino@mail.example",
    "postcode": "OX1 2AB",
    "courier": "swift",
    "card": "tok_visa",
    "items": [{"sku": "POT", "quantity": 1}, {"sku": "CUP", "quantity": 2}],
    "total_cents": 5000,
}


def test_a_good_row_becomes_an_order() -> None:
    order = parse_order(json.dumps(GOOD), CATALOGUE)

    assert order.items == (Item(sku="POT", quantity=1), Item(sku="CUP", quantity=2))
    assert order.total_cents == 5000
    assert order.placed_at.isoformat() == "2026-03-02T09:00:00+00:00"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"id": None}, "id is missing"),
        ({"id": 7}, "id must be a text, not 7"),
        ({"customer": "  "}, "customer must be a text, not '  '"),
        ({"email": "aino(at)mail"}, r"email is not an address: 'aino\(at\)mail'"),
        ({"courier": "pigeon"}, "courier 'pigeon' is unknown; known are swift, northmail"),
        ({"placed_at": "yesterday"}, "placed_at is not a time: 'yesterday'"),
        ({"placed_at": "2026-03-02T09:00:00"}, "placed_at has no time zone"),
        ({"items": []}, "items must be a list with at least one item"),
        ({"items": "POT"}, "items must be a list"),
        ({"items": ["POT"]}, "an item must be an object, not 'POT'"),
        ({"items": [{"sku": "PAN", "quantity": 1}]}, "sku 'PAN' is not in the catalogue"),
        ({"items": [{"sku": ["POT"], "quantity": 1}]}, "is not in the catalogue"),
        ({"items": [{"sku": "POT", "quantity": "two"}]}, "quantity of POT must be a whole number above 0, not 'two'"),
        ({"items": [{"sku": "POT", "quantity": 0}]}, "not 0"),
        ({"items": [{"sku": "POT", "quantity": -1}]}, "not -1"),
        ({"items": [{"sku": "POT", "quantity": True}]}, "not True"),
        ({"items": [{"sku": "POT", "quantity": 1.5}]}, "not 1.5"),
        ({"items": [{"sku": "POT", "quantity": 1}] * 2}, "items name the same sku twice"),
        ({"total_cents": 4999}, "total_cents is 4999, but the items cost 5000"),
        ({"total_cents": None}, "total_cents is None"),
    ],
)
def test_a_bad_row_is_refused_with_its_reason(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadRow, match=reason):
        parse_order(json.dumps({**GOOD, **change}), CATALOGUE)


@pytest.mark.parametrize(
    ("line", "reason"), [('{"id": "A1"', "not JSON: .* at column 12"), ('"A1"', "a JSON object is expected, not str")]
)
def test_a_line_that_is_no_object_is_refused(line: str, reason: str) -> None:
    with pytest.raises(BadRow, match=reason):
        parse_order(line, CATALOGUE)


def test_bad_rows_are_reported_by_line_and_the_rest_goes_on(tmp_path: Path) -> None:
    file = tmp_path / "orders.jsonl"
    rows = [json.dumps(GOOD), "", "{", json.dumps(GOOD), json.dumps({**GOOD, "id": "A2"})]
    file.write_text("\n".join(rows), encoding="utf-8")

    orders, rejected = read_orders(CATALOGUE, file)

    assert [order.id for order in orders] == ["A1", "A2"]
    assert [(row.line, row.reason.partition(":")[0]) for row in rejected] == [
        (3, "not JSON"),
        (4, "order A1 is in the file already"),
    ]


def test_the_file_of_the_demo_has_hundreds_of_orders_and_each_kind_of_bad_row() -> None:
    orders, rejected = read_orders(read_catalogue())

    assert len(orders) == 360
    assert len({row.reason for row in rejected}) == 11
    assert {order.courier for order in orders} == {"swift", "northmail"}
    assert {"tok_visa", "tok_slow", "tok_declined"} < {order.card for order in orders}
    wanted = {
        sku: sum(item.quantity for order in orders for item in order.items if item.sku == sku)
        for sku in read_catalogue()
    }
    assert any(wanted[article.sku] > article.opening_stock for article in read_catalogue().values())
