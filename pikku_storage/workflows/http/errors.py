"""What is wrong with a request, and how errors are answered."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import PermissionDenied, RequestDataTooBig
from django.http import JsonResponse

from pikku_storage.exceptions import ForbiddenError, PikkuError, WorkflowRunNotFoundError

ANSWERED = (PikkuError, PermissionDenied, RequestDataTooBig)
"""What a view answers; anything else is a fault, and goes where the project's faults go."""


class HttpError(PikkuError):
    """Base of what can be wrong with a request. These never leave the views."""

    http_status = 400


class MalformedRequestError(HttpError):
    """The body or a header cannot be read."""


class NotAuthenticatedError(HttpError):
    """Nobody is signed in."""

    http_status = 401

    def __init__(self) -> None:
        super().__init__("Sign in first")


class CsrfError(HttpError):
    """A browser's session came without the CSRF token."""

    http_status = 403

    def __init__(self, reason: str) -> None:
        super().__init__(f"CSRF check failed: {reason}")


class NotServedError(HttpError):
    """No workflow of that name is served over HTTP."""

    http_status = 404

    def __init__(self, name: str) -> None:
        super().__init__(f"Workflow not found: {name}")


class NoSuchRunError(HttpError):
    """There is no such run, or it is none of the caller's business: one answer for both."""

    http_status = 404

    def __init__(self, run_id: str) -> None:
        super().__init__(f"Run not found: {run_id}")


class ApprovalClosedError(HttpError):
    """The approval takes no further answer. How it came out is for those who may read the run."""

    http_status = 409

    def __init__(self, reason: str) -> None:
        super().__init__(f"The approval '{reason}' takes no further answer")
        self.reason = reason


class MethodNotAllowedError(HttpError):
    """The address takes another method."""

    http_status = 405

    def __init__(self, given: str | None, allowed: str) -> None:
        super().__init__(f"This address takes {allowed}, not {given}")
        self.allowed = allowed


class BodyTooLargeError(HttpError):
    """The body is larger than `DATA_UPLOAD_MAX_MEMORY_SIZE`."""

    http_status = 413


class UnsupportedMediaTypeError(HttpError):
    """The body is not called JSON."""

    http_status = 415


class IdempotencyKeyReusedError(HttpError):
    """The caller used the key before, with other data."""

    http_status = 422


def error_response(error: Exception) -> JsonResponse:
    """`{error: {name, message, …}}` with the error's status; what else there is, `_SHOWN` says.

    Takes one of `ANSWERED`. A fault of the server is raised again.
    """
    own = _own(error)
    if own.http_status == PikkuError.http_status:
        raise error
    response = JsonResponse({"error": _as_json(own)}, status=own.http_status)
    response["Cache-Control"] = "no-store"
    if isinstance(own, MethodNotAllowedError):
        response["Allow"] = own.allowed
    if isinstance(own, NotAuthenticatedError):
        # A challenge belongs to a 401; this one makes no browser ask for a password.
        response["WWW-Authenticate"] = "Session"
    return response


def _own(error: Exception) -> PikkuError:
    if isinstance(error, WorkflowRunNotFoundError):
        return NoSuchRunError(error.run_id)
    if isinstance(error, PikkuError):
        return error
    if isinstance(error, RequestDataTooBig):
        return BodyTooLargeError(str(error))
    return ForbiddenError(str(error) or "You may not do this")


_SHOWN = {
    "code": "code",
    "path": "path",
    "reason": "reason",
    "run_id": "runId",
    "status": "status",
    "detail": "detail",
    "problems": "problems",
}
"""Attributes that tell a caller more, and what they are called there."""


def _as_json(error: PikkuError) -> dict[str, Any]:
    details = {key: value for name, key in _SHOWN.items() if (value := getattr(error, name, None)) is not None}
    return {"name": type(error).__name__, "message": str(error), **details}
