"""Answering an approval, from wherever the person is. `gates.py` judges what is entered here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import transaction

from pikku_storage.access.actors import Actor
from pikku_storage.auditing import AuditEvent, record
from pikku_storage.exceptions import (
    WorkflowApprovalForbiddenError,
    WorkflowApprovalInvalidError,
    WorkflowApprovalResolvedError,
    WorkflowRunNotFoundError,
)
from pikku_storage.json import Json, to_json
from pikku_storage.schemas import AnswerInvalidError, loaded_schema
from pikku_storage.workflows.engine.runtime import Runtime
from pikku_storage.workflows.gates import APPROVAL_RPC, Approval, gate_name, reason_of
from pikku_storage.workflows.records import Answer, Run, StepState
from pikku_storage.workflows.statuses import StepStatus, Verdict

DECIDED = "workflow.approval.decided"

_STATUS_OF = {None: "answered", Verdict.ACCEPTED: "decided", Verdict.EXPIRED: "expired"}


def approve(runtime: Runtime, run_id: str, reason: str, decision: Any, actor: Actor) -> None:
    """Enter a decision into the trail of the run's approval, and have the run look at it.

    What can be told now is: an answer by the wrong person, or that does not fit, is refused at once, and of answers
    that race one is entered. The run decides about that one. Every answer is audited.

    Raises `WorkflowRunNotFoundError`, `PayloadError`, `WorkflowApprovalResolvedError`,
    `WorkflowApprovalForbiddenError` and `WorkflowApprovalInvalidError`.
    """
    plain = to_json(decision, root="$decision")
    run = runtime.read_run(run_id)
    if run is None:
        raise WorkflowRunNotFoundError(run_id)
    gate = _gate(runtime, run_id, reason)
    try:
        _enter(runtime, run, reason, gate, plain, actor)
    except (WorkflowApprovalResolvedError, WorkflowApprovalForbiddenError, WorkflowApprovalInvalidError) as error:
        detail = error.detail if isinstance(error, WorkflowApprovalForbiddenError) else str(error)
        audit(run_id, reason, actor, refusal=detail)
        raise
    # A decision that is rolled back was none.
    transaction.on_commit(lambda: audit(run_id, reason, actor), using=runtime.using)
    # If the process ends here, the answer's own due time brings it up.
    runtime.runs.resume(run_id, at=runtime.now())
    runtime.hint(runtime.message(run_id, priority=run.priority))


def _enter(runtime: Runtime, run: Run, reason: str, gate: StepState | None, decision: Json, actor: Actor) -> None:
    at = runtime.now()
    if gate is not None:
        _check(run, gate, decision, actor)
        if Approval.of(gate).is_over(at):
            raise WorkflowApprovalResolvedError(reason, "expired")
    if run.is_terminal:
        raise WorkflowApprovalResolvedError(reason, run.status)
    name = gate_name(APPROVAL_RPC, reason) if gate is None else gate.step_name
    trail = runtime.answers.of_gate(run.id, name)
    _check_open(reason, trail)
    entered = runtime.answers.answer(
        run.id,
        name,
        len(trail),
        decision=decision,
        decided_by=actor.as_json(),
        at=at,
        due_at=runtime.patience_end(at),
    )
    if not entered:
        _check_open(reason, runtime.answers.of_gate(run.id, name))
        # What was faster is refused already.
        raise WorkflowApprovalResolvedError(reason, _STATUS_OF[None])


def _check(run: Run, gate: StepState, decision: Json, actor: Actor) -> None:
    """What is known of an approval that the run has reached."""
    approval = Approval.of(gate)
    if gate.status == StepStatus.SUCCEEDED:
        outcome = gate.result if isinstance(gate.result, Mapping) else {}
        raise WorkflowApprovalResolvedError(approval.reason, str(outcome.get("status") or gate.status))
    refusal = approval.policy.refusal(run.owner_id, actor)
    if refusal is not None:
        raise WorkflowApprovalForbiddenError(approval.reason, refusal)
    schema = loaded_schema(approval.schema)
    if schema is not None:
        try:
            schema.validate(decision)
        except AnswerInvalidError as error:
            raise WorkflowApprovalInvalidError(approval.reason, error.problems) from None


def _check_open(reason: str, trail: list[Answer]) -> None:
    last = trail[-1] if trail else None
    if last is not None and last.verdict != Verdict.REFUSED:
        raise WorkflowApprovalResolvedError(reason, _STATUS_OF[None if last.verdict is None else Verdict(last.verdict)])


def _gate(runtime: Runtime, run_id: str, reason: str) -> StepState | None:
    """The newest approval with that reason that the run has reached, if any."""
    name = gate_name(APPROVAL_RPC, reason)
    # The name comes first, because a repeated one is followed by its number.
    rows = runtime.steps.filter(run_id=run_id, rpc_name=APPROVAL_RPC, step_name__startswith=name)
    steps = [StepState.from_row(row) for row in rows.order_by("created_at", "id").values(*StepState.COLUMNS)]
    return next((step for step in reversed(steps) if reason_of(step) == reason), None)


def audit(run_id: str, reason: str, actor: Actor, *, refusal: str | None = None) -> None:
    """Hand an answer to the audit trail."""
    metadata = {"runId": run_id, "reason": reason, "scopes": list(actor.scopes), "refusal": refusal}
    record(
        AuditEvent(
            type=DECIDED,
            outcome="success" if refusal is None else "denied",
            actor=actor,
            wire_type="workflow",
            metadata=metadata,
        )
    )
