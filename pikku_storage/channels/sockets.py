"""A connection of this process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeAlias

from pikku_storage.channels.events import Event
from pikku_storage.json import Json

Send: TypeAlias = Callable[[Event], Awaitable[None]]
"""Writes an event to the connection. If it raises, the connection is dropped."""
Drop: TypeAlias = Callable[[str], Coroutine[Any, Any, None]]
"""Closes the connection; is told why."""


class Socket:
    """Writes events in a task of its own, so that one that is slow holds no other. What waits for it is bounded."""

    def __init__(
        self, channel_id: str, name: str, opening_data: Json, user_id: str | None, send: Send, most: int
    ) -> None:
        self.channel_id = channel_id
        self.name = name
        self.opening_data = opening_data
        self.user_id = user_id
        self.topics: set[str] = set()
        self._send = send
        self._waiting: asyncio.Queue[Event] = asyncio.Queue(most)
        self.writer: asyncio.Task[None] | None = None

    def put(self, event: Event) -> bool:
        """Let it be written; `False` if too much waits already."""
        try:
            self._waiting.put_nowait(event)
        except asyncio.QueueFull:
            return False
        return True

    async def write(self) -> None:
        """Write what waits, until it fails."""
        while True:
            await self._send(await self._waiting.get())
