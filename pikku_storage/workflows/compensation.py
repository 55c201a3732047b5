"""What a function is told that makes up for a failed step."""

from __future__ import annotations

from collections.abc import Mapping

from pikku_storage.ids import invocation_id
from pikku_storage.json import Json
from pikku_storage.workflows.records import StepState

COMPENSATION_ARGUMENTS = ("error", "input", "invocation_id")


def compensation_of(step: StepState, because: Mapping[str, Json] | None) -> dict[str, Json]:
    """The arguments for a step that failed for good, or is undone: the error that is the reason, without the stack; its
    input; its invocation id."""
    error = {key: value for key, value in (because or {}).items() if key != "stack"}
    return dict(
        zip(COMPENSATION_ARGUMENTS, (error, step.data, invocation_id(step.run_id, step.step_name)), strict=True)
    )
