"""What `@workflow(schedule=…)` says of its schedule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from django.conf import settings as django_settings

from pikku_storage.workflows.schedules.fires import LONGEST, Fires
from pikku_storage.workflows.schedules.policies import CatchUp, Overlap

NAME_LENGTH = 200
"""Characters of a schedule's name: with the time of a fire it makes an idempotency key."""


@dataclass(frozen=True, slots=True)
class Declaration:
    """A schedule in the code. `timezone` is `None` for that of the project's settings, which are read later."""

    cron: str
    timezone: str | None
    catch_up: CatchUp
    overlap: Overlap

    @classmethod
    def of(cls, cron: str, timezone: str | None, catch_up: str, overlap: str) -> Self:
        """Raises `ValueError` for what cannot be used."""
        return cls(checked(cron, timezone or "UTC").cron, timezone, CatchUp(catch_up), Overlap(overlap))

    @property
    def zone(self) -> str:
        """The name of the time zone."""
        return self.timezone or str(django_settings.TIME_ZONE)


def checked(cron: Any, timezone: str) -> Fires:
    """The fires of an expression that can be stored; raises `ValueError`."""
    if not isinstance(cron, str) or len(cron) > LONGEST:
        raise ValueError(f"{cron!r:.80} is no cron expression: it is no text of up to {LONGEST} characters")
    return Fires.of(cron, timezone)
