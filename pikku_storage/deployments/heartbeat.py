"""A heart: a side thread that does the same thing over and over, whatever goes wrong in between."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from django.db import connections

from pikku_storage.conf import settings

logger = logging.getLogger(__name__)

_PATIENCE = 5
"""Seconds that whoever stops a heart waits for a beat that is under way."""


class Heart:
    """Calls `beat` every `DEPLOYMENT_HEARTBEAT`, in a daemon thread with connections of its own."""

    def __init__(self, beat: Callable[[], object], *, at_once: bool = False) -> None:
        self._beat = beat
        self._stopped = threading.Event()
        self._at_once = at_once
        self._thread = threading.Thread(target=self._work, name="pikku-heartbeat", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """No beat begins any more."""
        self._stopped.set()
        self._thread.join(_PATIENCE)

    def _work(self) -> None:
        if self._at_once:
            self._try()
        while not self._stopped.wait(settings.DEPLOYMENT_HEARTBEAT / 1000):
            self._try()

    def _try(self) -> None:
        try:
            self._beat()
        except Exception as error:  # noqa: BLE001 - a heart goes on beating
            logger.warning("A heartbeat failed, and is tried again: %s", error)
        finally:
            # A broken connection is not used again, and none is kept open in between.
            connections.close_all()
