"""Calling a step function outside of any run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pikku_storage.ids import invocation_id
from pikku_storage.workflows.context import StepContext, inside


@contextmanager
def as_step(
    step_name: str = "step",
    *,
    run_id: str = "run",
    attempt: int = 1,
    from_step_name: str | None = None,
    owner_id: str | None = None,
) -> Iterator[StepContext]:
    """Inside the block `current_step()` answers as in a step of that name and run. The same name and run have the same
    invocation id, in every attempt."""
    context = StepContext(
        run_id=run_id,
        step_id=f"{run_id}/{step_name}",
        step_name=step_name,
        invocation_id=invocation_id(run_id, step_name),
        from_invocation_id=None if from_step_name is None else invocation_id(run_id, from_step_name),
        attempt=attempt,
        owner_id=owner_id,
    )
    with inside(context):
        yield context
