"""Every error this package raises on purpose.

Names follow the contract where it has one (`WorkflowNotFoundError`, `WorkflowStepNameNotString`, …), so that a reader
who knows the TypeScript packages recognises them. `http_status` is what an HTTP view answers with.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar


class PikkuError(Exception):
    """Base of all errors of this package."""

    http_status: ClassVar[int] = 500


class PayloadError(PikkuError, ValueError):
    """A value that cannot be stored as JSON on every database.

    `path` says where it sits inside the payload, in JSONPath style: `$`, `$.items[3].price`.
    """

    http_status = 422
    code = "NOT_SERIALIZABLE"

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason

    def __reduce__(self) -> tuple[type[PayloadError], tuple[str, str]]:
        return type(self), (self.path, self.reason)


class WorkflowError(PikkuError):
    """Base of the workflow errors."""


class WorkflowRegistrationError(WorkflowError):
    """A definition that cannot be registered: its name is taken, or its signature cannot work."""


class WorkflowInputError(WorkflowError, ValueError):
    """The data does not fit the parameters of the workflow or function; nothing has been written."""

    http_status = 422


class WorkflowStepNameNotString(WorkflowError, TypeError):  # noqa: N818 - the contract's name
    """A step was given a name that is not a text of 1 to 223 characters."""

    http_status = 422


class WorkflowNotFoundError(WorkflowError):
    """No workflow of that name is registered in this process."""

    http_status = 404

    def __init__(self, name: str) -> None:
        super().__init__(
            f"Workflow not found: {name}. Is its module a workflows.py of an app in INSTALLED_APPS, or imported by one?"
        )
        self.name = name


class PikkuMissingMetaError(WorkflowNotFoundError):
    """A stored run names a workflow that this process does not know; the run waits until a worker does."""


class RPCNotFoundError(WorkflowError):
    """No function of that name is registered in this process."""

    http_status = 404

    def __init__(self, name: str) -> None:
        super().__init__(f"RPC '{name}' not found. Deploy the missing function and resume.")
        self.name = name


class WorkflowRunNotFoundError(WorkflowError):
    """No run has that id."""

    http_status = 404

    def __init__(self, run_id: str) -> None:
        super().__init__(f"Workflow run not found: {run_id}")
        self.run_id = run_id


class StepNotFoundError(WorkflowError):
    """The run has no step of that name."""

    http_status = 404

    def __init__(self, run_id: str, step_name: str) -> None:
        super().__init__(f"Step not found: runId={run_id}, stepName={step_name}. Use insert_step_state to create it.")
        self.run_id = run_id
        self.step_name = step_name


class WorkflowRunFailedError(WorkflowError):
    """The awaited run failed; `error` is the stored error."""

    http_status = 422

    def __init__(self, run_id: str, error: Mapping[str, Any] | None) -> None:
        self.run_id = run_id
        self.error = dict(error or {})
        super().__init__(str(self.error.get("message") or "Unknown error"))


class WorkflowRunCancelledError(WorkflowError):
    """The awaited run was cancelled."""

    http_status = 409

    def __init__(self, run_id: str) -> None:
        super().__init__(f"Workflow run was cancelled: {run_id}")
        self.run_id = run_id


class WorkflowRunSuspendedError(WorkflowError):
    """The awaited run has no result yet: it is suspended, and `error` says what it waits for."""

    http_status = 409

    def __init__(self, run_id: str, error: Mapping[str, Any] | None) -> None:
        self.run_id = run_id
        self.error = dict(error or {})
        super().__init__(f"Workflow run is suspended: {run_id}. {self.error.get('message') or 'No reason was stored.'}")


class WorkflowRunForbiddenError(WorkflowError):
    """The run belongs to somebody else. The text names neither the run nor its owner."""

    http_status = 403

    def __init__(self) -> None:
        super().__init__("Not authorized to access this workflow run")


class WorkflowDepthError(WorkflowError):
    """A workflow called another one, which called another one, and so on, deeper than is sensible; most likely one
    starts itself for ever."""

    http_status = 422
    code = "WORKFLOW_TOO_DEEP"

    def __init__(self, name: str, deepest: int) -> None:
        super().__init__(
            f"Workflow {name!r} would be sub-workflow number {deepest + 1} of one another, and {deepest} are the most. "
            "Does one of them start itself for ever?"
        )
        self.name = name


class WorkflowStepFunctionMismatchError(WorkflowError):
    """A message, or today's code, names another function for a step than the one the step was recorded with."""

    http_status = 409
    code = "STEP_FUNCTION_MISMATCH"

    def __init__(self, step_name: str, stored: str | None, given: str | None) -> None:
        super().__init__(f"Step '{step_name}' belongs to function {stored!r}, not {given!r}; it was left as it is.")
        self.step_name = step_name
        self.stored = stored
        self.given = given


class WorkflowDispatchException(WorkflowError):  # noqa: N818 - the contract's name
    """A message could not be handed to the broker. The step stays pending and the relay sends it later."""

    http_status = 503


class WorkflowStepFailedError(WorkflowError):
    """Raised inside a workflow's body by a step that failed for good, after its compensation ran.

    Built from what is stored, so a first pass and a replay raise the same.
    """

    http_status = 422

    def __init__(self, step_name: str, error: Mapping[str, Any] | None) -> None:
        self.step_name = step_name
        self.error = dict(error or {})
        super().__init__(str(self.error.get("message") or f"Step '{step_name}' failed after exhausting all retries"))

    @property
    def code(self) -> str | None:
        """The failure's code (`WORKER_LOST`, `STEP_TIMEOUT`, or what the exception's `code` attribute said)."""
        return self.error.get("code")

    @property
    def error_type(self) -> str | None:
        """The class name of the exception that the step function raised."""
        return self.error.get("name")


class FinalError(PikkuError):
    """Raise it, or a subclass, in a step function to fail the step at once, whatever retries are left."""


class StepTimeoutError(PikkuError):
    """A step function ran longer than its timeout."""

    code = "STEP_TIMEOUT"


class WorkflowAsyncException(BaseException):
    """Leaves a workflow's body while it waits for a step, a delay or a missing function.

    A `BaseException`, so that a body's `except Exception` does not swallow it. Never shown to users.
    """


class WorkflowSuspendedException(BaseException):
    """Leaves a workflow's body when the run is to be suspended, showing `error`. Never shown to users."""

    def __init__(self, error: Mapping[str, Any]) -> None:
        super().__init__(str(error.get("message")))
        self.error = dict(error)


class WorkflowCancelledException(BaseException):
    """Leaves a workflow's body when the run is to be cancelled and what it did to be undone. Never shown to users."""


class WorkflowDeadlineException(BaseException):
    """Leaves a workflow's body when the run's deadline is over, so that no further step begins. Never shown to
    users."""


class EngineInterrupted(BaseException):
    """Leaves a workflow's body when the database failed under one of its calls; `error` is what the database said."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class PassLostError(BaseException):
    """Leaves a workflow's body because the run was cancelled or another worker took it over; write nothing more."""
