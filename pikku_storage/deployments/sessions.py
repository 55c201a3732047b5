"""The session that a call of another service came with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from pikku_storage.access.acting import acting_as
from pikku_storage.json import Json

_session: ContextVar[Json] = ContextVar("pikku_remote_session", default=None)


def current_session() -> Json:
    """Inside a function that another service called: the session that it sent. Elsewhere, and without one: `None`."""
    return _session.get()


@contextmanager
def called_with(session: Json) -> Iterator[None]:
    """Inside the block this is the session of the call, and its `userId` acts."""
    user_id: Any = session.get("userId") if isinstance(session, dict) else None
    token = _session.set(session)
    try:
        with acting_as(user_id if isinstance(user_id, str) and user_id else None):
            yield
    finally:
        _session.reset(token)
