"""What the querysets share."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from pikku_storage.db.querysets import EngineQuerySet
from pikku_storage.ids import new_id, new_token
from pikku_storage.json import Json
from pikku_storage.workflows.statuses import LIVE_RUN_STATUSES

__all__ = ["LIVE", "Claim", "EngineQuerySet", "NewStep"]

LIVE = sorted(status.value for status in LIVE_RUN_STATUSES)


@dataclass(frozen=True, slots=True)
class NewStep:
    """A step that does not exist yet."""

    run_id: str
    step_name: str
    rpc_name: str | None
    data: Json
    max_attempts: int
    retries: int | None = None
    retry_delay: str | None = None
    from_step_name: str | None = None
    queue: str | None = None
    group: str | None = None
    timeout_ms: int | None = None
    id: str = field(default_factory=new_id)


@dataclass(frozen=True, slots=True)
class Claim:
    """One worker's hold on one attempt: nobody else can write its outcome, and it ends by itself at `until`."""

    worker: str
    at: datetime
    until: datetime
    token: str = field(default_factory=new_token)
