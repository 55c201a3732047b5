"""Documents as JSON."""

from __future__ import annotations

import math
from base64 import b64encode
from datetime import UTC, datetime
from typing import Any

_PLAIN = frozenset({str, int, bool, type(None)})


def to_plain(value: Any) -> Any:
    """What another program may have put into a document, as the JSON that it would write itself (contract tables.md
    §2.2): a date as ISO text in UTC with milliseconds, `NaN` as null, and an ObjectId, or whatever else is no JSON, as
    its text; bytes as base64."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if isinstance(value, dict):
        return {name: to_plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [to_plain(each) for each in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, int):
        return int(value)
    if isinstance(value, datetime):
        # The driver's are in UTC, whether they say so or not.
        moment = value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
        return moment.isoformat(timespec="milliseconds") + "Z"
    return b64encode(value).decode() if isinstance(value, bytes) else str(value)
