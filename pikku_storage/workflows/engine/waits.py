"""What a run says that it waits for: the column `waits_for`, and the answers of handles and services."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from pikku_storage.json import Json
from pikku_storage.workflows.errors import RPC_NOT_FOUND, VERSION_CONFLICT, WORKFLOW_NOT_FOUND
from pikku_storage.workflows.gates import APPROVAL_RPC, reason_of
from pikku_storage.workflows.records import StepState

CONCURRENCY = "concurrency"
RATE_LIMIT = "rate_limit"
PAUSED = "paused"
SLEEP = "sleep"
RETRY = "retry"
STEPS = "steps"
CODE = "code"
DEPLOY = "deploy"
APPROVAL = "approval"
RESUME = "resume"
KINDS = (CONCURRENCY, RATE_LIMIT, PAUSED, SLEEP, RETRY, STEPS, CODE, DEPLOY, APPROVAL, RESUME)
"""What a run can wait for: a slot, its turn under a rate limit, the end of the workflow's pause, a time, the next
attempt of a step, steps that others carry out, missing code, code that fits, an answer, or somebody who resumes it."""
LIMIT_KINDS = (CONCURRENCY, RATE_LIMIT, PAUSED)
"""What keeps a run out that could go on."""

_OF_CODES = {RPC_NOT_FOUND: CODE, WORKFLOW_NOT_FOUND: CODE, VERSION_CONFLICT: DEPLOY}
_SHOWN = 3


def waits(kind: str, text: str, since: datetime, **more: Json | datetime) -> dict[str, Json]:
    """`{kind, text, since}` and what else there is to say; times become text."""
    plain = {name: value.isoformat() if isinstance(value, datetime) else value for name, value in more.items()}
    return {"kind": kind, "text": text, "since": since.isoformat(), **plain}


def waits_for_error(error: dict[str, Json], since: datetime) -> dict[str, Json]:
    """What a suspended run waits for."""
    return waits(_OF_CODES.get(str(error.get("code")), RESUME), str(error.get("message")), since)


def waits_for_gate(step: StepState, until: datetime | None) -> dict[str, Json]:
    """A run that stands at a suspension or an approval, until that time if it has an end."""
    reason = reason_of(step)
    if step.rpc_name != APPROVAL_RPC:
        return waits(RESUME, reason or "Workflow suspended", step.created_at, reason=reason)
    ends = {} if until is None else {"until": until}
    return waits(APPROVAL, f"Waits for an answer to {reason}", step.created_at, reason=reason, **ends)


def waits_for_steps(names: Sequence[str], since: datetime) -> dict[str, Json]:
    """A run whose steps are with other workers."""
    shown = ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
    return waits(STEPS, f"Waits for {shown}", since, count=len(names))


def waits_for_time(kind: str, step_name: str, until: datetime, since: datetime) -> dict[str, Json]:
    """A run that sleeps, or whose step is tried again at that time."""
    what = "Sleeps in" if kind == SLEEP else "Waits for the next attempt of"
    return waits(kind, f"{what} {step_name} until {until:%Y-%m-%d %H:%M:%S} UTC", since, step=step_name, until=until)
