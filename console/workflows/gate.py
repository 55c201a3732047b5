"""The approval at which a run stands: what it asks, who may answer, and what has been answered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.http import QueryDict
from django.utils.functional import cached_property
from django.utils.translation import gettext

from console.formatting import absolute
from console.owners import owner_names
from console.workflows.answer_form import AnswerForm, answer_form
from pikku_storage.access.actors import actor_of
from pikku_storage.workflows.gates import APPROVAL_RPC, Approval
from pikku_storage.workflows.models import WorkflowAnswer, WorkflowStep
from pikku_storage.workflows.records import Answer, StepState
from pikku_storage.workflows.statuses import TERMINAL_RUN_STATUSES, StepStatus


@dataclass(frozen=True)
class Gate:
    """An approval of a run, as somebody sees it who may perhaps answer it."""

    step: StepState
    run_status: str
    owner_id: str | None
    last: Answer | None
    user: Any
    now: datetime
    url: str
    data: QueryDict | None = None

    @cached_property
    def approval(self) -> Approval:
        """What the step records."""
        return Approval.of(self.step)

    @cached_property
    def answer(self) -> AnswerForm:
        """The form, with what was sent."""
        return answer_form(self.approval.schema, self.data)

    @property
    def key(self) -> str:
        """Differs once another form is to be shown."""
        return f"{self.step.step_id}:{-1 if self.last is None else self.last.ordinal}:{self.step.status}"

    @cached_property
    def why_not(self) -> str:
        """Why this person cannot answer now; empty if they can."""
        if self.step.status == StepStatus.SUCCEEDED:
            return self._answered(self.step.result)
        if self.run_status in TERMINAL_RUN_STATUSES:
            return gettext("The run has ended.")
        if self.last is not None and self.last.verdict is None:
            who = self._name(self.last.decided_by)
            when = absolute(self.last.created_at)
            return gettext("%(who)s answered %(when)s; the run is about to look at it.") % {"who": who, "when": when}
        if self.approval.is_over(self.now):
            return gettext("Its time is over.")
        return self.approval.policy.refusal(self.owner_id, actor_of(self.user)) or ""

    @property
    def refused(self) -> list[str]:
        """What was wrong with the last answer, if the run refused it."""
        refusal = self.last.refusal if self.last is not None else None
        return [str(problem.get("message")) for problem in refusal or ()]

    @property
    def who(self) -> str:
        """Who may answer, in words."""
        text = {
            "owner": gettext("Its owner may answer."),
            "not-initiator": gettext("Anybody signed in may answer but who started the run."),
        }.get(self.approval.policy.approvers, gettext("Anybody may answer."))
        scope = self.approval.policy.scope
        if scope is None:
            return text
        needed = gettext("The scope %(scope)s is needed.") % {"scope": scope}
        return f"{text} {needed}"

    def _answered(self, result: Any) -> str:
        outcome = result if isinstance(result, Mapping) else {}
        if outcome.get("status") != "decided":
            return gettext("Nobody answered in time.")
        return gettext("%(who)s has answered it.") % {"who": self._name(outcome.get("decidedBy"))}

    def _name(self, decided_by: Any) -> str:
        who = decided_by.get("userId") if isinstance(decided_by, Mapping) else None
        return owner_names([who]).get(who, who) if isinstance(who, str) else gettext("Somebody")


def read_gate(using: str, run_id: str, step_id: str) -> tuple[StepState, Answer | None] | None:
    """An approval of a run with the last entry of its trail; `None` if it has no such one. Two queries."""
    rows = WorkflowStep.objects.using(using).filter(pk=step_id, run_id=run_id, rpc_name=APPROVAL_RPC)
    row = rows.values(*StepState.COLUMNS).first()
    if row is None:
        return None
    step = StepState.from_row(row)
    trail = WorkflowAnswer.objects.using(using).filter(run_id=run_id, step_name=step.step_name)
    last = trail.order_by("-ordinal").values(*Answer.COLUMNS).first()
    return step, None if last is None else Answer(**last)
