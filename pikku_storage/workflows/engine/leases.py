"""Keeping leases alive while user code runs, and giving them back when that ends early.

One daemon thread per process renews what is registered, three times per lease, with a connection of its own that it
closes after each round. It starts with the first lease that lives long enough to need it.
"""

from __future__ import annotations

import itertools
import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress

from django.db import Error as DatabaseError
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from pikku_storage.conf import settings
from pikku_storage.workflows.engine.calls import ends_the_process

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
                except Exception:
                    # Whatever it is, the thread must live: nobody else renews the other leases.
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


@contextmanager
def handed_back(connection: BaseDatabaseWrapper, give_up: Callable[[], bool]) -> Iterator[None]:
    """If this process is told to stop inside the block, give up its lease, so that nobody waits for the lease's end.

    A process that is killed can say no goodbye; that is what the lease is for.
    """
    try:
        yield
    except BaseException as error:
        if ends_the_process(error):
            with suppress(DatabaseError):
                if not connection.in_atomic_block:
                    # It may have been told in the middle of a statement, which leaves a connection of no use.
                    connection.close()
                give_up()
        raise
