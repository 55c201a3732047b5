"""What the stores of virtual users take and answer with: frozen, typed records, no model instances.

Times are aware UTC, and `None` is the contract's *absent*.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from pikku_storage.json import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualUserRun:
    """One run of a persona. `status` is `running`, `completed` or `failed`."""

    run_id: str
    persona: str
    disposition: str
    seed: int
    status: str
    goals: Json
    memory: Json
    findings: Json
    intents: Json
    tally: Json
    stopped_by: str | None
    error: str | None
    started_by: str | None
    created_at: datetime
    finished_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualUserStep:
    """One step of a transcript. `response` is any JSON."""

    step_index: int
    intent_id: str | None = None
    action: Json = None
    status: int | None = None
    ok: bool | None = None
    response: Json = None
    finding_kinds: Json = None
    tokens_in: int = 0
    tokens_out: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualUserSchedule:
    """When a persona runs next, and how often it does."""

    persona: str
    enabled: bool
    disposition: str
    goals: Json
    budget: Json
    min_interval_ms: int
    max_interval_ms: int
    next_run_at: datetime
    last_run_id: str | None
    last_run_at: datetime | None


def columns(record: Any) -> tuple[str, ...]:
    """The columns that make up a record."""
    return tuple(each.name for each in fields(record))
