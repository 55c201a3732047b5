"""What a function is told that makes up for a failed step."""

from __future__ import annotations

from pikku_storage.ids import invocation_id
from pikku_storage.json import Json
from pikku_storage.workflows.records import StepState

COMPENSATION_ARGUMENTS = ("error", "input", "invocation_id")


def compensation_of(step: StepState) -> dict[str, Json]:
    """The arguments for a step that failed for good: its error without the stack, its input and its invocation id."""
    error = {key: value for key, value in (step.error or {}).items() if key != "stack"}
    return dict(
        zip(COMPENSATION_ARGUMENTS, (error, step.data, invocation_id(step.run_id, step.step_name)), strict=True)
    )
