"""Stand-ins for the shop's partners: a payment provider and two couriers.

They misbehave like real ones, but the same way each time: what happens depends only on the order and on the attempt.
"""

import zlib

from pikku_storage.exceptions import FinalError

DECLINES = {
    "tok_declined": "the bank declined the card",
    "tok_expired": "the card has expired",
    "tok_no_funds": "insufficient funds",
}
COURIERS = ("swift", "northmail")
ISLAND_POSTCODES = ("IM", "JE", "GY")
# One order in this many meets a courier whose depot stays closed, however often it is asked.
DEPOT_CLOSED_ONE_IN = 29


class CardDeclined(FinalError):
    """The bank's answer is no; asking again would not change it."""

    code = "CARD_DECLINED"


class AreaNotServed(FinalError):
    """The courier does not go there."""

    code = "AREA_NOT_SERVED"


class ProviderTimeout(Exception):
    """The provider did not answer; whether it did what it was asked is not known."""

    code = "PROVIDER_TIMEOUT"


class CourierUnavailable(Exception):
    """The courier's service is down; it may be back in a moment."""

    code = "COURIER_UNAVAILABLE"


def authorise(card: str) -> None:
    """Ask the payment provider about a card. Raises CardDeclined."""
    if card in DECLINES:
        raise CardDeclined(f"{DECLINES[card]} ({card})")


def answer_gets_lost(card: str, attempt: int) -> bool:
    """Does the provider take the money this time and its answer never arrive?"""
    return card == "tok_slow" and attempt == 1


def request_collection(courier: str, order_id: str, postcode: str, attempt: int) -> str:
    """Book a collection and return its tracking number. Raises AreaNotServed or CourierUnavailable.

    The same order gets the same number, however often it is booked.
    """
    if postcode.startswith(ISLAND_POSTCODES):
        raise AreaNotServed(f"{courier} does not deliver to {postcode}")
    if attempt <= failing_attempts(courier, order_id):
        raise CourierUnavailable(f"{courier} answered 503 on attempt {attempt}")
    return f"{courier[:2].upper()}-{order_id}-{_draw(order_id):08X}"


def failing_attempts(courier: str, order_id: str) -> int:
    """How many bookings of this order fail before one goes through. Only northmail fails."""
    if courier != "northmail":
        return 0
    draw = _draw(order_id)
    return 1_000_000 if draw % DEPOT_CLOSED_ONE_IN == 0 else draw % 3


def _draw(order_id: str) -> int:
    return zlib.crc32(order_id.encode())
