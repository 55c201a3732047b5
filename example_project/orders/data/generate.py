#!/usr/bin/env python
"""Writes `products.csv` and `orders.jsonl`, the same each time: `python example_project/orders/data/generate.py`."""

import csv
import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
SEED = 20260302
ORDERS = 360

# sku, name, price in cents, opening stock; the last four are scarce enough to run out.
PRODUCTS = [
    ("TEA-ASSAM", "Assam second flush, 100 g", 890, 900),
    ("TEA-SENCHA", "Sencha, 100 g", 1250, 900),
    ("TEA-EARLGREY", "Earl Grey, 100 g", 790, 900),
    ("TEA-CHAMOMILE", "Chamomile, 50 g", 540, 900),
    ("POT-GLASS", "Glass teapot, 1 l", 3490, 300),
    ("CUP-STONEWARE", "Stoneware cup", 1590, 600),
    ("STRAINER", "Steel strainer", 990, 400),
    ("TIN-250", "Tea tin, 250 g", 1190, 400),
    ("FILTER-100", "Paper filters, 100 pieces", 450, 800),
    ("KETTLE", "Kettle with temperature control", 8900, 40),
    ("POT-CASTIRON", "Cast-iron teapot, limited edition", 12900, 9),
    ("TEA-GYOKURO", "Gyokuro, this year's harvest, 50 g", 4200, 14),
    ("TRAY-BAMBOO", "Bamboo tray", 2790, 12),
]
WEIGHTS = [14, 12, 12, 8, 6, 10, 7, 6, 9, 4, 2, 3, 2]

FIRST = (
    "Aino Bruno Chiara Dmitri Elif Farid Greta Hanna Ines Jonas Kaito Lena Mats "
    "Noor Oskar Priya Quentin Rosa Sami Tove Ugo Vera Wim Yara Zofia"
).split()
LAST = (
    "Andersen Bianchi Costa Dubois Eriksson Fischer Garcia Haddad Ivanov Jansen "
    "Kowalski Laine Moreau Novak Okafor Petrov Rossi Sato Tamm Virtanen"
).split()
CARDS = ["tok_visa", "tok_mastercard", "tok_slow", "tok_declined", "tok_expired", "tok_no_funds"]
CARD_WEIGHTS = [52, 33, 6, 4, 2, 3]
AREAS = ["BS", "CB", "EH", "EX", "GL", "LS", "M", "NE", "OX", "SW"]
ISLANDS = ["IM", "JE", "GY"]


def main() -> None:
    rng = random.Random(SEED)  # noqa: S311 (made-up customers, not secrets)
    orders = [order(rng, number) for number in range(1, ORDERS + 1)]
    lines = [json.dumps(row, ensure_ascii=False) for row in orders]
    for position, text in malformed(orders):
        lines.insert(position, text)
    (FOLDER / "orders.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    with (FOLDER / "products.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["sku", "name", "price_cents", "opening_stock"])
        writer.writerows(PRODUCTS)


def order(rng: random.Random, number: int) -> dict[str, Any]:
    first, last = rng.choice(FIRST), rng.choice(LAST)
    skus = sorted(set(rng.choices([sku for sku, *_ in PRODUCTS], WEIGHTS, k=rng.choice([1, 1, 2, 2, 3, 4]))))
    items = [{"sku": sku, "quantity": rng.choice([1, 1, 1, 2, 3])} for sku in skus]
    placed = datetime(2026, 3, 2, 6, tzinfo=UTC) + timedelta(seconds=number * 170 + rng.randrange(170))
    area = rng.choices([rng.choice(AREAS), rng.choice(ISLANDS)], [97, 3])[0]
    return {
        "id": f"A{1000 + number}",
        "placed_at": placed.isoformat().replace("+00:00", "Z"),
        "customer": f"{first} {last}",
        "email": f"{first}.{last}@mail.example".lower(),
        "postcode": f"{area}{rng.randrange(1, 20)} {rng.randrange(1, 9)}{''.join(rng.choices('ABDEFGHJLN', k=2))}",
        "courier": rng.choices(["swift", "northmail"], [65, 35])[0],
        "card": rng.choices(CARDS, CARD_WEIGHTS)[0],
        "items": items,
        "total_cents": total(items),
    }


def total(items: list[dict[str, Any]]) -> int:
    prices = {sku: price for sku, _, price, _ in PRODUCTS}
    return sum(prices[item["sku"]] * item["quantity"] for item in items)


def malformed(orders: list[dict[str, Any]]) -> list[tuple[int, str]]:
    """Rows as they come from exports, hand edits and broken uploads: where each goes, and its text."""

    def changed(index: int, **values: Any) -> str:
        row = {**orders[index], "id": f"B{1000 + index}", **values}
        return json.dumps({key: value for key, value in row.items() if value is not None}, ensure_ascii=False)

    return [
        (17, json.dumps(orders[17])[:90]),
        (58, changed(58, email=None)),
        (96, changed(96, items=[{"sku": "TEA-ASAM", "quantity": 1}], total_cents=890)),
        (133, changed(133, items=[{"sku": "STRAINER", "quantity": "two"}], total_cents=1980)),
        (170, changed(170, items=[{"sku": "TIN-250", "quantity": -1}], total_cents=-1190)),
        (204, json.dumps(orders[12])),
        (241, changed(241, courier="pigeon")),
        (268, changed(268, total_cents=orders[268]["total_cents"] + 100)),
        (299, changed(299, items=[], total_cents=0)),
        (331, '"A1331;Rosa Laine;rosa.laine@mail.example"'),
        (352, changed(352, placed_at="yesterday")),
    ]


if __name__ == "__main__":
    main()
