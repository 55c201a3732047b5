"""Exceptions as stored: text only, so that showing an error never needs the class that raised it."""

from __future__ import annotations

import traceback

from pikku_storage.exceptions import PayloadError, WorkflowInputError
from pikku_storage.json import Json

_MESSAGE_LIMIT = 8_000
_STACK_LIMIT = 32_000

WORKER_LOST = "WORKER_LOST"
WORKFLOW_CANCELLED = "WORKFLOW_CANCELLED"
WORKFLOW_SUSPENDED = "WORKFLOW_SUSPENDED"
RPC_NOT_FOUND = "RPC_NOT_FOUND"
WORKFLOW_NOT_FOUND = "WORKFLOW_NOT_FOUND"
VERSION_CONFLICT = "VERSION_CONFLICT"
VERSION_NOT_FOUND = "VERSION_NOT_FOUND"
GRAPH_INVALID = "GRAPH_INVALID"
GRAPH_NODE_FAILED = "GRAPH_NODE_FAILED"
GRAPH_BRANCH_UNKNOWN = "GRAPH_BRANCH_UNKNOWN"
GRAPH_BLOCKED = "GRAPH_BLOCKED"
DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED"
IMPORTED = "IMPORTED"


def describe_error(error: BaseException) -> dict[str, Json]:
    """`{name, message, stack}` of an exception, `code` and `step` where it has them; causes are part of the stack."""
    described: dict[str, Json] = {
        "name": _clean(type(error).__name__, _MESSAGE_LIMIT),
        "message": _clean(_message(error), _MESSAGE_LIMIT),
        "stack": _clean(_stack(error), _STACK_LIMIT),
    }
    # The `code` of a SystemExit is what sys.exit() was given.
    code = None if isinstance(error, SystemExit) else getattr(error, "code", None)
    if isinstance(code, str) and code:
        described["code"] = _clean(code, _MESSAGE_LIMIT)
    step_name = getattr(error, "step_name", None)
    if isinstance(step_name, str):
        described["step"] = _clean(step_name, _MESSAGE_LIMIT)
    return described


def at_step(name: str, error: PayloadError | WorkflowInputError) -> PayloadError | WorkflowInputError:
    """The error as one of that step: `describe_error` stores the name with it."""
    error.step_name = name  # type: ignore[union-attr]
    return error


def coded_error(code: str, message: str) -> dict[str, Json]:
    """An error that no exception stands behind."""
    return {"message": _clean(message, _MESSAGE_LIMIT), "code": code}


def _message(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"The function called sys.exit({error.code!r:.200})"
    try:
        return str(error) or type(error).__name__
    except Exception:  # noqa: BLE001 - a broken __str__ of user code must not hide the failure
        return type(error).__name__


def _stack(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(error))
    except Exception:  # noqa: BLE001 - as above
        return ""


def _clean(text: str, limit: int) -> str:
    text = text.replace("\x00", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()
    # The end of a traceback says what happened, so the middle is what goes.
    return text if len(text) <= limit else f"{text[: limit // 2]}\n…\n{text[-limit // 2 :]}"
