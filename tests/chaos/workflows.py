"""Orders that move money, and what each must come to, whatever happens meanwhile."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

from pikku_storage.exceptions import FinalError, WorkflowStepFailedError
from pikku_storage.workflows import current_step, function, workflow
from pikku_storage.workflows.flow import Flow
from tests.chaos.ledger.models import note_call, transfer

ACCOUNTS = ("customer", "shop", "supplier", "courier", "tax")
POLICY: dict[str, Any] = {"retries": 20, "retry_delay": "100ms"}
"""Enough for every worker that a test takes away."""


def _pay(source: str, target: str, cents: int, seconds: float = 0) -> int:
    note_call()
    transfer(source, target, cents)
    # A worker that goes now has done the deed, and nobody knows.
    time.sleep(seconds)
    return cents


@function(name="chaos.pay", **POLICY)
def pay(source: str, target: str, cents: int) -> int:
    return _pay(source, target, cents)


@function(name="chaos.pay_away", queued=True, **POLICY)
def pay_away(source: str, target: str, cents: int, seconds: float) -> int:
    return _pay(source, target, cents, seconds)


@function(name="chaos.pay_shakily", queued=True, **POLICY)
def pay_shakily(source: str, target: str, cents: int) -> int:
    """Fails after the deed in its first attempts."""
    paid = _pay(source, target, cents)
    if current_step().attempt < 3:
        raise ConnectionError("the bank hung up")
    return paid


@function(name="chaos.ship", queued=True, **POLICY)
def ship(number: int, cents: int) -> int:
    """Pays the courier; every fifth parcel cannot be sent."""
    if _is_refused(number):
        note_call()
        raise FinalError("no courier goes there")
    return _pay("shop", "courier", cents)


@function(name="chaos.refund", **POLICY)
def refund(error: Any, input: Any, invocation_id: str) -> int:
    return _pay("shop", "customer", _price(int(input["number"])))


@workflow(name="chaos.order")
def order(flow: Flow, number: int, width: int, seconds: float) -> dict[str, Any]:
    """In place, fanned out, asleep, tried again, undone: one of each. `seconds` is how long each item takes."""
    paid = flow.do("charge", pay, {"source": "customer", "target": "shop", "cents": _price(number)})
    supplies = flow.map(
        "supply",
        pay_away,
        [{"source": "shop", "target": "supplier", "cents": index + 1, "seconds": seconds} for index in range(width)],
    )
    flow.set_state("supplied", True)
    flow.sleep("cool down", "200ms")
    try:
        flow.do("ship", ship, {"number": number, "cents": 5}, on_error=refund)
    except WorkflowStepFailedError:
        if _is_given_up(number):
            raise
        return {"refunded": paid}
    tax, tip = flow.gather(
        ("tax", pay_shakily, {"source": "shop", "target": "tax", "cents": number % 7 + 1}),
        ("tip", pay_away, {"source": "shop", "target": "courier", "cents": 1, "seconds": 0}),
    )
    return {"paid": paid, "supplies": supplies, "tax": tax, "tip": tip}


def _price(number: int) -> int:
    return 1000 + number


def _is_refused(number: int) -> bool:
    return number % 5 == 4


def _is_given_up(number: int) -> bool:
    return number % 10 == 9


def expected_end(number: int, width: int) -> tuple[str, Any]:
    """Status and output of that order."""
    if _is_given_up(number):
        return "failed", None
    if _is_refused(number):
        return "completed", {"refunded": _price(number)}
    supplies = [index + 1 for index in range(width)]
    return "completed", {"paid": _price(number), "supplies": supplies, "tax": number % 7 + 1, "tip": 1}


def expected_steps(number: int, width: int) -> dict[str, str]:
    """Name and status of each step of that order."""
    steps = {"charge": "succeeded", "cool down": "succeeded"}
    steps |= {f"supply[{index}]": "succeeded" for index in range(width)}
    if _is_refused(number):
        return {**steps, "ship": "failed", "ship:onError": "succeeded"}
    return {**steps, "ship": "succeeded", "tax": "succeeded", "tip": "succeeded"}


def expected_balance(numbers: range, width: int) -> dict[str, int]:
    """What each account holds after these orders."""
    balance = Counter(dict.fromkeys(ACCOUNTS, 0))
    for number in numbers:
        kept = 0 if _is_refused(number) else _price(number)
        supplies = sum(range(1, width + 1))
        courier, tax = (0, 0) if _is_refused(number) else (6, number % 7 + 1)
        balance["customer"] -= kept
        balance["supplier"] += supplies
        balance["courier"] += courier
        balance["tax"] += tax
        balance["shop"] += kept - supplies - courier - tax
    return dict(balance)
