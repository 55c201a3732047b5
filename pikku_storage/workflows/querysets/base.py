"""What the querysets share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pikku_storage.db import querysets
from pikku_storage.db.operations import Merge, Operation, Update
from pikku_storage.db.querysets import Row
from pikku_storage.ids import new_id, new_token
from pikku_storage.json import Json
from pikku_storage.workflows.mirroring import pass_on
from pikku_storage.workflows.statuses import LIVE_RUN_STATUSES, TERMINAL_RUN_STATUSES

LIVE = sorted(status.value for status in LIVE_RUN_STATUSES)
TERMINAL = sorted(status.value for status in TERMINAL_RUN_STATUSES)


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


class EngineQuerySet(querysets.EngineQuerySet[Row]):
    """What the querysets of engine rows share: every write goes through one of the three methods below, and what it
    wrote to the mirror, if there is one."""

    def _apply(self, *operations: Operation, durable: bool = True) -> tuple[int, ...]:
        """See `Engine.apply`."""
        counts = self.engine.apply(*operations, durable=durable)
        if counts[0]:
            pass_on(self.db, operations, counts)
        return counts

    def _take(self, update: Update, columns: Sequence[str], *, durable: bool = True) -> dict[str, Any] | None:
        """See `Engine.take`."""
        row = self.engine.take(update, columns, durable=durable)
        if row is not None:
            pass_on(self.db, (update,), (1,))
        return row

    def _merge(self, merge: Merge) -> int:
        """See `Engine.merge_json_key`."""
        count = self.engine.merge_json_key(merge.model, merge.id, merge.field, merge.key, merge.value, merge.at)
        if count:
            pass_on(self.db, (merge,), (count,))
        return count
