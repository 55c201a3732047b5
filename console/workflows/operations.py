"""What an operator may do to a run, when, and with which form."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from django import forms
from django.utils.functional import Promise
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from pikku_storage.workflows.handle import WorkflowRunHandle
from pikku_storage.workflows.service import WorkflowService
from pikku_storage.workflows.statuses import LIVE_RUN_STATUSES, RunStatus

Outcome = WorkflowRunHandle | bool
"""A handle on the run to go on with, or whether anything was changed."""

_LIVE = frozenset(LIVE_RUN_STATUSES)
_ENDED_BADLY = frozenset({RunStatus.FAILED, RunStatus.CANCELLED})


class ReasonForm(forms.Form):
    """Why."""

    reason = forms.CharField(
        label=_("Reason"), max_length=500, required=False, help_text=_("Kept with the run, for whoever asks later.")
    )


class CancelForm(ReasonForm):
    """Why, and whether to undo."""

    reason = forms.CharField(
        label=_("Reason"), max_length=500, help_text=_("Shown on the run's page, and to whoever waits for the run.")
    )
    compensate = forms.BooleanField(
        label=_("Undo first"),
        required=False,
        help_text=_("Each step that was tried and says what undoes it (on_error) is compensated, the newest first."),
    )


class _IndentedJSONField(forms.JSONField):
    """JSON as one reads it."""

    def prepare_value(self, value: Any) -> Any:
        """What the widget shows; what was typed stays as it was typed."""
        return value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)


class InputForm(ReasonForm):
    """Why, and the new run's input."""

    input = _IndentedJSONField(
        label=_("Input"),
        widget=forms.Textarea(attrs={"rows": 8, "spellcheck": "false", "class": "pk-json"}),
        help_text=_("A JSON object: the workflow's arguments."),
    )

    def clean_input(self) -> dict[str, Any] | None:
        """An object, since it becomes keyword arguments; `None` if it is the old one."""
        value = self.cleaned_data["input"]
        if "input" not in self.changed_data:
            return None
        if not isinstance(value, dict):
            raise forms.ValidationError(gettext("The input must be a JSON object."))
        return value


class ForkForm(InputForm):
    """Where from, too."""

    from_step = forms.CharField(widget=forms.HiddenInput)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One thing to be done to a run. `statuses` are those it makes sense for; `many` if it can be done to a list."""

    name: str
    label: str | Promise
    done: str | Promise
    explanation: str | Promise
    impossible: str | Promise
    statuses: frozenset[RunStatus]
    form: type[ReasonForm]
    act: Callable[[WorkflowService, str, Mapping[str, Any], Any], Outcome]
    many: bool = False

    def outcome(self, values: Mapping[str, Any]) -> str:
        """What has become of a run it was done to."""
        return gettext("being undone, then cancelled") if values.get("compensate") else str(self.done)

    def why_not(self, status: str) -> str:
        """Why it cannot be done to a run of that status; empty if it can."""
        return "" if status in self.statuses else str(self.impossible)


def _why(values: Mapping[str, Any], user: Any) -> dict[str, Any]:
    return {"reason": values["reason"] or None, "by": user}


OPERATIONS = {
    operation.name: operation
    for operation in (
        Operation(
            name="cancel",
            label=_("Cancel"),
            done=_("cancelled"),
            explanation=_(
                "Nothing begins after the step that is under way. A cancelled run can be retried, as a new one."
            ),
            impossible=_("It has ended."),
            statuses=_LIVE,
            form=CancelForm,
            act=lambda service, run_id, values, user: service.cancel_workflow(
                run_id, values["reason"], by=user, compensate=values["compensate"]
            ),
            many=True,
        ),
        Operation(
            name="resume",
            label=_("Resume"),
            done=_("resumed"),
            explanation=_("Looks at the run again, now: what it waits for may be there. Sleeps are not shortened."),
            impossible=_("It has ended."),
            statuses=_LIVE,
            form=ReasonForm,
            act=lambda service, run_id, values, user: service.resume_workflow(run_id, **_why(values, user)),
            many=True,
        ),
        Operation(
            name="retry",
            label=_("Retry"),
            done=_("retried"),
            explanation=_(
                "A live run's waiting retries are made now. A failed or cancelled run stays as it is; a new one takes "
                "over what succeeded and goes on where it failed."
            ),
            impossible=_("It is completed."),
            statuses=_LIVE | _ENDED_BADLY,
            form=ReasonForm,
            act=lambda service, run_id, values, user: service.retry_run(run_id, **_why(values, user)),
            many=True,
        ),
        Operation(
            name="rerun",
            label=_("Run again"),
            done=_("started again"),
            explanation=_("Starts the workflow once more from the beginning, as a new run with the same owner."),
            impossible="",
            statuses=frozenset(RunStatus),
            form=InputForm,
            act=lambda service, run_id, values, user: service.rerun_run(run_id, values["input"], **_why(values, user)),
        ),
        Operation(
            name="fork",
            label=_("Fork"),
            done=_("forked"),
            explanation=_(
                "Makes a new run that takes over what was recorded before a step, and goes on from that step. What is "
                "taken over was made with the old input."
            ),
            impossible="",
            statuses=frozenset(RunStatus),
            form=ForkForm,
            act=lambda service, run_id, values, user: service.fork_run(
                run_id, values["from_step"], values["input"], **_why(values, user)
            ),
        ),
    )
}
