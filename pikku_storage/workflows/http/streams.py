"""Server-sent events of one run (contract console.md §6).

Each look is one cheap read; only when that says that something changed, the steps are read and told. Looks are made
without a transaction, and under ASGI without a thread or a connection between two of them.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

from asgiref.sync import sync_to_async
from django.db import Error as DatabaseError
from django.db import close_old_connections, connections

from pikku_storage.conf import settings
from pikku_storage.db import engine
from pikku_storage.json import Json
from pikku_storage.workflows import reads
from pikku_storage.workflows.http.access import may_read
from pikku_storage.workflows.records import RunFingerprint, RunProgress
from pikku_storage.workflows.statuses import StepStatus

logger = logging.getLogger(__name__)

POLL = 0.5
"""Seconds between two looks."""
HEARTBEAT = 15.0
"""Seconds of silence after which a comment is sent, so that no proxy takes the connection for dead."""
RECONNECT = 1_000
"""Milliseconds after which a browser asks again when a stream was closed."""


class RunStream:
    """What a client is told about one run: each `look` answers with the events since the look before."""

    def __init__(self, using: str, run_id: str, user_id: str, *, full: bool) -> None:
        self._using = using
        self._run_id = run_id
        self._user_id = user_id
        self._full = full
        self._seen: RunFingerprint | None = None
        self._told: dict[str, Json] | None = None
        self._spoke_at = time.monotonic()
        self._ends_at = self._spoke_at + settings.HTTP_STREAM_LIFE / 1000
        self.is_over = False

    def look(self) -> list[str]:
        """What is to be sent now, often nothing. Sets `is_over` after the run's end, at the end of the stream's life,
        when the database fails, and when the run is no longer the user's to see."""
        try:
            events = self._news()
        except DatabaseError:
            # The client asks again by itself.
            logger.warning("The stream of run %s is closed: the database failed", self._run_id, exc_info=True)
            self.is_over = True
            return []
        now = time.monotonic()
        if not events and now - self._spoke_at >= HEARTBEAT:
            events = [": still here\n\n"]
        if events:
            self._spoke_at = now
        self.is_over = self.is_over or now >= self._ends_at
        return events

    def _news(self) -> list[str]:
        fingerprint = reads.run_fingerprint(self._using, self._run_id)
        if fingerprint is None or not may_read(fingerprint, self._user_id):
            self.is_over = True
            return []
        if fingerprint == self._seen:
            return []
        progress = reads.run_progress(self._using, self._run_id, full=self._full)
        if progress is None:
            self.is_over = True
            return []
        is_first, self._seen = self._seen is None, fingerprint
        events = []
        if is_first and progress.deterministic:
            events.append(_init(progress))
        update = self._update(progress)
        if update != self._told:
            self._told = update
            events.append(update)
        if progress.is_terminal:
            self.is_over = True
            events.append({"type": "done"})
        return [f"data: {json.dumps(event, separators=(',', ':'))}\n\n" for event in events]

    def _update(self, progress: RunProgress) -> dict[str, Json]:
        update: dict[str, Json] = {"type": "update", "status": progress.status}
        if self._full:
            error = progress.error or {}
            # A stack trace is for those who may see the console.
            shown = {key: error[key] for key in ("message", "code") if error.get(key) is not None}
            update |= {"output": progress.output, "error": shown or None}
        steps = []
        for step in progress.steps:
            child = {"childRunId": step.child_run_id} if self._full and step.child_run_id is not None else {}
            steps.append({"stepName": step.step_name, "status": step.status, **child})
        return {**update, "steps": steps}


def _init(progress: RunProgress) -> dict[str, Json]:
    statuses = {step.step_name: step.status for step in progress.steps}
    names = [planned["stepName"] for planned in progress.planned_steps or ()]
    steps = [{"stepName": name, "status": statuses.get(name, StepStatus.PENDING.value)} for name in names]
    return {"type": "init", "deterministic": True, "steps": steps}


def sent(stream: RunStream, using: str) -> Iterator[str]:
    """The events as they come, for WSGI: the server's thread waits between two looks."""
    yield f"retry: {RECONNECT}\n\n"
    while True:
        yield from stream.look()
        if stream.is_over:
            return
        engine(using).release()
        time.sleep(POLL)


async def asent(stream: RunStream) -> AsyncIterator[str]:
    """The events as they come, for ASGI."""
    # The request's own thread would keep its connections as long as the stream lasts.
    await sync_to_async(_close_connections)()
    yield f"retry: {RECONNECT}\n\n"
    look = sync_to_async(_looking_afresh, thread_sensitive=False)
    while True:
        for event in await look(stream):
            yield event
        if stream.is_over:
            return
        await asyncio.sleep(POLL)


def _looking_afresh(stream: RunStream) -> list[str]:
    # The pool's threads serve no requests, after which Django would see to their connections.
    close_old_connections()
    try:
        return stream.look()
    finally:
        close_old_connections()


def _close_connections() -> None:
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close()


def event_stream_headers() -> dict[str, Any]:
    """What keeps proxies and middleware from holding events back."""
    return {
        "Cache-Control": "no-cache, no-transform",
        "X-Accel-Buffering": "no",
        # Django's GZipMiddleware leaves alone what is encoded already; it would collect events until a block is full.
        "Content-Encoding": "identity",
    }
