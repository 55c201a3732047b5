"""Which limits hold for a workflow now: those of the code, and in their place what operators have set in the database.

The table of what they have set is small. A process reads all of it at most once a second, and only when a run is
entered, so that a workflow without limits costs no statement more. What is refused is refused by what is stored at that
moment (`fresh`), so a limit that was raised holds at once; one that was lowered holds within a second.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from pikku_storage.db.operations import NOT_NULL
from pikku_storage.workflows.engine.runtime import Runtime
from pikku_storage.workflows.limits import Limits, RateLimit
from pikku_storage.workflows.models import WorkflowControl
from pikku_storage.workflows.records import Control
from pikku_storage.workflows.registry import registry

REMEMBERED = 1.0
"""Seconds for which a process believes what it has read."""

_NONE = Limits()
_read: dict[str, tuple[float, dict[str, Control]]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What holds for a workflow now."""

    concurrency: int | None
    concurrency_per_key: int | None
    rate: RateLimit | None
    keep_while_waiting: bool
    paused: Control | None

    @property
    def are_any(self) -> bool:
        """Whether there is a limit."""
        return not (self.concurrency is None and self.concurrency_per_key is None and self.rate is None)


def rules_of(runtime: Runtime, workflow: str, *, fresh: bool = False) -> Rules:
    """What holds for a workflow now. The workflow need not be registered."""
    definition = registry.workflows.get(workflow)
    declared = (None if definition is None else definition.limits) or _NONE
    control = _controls(runtime, fresh=fresh).get(workflow)
    concurrency, per_key, rate = declared.concurrency, declared.concurrency_per_key, declared.rate_limit
    if control is not None:
        concurrency = concurrency if control.concurrency is None else control.concurrency
        per_key = per_key if control.concurrency_per_key is None else control.concurrency_per_key
        rate = rate if control.rate_limit is None else control.rate_limit
    return Rules(
        concurrency=concurrency,
        concurrency_per_key=per_key,
        rate=None if rate is None else RateLimit.of(rate),
        keep_while_waiting=declared.keep_while_waiting,
        paused=control if control is not None and control.is_paused else None,
    )


def current_pause(runtime: Runtime, workflow: str) -> Control | None:
    """The pause of a workflow, if it is paused now. It is asked before each step."""
    control = _controls(runtime, fresh=False).get(workflow)
    if control is None or not control.is_paused:
        return None
    # It may be over.
    control = _controls(runtime, fresh=True).get(workflow)
    return control if control is not None and control.is_paused else None


def forget(using: str) -> None:
    """Read anew when next asked: this process has changed something."""
    _read.pop(using, None)


def _controls(runtime: Runtime, *, fresh: bool) -> dict[str, Control]:
    read_at, controls = _read.get(runtime.using, (float("-inf"), {}))
    now = time.monotonic()
    if fresh or now - read_at > REMEMBERED:
        rows = runtime.engine.read(WorkflowControl, {"workflow": NOT_NULL}, Control.COLUMNS)
        controls = {row["workflow"]: Control(**row) for row in rows}
        _read[runtime.using] = now, controls
    return controls
