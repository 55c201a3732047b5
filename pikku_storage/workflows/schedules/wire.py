"""What a run keeps of the fire that started it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from pikku_storage.json import Json
from pikku_storage.workflows.records import Schedule
from pikku_storage.workflows.schedules.fires import local

TRIGGER = "schedule"


def key_of(schedule: Schedule, fire_at: datetime) -> str:
    """The idempotency key of a fire's run."""
    return f"schedule/{schedule.name}/{_text(fire_at)}"


def wire_of(schedule: Schedule, fire_at: datetime) -> dict[str, Json]:
    """What such a run stores as `wire`, besides its owner."""
    return {
        "type": TRIGGER,
        "schedule": schedule.name,
        "fireTime": _text(fire_at),
        "timezone": schedule.timezone,
    }


def fire_time_of(wire: Mapping[str, Any]) -> datetime | None:
    """The time of the fire, in the schedule's time zone; `None` for a run that no schedule started."""
    if "fireTime" not in wire:
        return None
    return local(datetime.fromisoformat(wire["fireTime"]), wire["timezone"])


def _text(fire_at: datetime) -> str:
    return f"{fire_at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
