"""Gates from inside a pass: they are opened, judged and left here. `answers.py` is the other side, and `open_gates.py`
what befalls a gate that a run stands at.

Only a pass settles a gate, and of an approval only by its trail: whoever wins the trail's next place (an answer, or the
expiry) has decided, on every database. So what a worker that lost its pass still does here changes nothing.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime
from typing import NoReturn

from pikku_storage.access.actors import Actor
from pikku_storage.durations import Duration, to_milliseconds
from pikku_storage.exceptions import WorkflowInputError
from pikku_storage.json import Json
from pikku_storage.schemas import AnswerInvalidError, Problem, Schema, SchemaSource, schema_of
from pikku_storage.workflows.engine.answers import audit
from pikku_storage.workflows.engine.replay import GateLeft, Replay
from pikku_storage.workflows.errors import WORKFLOW_SUSPENDED
from pikku_storage.workflows.gates import (
    APPROVAL_RPC,
    SUSPEND_RPC,
    Approval,
    approval_data,
    gate_name,
    outcome_of,
    published,
    reason_of,
    state_key,
)
from pikku_storage.workflows.policies import ApprovalPolicy
from pikku_storage.workflows.records import Answer, ApprovalOutcome, StepState
from pikku_storage.workflows.statuses import StepStatus, Verdict

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Question:
    """What a body asks: who may answer, until when, and in which form."""

    reason: str
    policy: ApprovalPolicy
    expiry: int | None
    schema: Schema[object] | None

    @classmethod
    def of(
        cls,
        reason: str,
        schema: SchemaSource | None,
        expiry: Duration | None,
        approvers: str,
        approver_scope: str | None,
    ) -> Question:
        """Checks what the body says; raises `WorkflowInputError`."""
        try:
            policy = ApprovalPolicy(approvers=approvers, scope=approver_scope)
            milliseconds = None if expiry is None else to_milliseconds(expiry)
            found = None if schema is None else schema_of(schema)
        except ValueError as error:
            raise WorkflowInputError(f"The approval {reason!r}: {error}") from None
        return cls(reason, policy, milliseconds, found)

    def problems(self, run_owner: str | None, answer: Answer) -> tuple[Json, list[Problem]]:
        """What the workflow is given for this answer; with problems, it is refused."""
        refusal = self.policy.refusal(run_owner, Actor.from_json(answer.decided_by))
        if refusal is not None:
            return None, [{"message": refusal}]
        if self.schema is None:
            return answer.decision, []
        try:
            return self.schema.validate(answer.decision), []
        except AnswerInvalidError as error:
            return None, error.problems


def suspend(replay: Replay, reason: str) -> None:
    """Stop the run here until it is resumed."""
    name = replay.next_name(gate_name(SUSPEND_RPC, reason))
    with replay.inside():
        step = replay.gate(name, SUSPEND_RPC, {"reason": reason})
        if step.status != StepStatus.SUCCEEDED:
            _leave(replay, step)


def approval(replay: Replay, question: Question) -> ApprovalOutcome:
    """The outcome of an approval; leaves the body while there is none."""
    name = replay.next_name(gate_name(APPROVAL_RPC, question.reason))
    with replay.inside():
        schema = None if question.schema is None else question.schema.name
        data = approval_data(question.reason, question.policy, question.expiry, schema)
        step = replay.gate(name, APPROVAL_RPC, data)
        if step.status != StepStatus.SUCCEEDED:
            step = _judged(replay, step, question)
        return ApprovalOutcome.from_result(step.result)


def _judged(replay: Replay, step: StepState, question: Question) -> StepState:
    """The approval, settled; leaves the body if it cannot be."""
    recorded = Approval.of(step)
    trail = _trail(replay, step, question, recorded)
    shown = published(recorded, trail)
    if replay.stored_state.get(state_key(step.step_name)) != shown:
        replay.state_writes[state_key(step.step_name)] = shown
        replay.flush_state()
    if not trail or not trail[-1].is_outcome:
        _leave(replay, step, until=recorded.expires_at)
    return replay.settle_gate(step, outcome_of(trail[-1]))


def _trail(replay: Replay, step: StepState, question: Question, recorded: Approval) -> list[Answer]:
    """The approval's trail once everything in it is judged, and its end entered if its time has run out.

    When it was open is what counts, not when it is judged: an answer that was entered before the end wins.
    """
    runtime, answers = replay.runtime, replay.runtime.answers
    while True:
        trail = answers.of_gate(step.run_id, step.step_name)
        last = trail[-1] if trail else None
        if last is not None and last.is_outcome:
            return trail
        if last is not None and last.verdict is None:
            _judge(replay, last, question)
        elif recorded.is_over(at := runtime.now()):
            answers.expire(step.run_id, step.step_name, len(trail), at=at)
        else:
            return trail


def _judge(replay: Replay, answer: Answer, question: Question) -> None:
    data, problems = question.problems(replay.run.owner_id, answer)
    verdict = Verdict.REFUSED if problems else Verdict.ACCEPTED
    won = replay.runtime.answers.judge(answer.id, verdict, at=replay.runtime.now(), data=data, refusal=problems or None)
    if won and problems:
        texts = "; ".join(str(problem["message"]) for problem in problems)
        logger.info("An answer to the approval %r of run %s is refused: %s", question.reason, replay.run.id, texts)
        audit(replay.run.id, question.reason, Actor.from_json(answer.decided_by), refusal=texts)


def _leave(replay: Replay, step: StepState, until: datetime | None = None) -> NoReturn:
    replay.gate_left, replay.wait_until = GateLeft(step, until), until
    replay.suspend(WORKFLOW_SUSPENDED, reason_of(step) or "Workflow suspended")
