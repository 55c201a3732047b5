"""Where the running step function is."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass

from pikku_storage.exceptions import WorkflowError


@dataclass(frozen=True, slots=True, kw_only=True)
class StepContext:
    """The step whose function is running."""

    run_id: str
    step_id: str
    step_name: str
    invocation_id: str
    """The same in every attempt: use it as the idempotency key of what the step does to the world."""
    from_invocation_id: str | None
    """The invocation id of the step the run came from."""
    attempt: int
    """1 for the first try."""
    owner_id: str | None
    """The owner of the run."""


running_step: ContextVar[StepContext] = ContextVar("pikku_running_step")


def current_step() -> StepContext:
    """The step that is running in this thread or task; raises `WorkflowError` outside of a step function."""
    try:
        return running_step.get()
    except LookupError:
        raise WorkflowError("current_step() was called outside of a step function") from None
