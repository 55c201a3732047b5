"""What the stores of channels answer with: frozen, typed records, no model instances."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from pikku_storage.json import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """A connected channel. Times are aware UTC; `pikku_user_id` is `None` for nobody.

    `holder` and `lease_until` are `None` for a channel that lives until somebody removes it.
    """

    channel_id: str
    channel_name: str
    opening_data: Json
    pikku_user_id: str | None
    created_at: datetime
    holder: str | None
    lease_until: datetime | None

    COLUMNS: ClassVar = (
        "channel_id",
        "channel_name",
        "opening_data",
        "pikku_user_id",
        "created_at",
        "holder",
        "lease_until",
    )
