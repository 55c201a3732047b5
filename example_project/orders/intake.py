"""Reads the shop's files: the catalogue, and the orders with each row that cannot be used and why."""

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from django.core.exceptions import ValidationError
from django.core.validators import validate_email

from example_project.orders.gateways import COURIERS

FOLDER = Path(__file__).resolve().parent / "data"
ORDERS_FILE = FOLDER / "orders.jsonl"
PRODUCTS_FILE = FOLDER / "products.csv"

TEXT_FIELDS = ("id", "placed_at", "customer", "email", "postcode", "courier", "card")


class BadRow(ValueError):
    """An order that cannot be used; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Article:
    """A row of the catalogue."""

    sku: str
    name: str
    price_cents: int
    opening_stock: int


@dataclass(frozen=True, kw_only=True)
class Item:
    """So many of one article."""

    sku: str
    quantity: int


@dataclass(frozen=True, kw_only=True)
class OrderRow:
    """An order that passed every check."""

    id: str
    placed_at: datetime
    customer: str
    email: str
    postcode: str
    courier: str
    card: str
    items: tuple[Item, ...]
    total_cents: int


@dataclass(frozen=True, kw_only=True)
class Rejected:
    """A row that was left out: its line in the file, counted from 1, and the reason."""

    line: int
    reason: str


def read_catalogue(path: Path = PRODUCTS_FILE) -> dict[str, Article]:
    """The articles by sku."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = [
            Article(
                sku=row["sku"],
                name=row["name"],
                price_cents=int(row["price_cents"]),
                opening_stock=int(row["opening_stock"]),
            )
            for row in csv.DictReader(file)
        ]
    return {row.sku: row for row in rows}


def read_orders(catalogue: dict[str, Article], path: Path = ORDERS_FILE) -> tuple[list[OrderRow], list[Rejected]]:
    """The usable orders of a JSON-lines file, and the rows that were left out. Blank lines count as neither."""
    orders: dict[str, OrderRow] = {}
    rejected: list[Rejected] = []
    for number, line in _numbered_lines(path):
        try:
            order = parse_order(line, catalogue)
            if order.id in orders:
                raise BadRow(f"order {order.id} is in the file already")
        except BadRow as reason:
            rejected.append(Rejected(line=number, reason=str(reason)))
        else:
            orders[order.id] = order
    return list(orders.values()), rejected


def parse_order(line: str, catalogue: dict[str, Article]) -> OrderRow:
    """One line of the file as an order. Raises BadRow."""
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise BadRow(f"not JSON: {error.msg} at column {error.colno}") from None
    if not isinstance(row, dict):
        raise BadRow(f"a JSON object is expected, not {type(row).__name__}")

    text = {field: _text(row, field) for field in TEXT_FIELDS}
    items = _items(row.get("items"), catalogue)
    order = OrderRow(
        id=text["id"],
        placed_at=_time(text["placed_at"]),
        customer=text["customer"],
        email=_email(text["email"]),
        postcode=text["postcode"],
        courier=_courier(text["courier"]),
        card=text["card"],
        items=items,
        total_cents=sum(catalogue[item.sku].price_cents * item.quantity for item in items),
    )
    if row.get("total_cents") != order.total_cents:
        raise BadRow(f"total_cents is {row.get('total_cents')!r}, but the items cost {order.total_cents}")
    return order


def _numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    with path.open(encoding="utf-8") as file:
        yield from ((number, line.strip()) for number, line in enumerate(file, start=1) if line.strip())


def _text(row: dict[str, Any], field: str) -> str:
    value = row.get(field)
    if value is None:
        raise BadRow(f"{field} is missing")
    if not isinstance(value, str) or not value.strip():
        raise BadRow(f"{field} must be a text, not {value!r}")
    return value.strip()


def _time(value: str) -> datetime:
    try:
        time = datetime.fromisoformat(value)
    except ValueError:
        raise BadRow(f"placed_at is not a time: {value!r}") from None
    if time.tzinfo is None:
        raise BadRow(f"placed_at has no time zone: {value!r}")
    return time


def _email(value: str) -> str:
    try:
        validate_email(value)
    except ValidationError:
        raise BadRow(f"email is not an address: {value!r}") from None
    return value


def _courier(value: str) -> str:
    if value not in COURIERS:
        raise BadRow(f"courier {value!r} is unknown; known are {', '.join(COURIERS)}")
    return value


def _items(value: Any, catalogue: dict[str, Article]) -> tuple[Item, ...]:
    if not isinstance(value, list) or not value:
        raise BadRow("items must be a list with at least one item")
    items = tuple(_item(entry, catalogue) for entry in value)
    if len({item.sku for item in items}) < len(items):
        raise BadRow("items name the same sku twice")
    return items


def _item(entry: Any, catalogue: dict[str, Article]) -> Item:
    if not isinstance(entry, dict):
        raise BadRow(f"an item must be an object, not {entry!r}")
    sku, quantity = entry.get("sku"), entry.get("quantity")
    if not isinstance(sku, str) or sku not in catalogue:
        raise BadRow(f"sku {sku!r} is not in the catalogue")
    # bool is an int to Python, not to the shop.
    if type(quantity) is not int or quantity < 1:
        raise BadRow(f"quantity of {sku} must be a whole number above 0, not {quantity!r}")
    return Item(sku=sku, quantity=quantity)
