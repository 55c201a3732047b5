"""How long something that was driven again is left alone (contract services.md §0: 30 s doubling to 600 s)."""

from __future__ import annotations

from datetime import timedelta

from pikku_storage.conf import settings

CEILING = timedelta(seconds=600)


def delay_of(redrives: int) -> timedelta:
    """The delay after the `redrives`-th time (0 is the first): `PATIENCE`, doubling to ten minutes."""
    first = timedelta(milliseconds=settings.PATIENCE)
    return max(first, min(first * (1 << min(max(redrives, 0), 10)), CEILING))
