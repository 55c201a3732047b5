"""Keeping leases alive while user code runs.

One daemon thread per process renews what is registered, three times per lease, with a connection of its own that it
closes after each round. It starts with the first lease that lives long enough to need it.
"""

from __future__ import annotations

import itertools
import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from django.db import Error as DatabaseError
from django.db import connections

from pikku_storage.conf import settings

logger = logging.getLogger(__name__)

Renew = Callable[[], bool]


class LeaseKeeper:
    """Calls each registered `renew` until it answers `False` or is let go."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ids = itertools.count()
        self._kept: dict[int, Renew] = {}
        self._thread: threading.Thread | None = None

    @contextmanager
    def keep(self, renew: Renew) -> Iterator[None]:
        """Renew a lease as long as the block runs."""
        with self._lock:
            key = next(self._ids)
            self._kept[key] = renew
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="pikku-leases", daemon=True)
                self._thread.start()
        try:
            yield
        finally:
            self._kept.pop(key, None)

    def _work(self) -> None:
        pause = threading.Event()
        while True:
            pause.wait(settings.LEASE / 3000)
            for key, renew in list(self._kept.items()):
                try:
                    if not renew():
                        logger.warning(
                            "A lease is lost: its work was cancelled, or taken over because renewing it came too late"
                        )
                        self._kept.pop(key, None)
                except DatabaseError:
                    logger.warning("A lease could not be renewed; trying again", exc_info=True)
            connections.close_all()


_keeper = LeaseKeeper()


def _after_fork() -> None:
    # Threads do not survive a fork, and neither do the parent's leases.
    global _keeper
    _keeper = LeaseKeeper()


os.register_at_fork(after_in_child=_after_fork)


def keep(renew: Renew) -> AbstractContextManager[None]:
    """Renew a lease as long as the block runs, by the keeper of this process."""
    return _keeper.keep(renew)
