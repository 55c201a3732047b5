"""Every error this package raises on purpose.

Names follow the contract where it has one (`WorkflowNotFoundError`, `WorkflowStepNameNotString`, …), so that a reader
who knows the TypeScript packages recognises them. `http_status` is what an HTTP view answers with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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


class InvalidSchemaError(PikkuError, ValueError):
    """What was given as a schema is none, or cannot be used here. A fault of the code that names it."""


class MissingScopeError(PikkuError):
    """Something needs a scope that is not held."""

    http_status = 403

    def __init__(self, scope: str) -> None:
        super().__init__(f"Missing required scope: {scope}")
        self.scope = scope
        self.payload = {"error": "missing_scope", "scope": scope}


class ForbiddenError(PikkuError):
    """Whoever asks may not do this, or see this. What does not exist is answered alike, so that nobody learns which ids
    there are."""

    http_status = 403

    def __init__(self, message: str = "Permission denied") -> None:
        super().__init__(message)


class UnscopedQueryError(PikkuError):
    """Rows that belong to somebody were asked for without saying whose. A fault of the code that asked."""

    def __init__(self, model: str) -> None:
        super().__init__(
            f"Whose? Use {model}.objects.for_principals(user), or {model}.everyones where the caller may see all."
        )
        self.model = model


class AgentError(PikkuError):
    """Base of the errors of agent storage."""


class AgentInputError(AgentError, ValueError):
    """Something that was to be stored has a wrong shape; nothing was written. The text says where."""

    http_status = 422


class WebhookError(PikkuError):
    """Base of the errors of webhooks."""


class WebhookInputError(WebhookError, ValueError):
    """A webhook that cannot be sent as it was asked for; nothing was stored."""

    http_status = 422


class WebhookBlockedError(WebhookError):
    """A webhook was to go to an address that is not public; nothing was sent."""

    http_status = 422
    code = "WEBHOOK_BLOCKED"

    def __init__(self, host: str, address: str) -> None:
        where = host if host == address else f"{host} ({address})"
        super().__init__(
            f"Webhooks are not sent to {where}: the address is not public. WEBHOOK_ALLOWED_HOSTS names exceptions."
        )
        self.host = host
        self.address = address


class WebhookTransportError(WebhookError):
    """A receiver gave no answer; the text says why. The attempt is recorded, and there may be another."""

    http_status = 502


class WebhookNotFoundError(WebhookError):
    """There is no delivery of that id."""

    http_status = 404

    def __init__(self, delivery_id: str) -> None:
        super().__init__(f"Webhook delivery not found: {delivery_id}")
        self.delivery_id = delivery_id


class AuditInputError(PikkuError, ValueError):
    """The audit trail was asked for something that it cannot look for."""

    http_status = 422


class ThreadNotFoundError(AgentError):
    """There is no thread of that id."""

    http_status = 404

    def __init__(self, thread_id: str) -> None:
        super().__init__(f"Thread not found: {thread_id}")
        self.thread_id = thread_id


class ThreadExistsError(AgentError):
    """There is a thread of that id already."""

    http_status = 409

    def __init__(self, thread_id: str) -> None:
        super().__init__(f"There is a thread with the id {thread_id} already")
        self.thread_id = thread_id


class MessageConflictError(AgentError):
    """A message or tool call of that id is there already, and is another one: of another thread, or with another
    content. Nothing of the batch was written. The text does not say which of the two."""

    http_status = 409

    def __init__(self, kind: str, row_id: str) -> None:
        super().__init__(f"The {kind} id {row_id} is taken")
        self.row_id = row_id


class AgentRunNotFoundError(AgentError):
    """There is no agent run of that id."""

    http_status = 404

    def __init__(self, run_id: str) -> None:
        super().__init__(f"Agent run not found: {run_id}")
        self.run_id = run_id


class AccessError(PikkuError):
    """Base of the errors of scopes and roles."""


class ScopeDeclarationError(AccessError, ValueError):
    """Code declares a scope or a role that cannot be: no name for one, or two declarations that contradict."""


class ScopeNotFoundError(AccessError):
    """There are no declared scopes of these names, so nobody can be given them."""

    http_status = 404

    def __init__(self, *scopes: str) -> None:
        super().__init__(f"Scope not declared: {', '.join(scopes)}. Declare it in a scopes.py, and run sync_scopes.")
        self.scopes = scopes


class RoleNotFoundError(AccessError):
    """There is no role of that name."""

    http_status = 404

    def __init__(self, role: str) -> None:
        super().__init__(f"Role not found: {role}")
        self.role = role


class RoleExistsError(AccessError):
    """There is a role of that name already."""

    http_status = 409

    def __init__(self, role: str) -> None:
        super().__init__(f"There is a role '{role}' already")
        self.role = role


class SystemRoleShadowedError(AccessError):
    """The name belongs to a role that code declares, or has declared."""

    http_status = 409

    def __init__(self, role: str) -> None:
        super().__init__(f"The role '{role}' is declared in code; give yours another name")
        self.role = role


class SystemRoleImmutableError(AccessError):
    """A role that code declares, or has declared, is changed there only. `operation` is `delete` or `re-scope`."""

    http_status = 409

    def __init__(self, role: str, operation: str) -> None:
        super().__init__(f"Cannot {operation} the role '{role}': it is declared in code, so change it there")
        self.role = role
        self.operation = operation


class WorkingMemoryBusyError(AgentError):
    """So many others change a working memory at the moment that a change of it found no place. Nothing was written; it
    may be tried again."""

    http_status = 409

    def __init__(self, memory_id: str) -> None:
        super().__init__(f"The working memory of {memory_id} is changed by too many at once; try again")
        self.memory_id = memory_id


class ScoringError(AgentError):
    """A scorer is declared wrongly, cannot grade as it was asked to, or answered with what is no grade. Nothing was
    stored."""

    http_status = 422


class ScorerNotFoundError(ScoringError):
    """No scorer of that name is declared in this process."""

    http_status = 404

    def __init__(self, name: str) -> None:
        super().__init__(
            f"Scorer not found: {name}. Is its module a scorers.py of an app in INSTALLED_APPS, or imported by one?"
        )
        self.name = name


class ChannelError(PikkuError):
    """Base of the errors of channels."""


class ChannelNotFoundError(ChannelError):
    """There is no channel of that id."""

    http_status = 404

    def __init__(self, channel_id: str) -> None:
        super().__init__(f"Channel not found: {channel_id}")
        self.channel_id = channel_id


class ChannelExistsError(ChannelError):
    """There is a channel of that id already."""

    http_status = 409

    def __init__(self, channel_id: str) -> None:
        super().__init__(f"There is a channel with the id {channel_id} already")
        self.channel_id = channel_id


class VirtualUserInputError(PikkuError, ValueError):
    """Something that was to be stored of a virtual user has a wrong shape; nothing was written. The text says where."""

    http_status = 422


class DecryptionError(PikkuError):
    """What was to be opened does not open: another key, another place, or something was changed."""


class InvalidEncryptedPayloadError(DecryptionError):
    """What was to be opened is nothing that was ever sealed: too short, or of no known form."""

    def __init__(self) -> None:
        super().__init__("Invalid encrypted payload")


class WeakKeyMaterialError(PikkuError):
    """Shared key material is too short; nothing is sealed or opened with it. The text never quotes it."""

    def __init__(self, name: str, least: int, length: int) -> None:
        super().__init__(
            f"{name} must be at least {least} characters of high-entropy key material, got {length}. "
            "Generate one with `openssl rand -base64 32` and redeploy every service that shares it."
        )
        self.name = name


class InvalidTokenError(PikkuError):
    """A JWT is refused: of another secret or audience, over, or none at all. The text never quotes it."""

    http_status = 401


class UnauthorizedError(PikkuError):
    """A call of another service carries no proof of where it comes from, or one that does not hold. Whoever calls is
    not told why."""

    http_status = 401

    def __init__(self) -> None:
        super().__init__("Unauthorized")


class DeploymentError(PikkuError):
    """Base of the errors of calls between services."""


class DeploymentNotFoundError(DeploymentError):
    """No deployment that is up serves the function."""

    http_status = 503

    def __init__(self, func: str) -> None:
        super().__init__(f"No deployment found for function '{func}'")
        self.func = func


class RemoteCallError(DeploymentError):
    """A call of a function of another service failed.

    `status` is what it was answered with, if it was. `was_sent` says whether it may have been carried out.
    """

    http_status = 502

    def __init__(self, func: str, reason: str, *, status: int | None = None, was_sent: bool = True) -> None:
        super().__init__(f"Remote RPC call to '{func}' failed: {reason}")
        self.func = func
        self.status = status
        self.was_sent = was_sent


class SignedUrlError(PikkuError):
    """An address is not signed, not for this path, or over. For the log: whoever asks is told nothing."""

    http_status = 403


class SecretError(PikkuError):
    """Base of the errors of secrets, credentials and encrypted fields. They name what they are about, and the key
    version; never a value."""


class SecretNotFoundError(SecretError):
    """There is no secret of that name."""

    http_status = 404

    def __init__(self, key: str) -> None:
        super().__init__(f"Requested secret not found: {key}")
        self.key = key


class SecretDecryptionError(SecretError, DecryptionError):
    """What is stored does not open: the key is another one, or the row was changed or moved."""

    def __init__(self, subject: str, key_version: int | None, reason: str) -> None:
        super().__init__(f"Failed to decrypt {subject} (key_version {key_version}): {reason}")
        self.subject = subject
        self.key_version = key_version
        self.reason = reason


class InvalidCredentialError(SecretError):
    """A credential opens, and what is in it is no JSON."""

    def __init__(self, name: str) -> None:
        super().__init__(f"Credential '{name}' contains invalid data")
        self.name = name


class KeyNotAvailableError(SecretError):
    """A key version cannot be used: no passphrase or no salt, another passphrase than it began with, or retired."""

    def __init__(self, key_version: int, reason: str) -> None:
        super().__init__(f"No KEK available for key_version {key_version}: {reason}")
        self.key_version = key_version
        self.reason = reason


class NothingToRotateError(SecretError):
    """A rotation was asked for, and there is no key to rotate from."""

    def __init__(self) -> None:
        super().__init__("No previousKey configured — nothing to rotate from")


class SecretAccessDeniedError(SecretError):
    """A scoped service was asked for a name that was not declared, or for something that it never does."""

    http_status = 403


class SecretHostNotAllowedError(SecretError):
    """A secret was asked for, to be sent to a host that it may not be sent to."""

    http_status = 403

    def __init__(self, key: str, host: str) -> None:
        super().__init__(f"Secret {key!r} may not be sent to {host!r}")
        self.key = key
        self.host = host


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


class ScheduleNotFoundError(WorkflowError):
    """There is no schedule of that name."""

    http_status = 404

    def __init__(self, name: str) -> None:
        super().__init__(f"Schedule not found: {name}")
        self.name = name


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


class WorkflowApprovalResolvedError(WorkflowError):
    """The gate has its outcome, or an answer that is still to be judged; `status` says which: `decided`, `expired`,
    `answered`, or how the run ended."""

    http_status = 409

    def __init__(self, reason: str, status: str) -> None:
        super().__init__(f"The approval '{reason}' takes no further answer: it is {status}")
        self.reason = reason
        self.status = status


class WorkflowApprovalForbiddenError(WorkflowError):
    """Whoever answered is not the one that the gate asks; `detail` says why."""

    http_status = 403

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"Not allowed to answer the approval '{reason}': {detail}")
        self.reason = reason
        self.detail = detail


class WorkflowApprovalInvalidError(WorkflowError, ValueError):
    """The answer does not fit the gate's schema; `problems` are `{message, path}` each."""

    http_status = 422

    def __init__(self, reason: str, problems: Sequence[Mapping[str, Any]]) -> None:
        self.reason = reason
        self.problems = [dict(problem) for problem in problems]
        texts = "; ".join(f"{'.'.join(map(str, each['path'])) or '(all)'}: {each['message']}" for each in self.problems)
        super().__init__(f"The answer to the approval '{reason}' does not fit: {texts}")


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


class WorkflowGraphError(WorkflowError):
    """Why a run of a graph failed: a node failed for good, or the graph cannot go on.

    `code` is one of `GRAPH_NODE_FAILED`, `GRAPH_BRANCH_UNKNOWN`, `GRAPH_BLOCKED` and `GRAPH_INVALID`.
    """

    http_status = 422

    def __init__(self, code: str, message: str, *, step_name: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.step_name = step_name


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
