"""The interface of a transport."""

from __future__ import annotations

import asyncio
import logging
import random
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import ClassVar

from pikku_storage.channels.events import Event
from pikku_storage.channels.threads import Call
from pikku_storage.ids import new_id

logger = logging.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
"""Seconds between two tries to reach a server that is gone; twice as long each time."""


class Transport(ABC):
    """Carries events from any process to those that listen, at most once each. What is published while a listener has
    lost its connection does not reach it."""

    lost: ClassVar[tuple[type[Exception], ...]]
    """What is raised when the server is gone."""

    def __init__(self, using: str) -> None:
        self.using = using
        self.instance = new_id()

    @abstractmethod
    def send(self, event: Event) -> None:
        """Send an event, when the caller's transaction commits. Raises `PayloadError` for one that is too large."""

    @abstractmethod
    def _listen(self, call: Call) -> AsyncGenerator[list[Event]]:
        """Connect; answer with an empty list, from when on events are heard of, and then with what arrives. Raises one
        of `lost` when the connection is."""

    async def listen(self, call: Call) -> AsyncGenerator[list[Event]]:
        """What arrives, for ever. An empty list after each time that it connected. `call` is for the database."""
        pause = FIRST_PAUSE
        while True:
            try:
                async with aclosing(self._listen(call)) as batches:
                    async for batch in batches:
                        pause = FIRST_PAUSE
                        yield batch
            except self.lost:
                logger.warning("Lost what events come from; trying again in %.1f s", pause, exc_info=True)
            await asyncio.sleep(pause * random.uniform(0.5, 1))  # noqa: S311 - no secret
            pause = min(2 * pause, LONGEST_PAUSE)
