"""What another program put into a document, as JSON."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import pytest

from pikku_storage.db.plain import to_plain


class Long(int):
    """As the driver reads 64 bits."""


@pytest.mark.parametrize(
    ("stored", "plain"),
    [
        (datetime(2026, 3, 2, 9, 0, 0, 5999, tzinfo=UTC).replace(tzinfo=None), "2026-03-02T09:00:00.005Z"),
        (datetime(2026, 3, 2, 9, tzinfo=timezone(timedelta(hours=2))), "2026-03-02T07:00:00.000Z"),
        (datetime(2026, 3, 2, tzinfo=UTC), "2026-03-02T00:00:00.000Z"),
        (UUID(int=7), "00000000-0000-0000-0000-000000000007"),
        (b"\x00\xff", "AP8="),
        (math.nan, None),
        (-math.inf, None),
        (
            {"a": [{"b": datetime(2026, 3, 2, tzinfo=UTC)}, 1.5, None, True, "x"]},
            {"a": [{"b": "2026-03-02T00:00:00.000Z"}, 1.5, None, True, "x"]},
        ),
    ],
)
def test_what_is_no_json_becomes_what_javascript_would_write(stored: Any, plain: Any) -> None:
    assert to_plain(stored) == plain


def test_a_long_integer_is_one_like_any_other() -> None:
    assert type(to_plain({"n": Long(7)})["n"]) is int
