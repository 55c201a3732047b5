"""How gates are named and stored (contract services.md §1.2 and §1.8). Pure.

A gate is a step that nobody carries out: while it is open it is `running`, without a claim, and waits for a person.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from pikku_storage.exceptions import PayloadError, WorkflowStepNameNotString
from pikku_storage.json import Json, to_json
from pikku_storage.workflows.policies import ApprovalPolicy

if TYPE_CHECKING:
    from pikku_storage.workflows.records import Answer, StepState

SUSPEND_RPC = "pikkuWorkflowSuspend"
APPROVAL_RPC = "pikkuWorkflowApproval"
GATE_RPCS = (SUSPEND_RPC, APPROVAL_RPC)

_PREFIXES = {SUSPEND_RPC: "__workflow_suspend:", APPROVAL_RPC: "__workflow_approval:"}
_KEY_PREFIX = "__approval_"


def gate_name(rpc_name: str, reason: object) -> str:
    """The name of the first step with that reason; raises `WorkflowStepNameNotString`."""
    if not isinstance(reason, str):
        raise WorkflowStepNameNotString(f"{reason!r:.80} is no reason of a gate: it must be a text")
    try:
        return _PREFIXES[rpc_name] + str(to_json(reason, root="$reason"))
    except PayloadError as error:
        raise WorkflowStepNameNotString(f"{reason!r:.80} is no reason of a gate: {error.reason}") from None


def shown_name(step_name: str) -> str:
    """A step's name as people read it: of a gate what it asks for; any other as it is."""
    for prefix in _PREFIXES.values():
        if step_name.startswith(prefix) and step_name != prefix:
            return step_name.removeprefix(prefix)
    return step_name


def reason_of(step: StepState) -> str:
    """The reason of a gate."""
    return str(_data(step).get("reason") or "")


def state_key(step_name: str) -> str:
    """Where the run's state shows an approval."""
    return _KEY_PREFIX + step_name.encode().hex()


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """An open approval, as its step records it."""

    reason: str
    policy: ApprovalPolicy
    expires_at: datetime | None
    schema: Json

    @classmethod
    def of(cls, step: StepState) -> Approval:
        """What the step records."""
        data = _data(step)
        expiry = data.get("expiry")
        return cls(
            reason=reason_of(step),
            policy=ApprovalPolicy(approvers=data.get("approvers") or "any", scope=data.get("approverScope")),
            expires_at=None if expiry is None else step.created_at + timedelta(milliseconds=expiry),
            schema=data.get("schema"),
        )

    def is_over(self, at: datetime) -> bool:
        """Whether its time had run out then."""
        return self.expires_at is not None and at >= self.expires_at


def approval_data(reason: str, policy: ApprovalPolicy, expiry: int | None, schema: Json) -> dict[str, Json]:
    """What the step of an approval records. `expiry` is in milliseconds; `schema` is ours."""
    data: dict[str, Json] = {
        "reason": reason,
        "expiry": expiry,
        "approvers": policy.approvers,
        "approverScope": policy.scope,
    }
    return data if schema is None else {**data, "schema": schema}


def published(approval: Approval, trail: list[Answer]) -> dict[str, Json]:
    """What the run's state shows of an approval: `{policy, expiresAt?}`, then `{decision, decidedAt, decidedBy?}`, or
    the `error` that the last decision was refused with."""
    shown: dict[str, Json] = {
        "policy": {"approvers": approval.policy.approvers, "approverScope": approval.policy.scope}
    }
    if approval.expires_at is not None:
        shown["expiresAt"] = approval.expires_at.isoformat()
    last = trail[-1] if trail else None
    if last is None or last.is_expiry:
        return shown
    if last.refusal is not None:
        return {**shown, "error": last.refusal}
    return {**shown, "decision": last.decision, **_decided(last)}


def outcome_of(last: Answer) -> dict[str, Json]:
    """The result of the step whose trail ends with this entry."""
    return {"status": "expired"} if last.is_expiry else {"status": "decided", "data": last.data, **_decided(last)}


def _decided(answer: Answer) -> dict[str, Json]:
    by = {} if answer.decided_by is None else {"decidedBy": answer.decided_by}
    return {**by, "decidedAt": answer.created_at.isoformat()}


def _data(step: StepState) -> dict[str, Any]:
    return step.data if isinstance(step.data, dict) else {}
