"""The end of a run's time: what its deadline does."""

from __future__ import annotations

from datetime import datetime

from pikku_storage.json import Json
from pikku_storage.workflows.engine.children import see_off
from pikku_storage.workflows.engine.runtime import Runtime
from pikku_storage.workflows.errors import DEADLINE_EXCEEDED, coded_error
from pikku_storage.workflows.records import Run
from pikku_storage.workflows.statuses import RunStatus


def is_over(deadline_at: datetime | None, at: datetime) -> bool:
    """Whether a deadline has passed."""
    return deadline_at is not None and deadline_at <= at


def exceeded(run: Run) -> dict[str, Json]:
    """The error of a run that had not ended by its deadline."""
    until = "" if run.deadline_at is None else f" of {run.deadline_at:%Y-%m-%d %H:%M:%S} UTC"
    return coded_error(DEADLINE_EXCEEDED, f"The run had not ended by its deadline{until}")


def end_overdue(runtime: Runtime, run_id: str) -> bool:
    """End a run whose deadline is over, from outside of it. The step that runs may end; none begins after it."""
    run = runtime.read_run(run_id)
    if run is None or not is_over(run.must_end_at, runtime.now()):
        return False
    if not runtime.set_status(run_id, RunStatus.FAILED, error=exceeded(run)):
        return False
    see_off(runtime, run_id)
    return True
