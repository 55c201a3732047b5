"""Database calls of the event loop."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Protocol

from django.db import connections


class Call(Protocol):
    """What a `DatabaseThread` does."""

    def __call__(self, function: Callable[..., Any], *args: Any, **options: Any) -> Awaitable[Any]:
        """Call it in the thread."""


class DatabaseThread:
    """One thread with connections of its own.

    Not the one that Django's async views share: a slow view would keep leases from being renewed.
    """

    def __init__(self, name: str) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=name)

    async def __call__(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Call it in the thread. If the caller is cancelled, it is carried out nevertheless."""
        call = partial(contextvars.copy_context().run, _call, function, *args, **options)
        return await asyncio.get_running_loop().run_in_executor(self._executor, call)

    async def close(self) -> None:
        """Give the connections back when all calls are done, and end the thread; it takes no more."""
        last = asyncio.get_running_loop().run_in_executor(self._executor, connections.close_all)
        self._executor.shutdown(wait=False)
        await last


def _call(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    # As Django does before a request: a connection that broke is replaced.
    for connection in connections.all(initialized_only=True):
        connection.close_if_unusable_or_obsolete()
    return function(*args, **options)
