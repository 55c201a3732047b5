"""Controls: which workflows are paused, and the limits that operators have set."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString
from django.utils.timezone import now
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

from console.base import EmptyState, OperatorRowAdmin
from console.formatting import ago
from console.gate import WORKFLOWS
from console.keyset import KeysetChangeList
from console.moments import moment, since
from console.owners import owner_names
from console.templatetags.pikku_console import pill
from console.workflows.control_form import ControlForm
from pikku_storage.workflows.models import WorkflowControl
from pikku_storage.workflows.service import WorkflowService

_LIMITS = ("concurrency", "concurrency_per_key", "rate_limit")
_NOTHING = "—"


@admin.register(WorkflowControl)
class ControlAdmin(OperatorRowAdmin):
    """What operators have set for whole workflows. There is no row of a workflow for which nothing was ever set."""

    area = WORKFLOWS
    keyset = ("workflow", "workflow")
    list_display = ("workflow", "state_pill", "reason", "concurrency", "concurrency_per_key", "rate_limit", "changed")
    list_display_links = ("workflow",)
    actions = ("pause", "unpause")
    form = ControlForm
    fieldsets = (
        (None, {"fields": ("workflow", "is_paused", "paused_reason")}),
        (
            _("Limits"),
            {"fields": _LIMITS, "description": _("An empty one is as the code says. They hold within a second.")},
        ),
    )

    # -- the list ----------------------------------------------------------------------------------------------------

    def prepare_page(self, request: HttpRequest, rows: list[WorkflowControl]) -> None:
        """The names of all who paused one: one query."""
        names = owner_names(row.paused_by for row in rows)
        for row in rows:
            row.__dict__["console_paused_by"] = names.get(row.paused_by or "", row.paused_by or "")

    def empty_state(self, changes: KeysetChangeList) -> EmptyState:
        """Says what this is for."""
        if changes.is_first_page:
            text = gettext("Add a workflow here to pause it, or to change its limits without a restart.")
            return EmptyState(gettext("Every workflow goes by its code."), text)
        return super().empty_state(changes)

    @admin.display(description=_("state"))
    def state_pill(self, control: WorkflowControl) -> SafeString:
        """Whether its runs go on."""
        return pill("active" if control.paused_at is None else "paused")

    @admin.display(description=_("why"), empty_value=_NOTHING)
    def reason(self, control: WorkflowControl) -> SafeString | None:
        """Why it is paused, by whom and since when."""
        if control.paused_at is None:
            return None
        who = control.__dict__["console_paused_by"]
        since = ago(control.paused_at, now())
        text = " · ".join(filter(None, [control.paused_reason, who, since]))
        return moment(control.paused_at, text)

    @admin.display(description=_("changed"))
    def changed(self, control: WorkflowControl) -> SafeString:
        """How long ago; the time on hover."""
        return since(control.updated_at)

    # -- the form ----------------------------------------------------------------------------------------------------

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        """The workflow is what the row is about."""
        return () if obj is None else ("workflow",)

    def save_model(self, request: HttpRequest, obj: WorkflowControl, form: Any, change: bool) -> None:
        """Through the service."""
        values, service = form.cleaned_data, WorkflowService()
        limits = {name: values[name] for name in _LIMITS if not change or name in form.changed_data}
        if limits or not change:
            service.set_limits(obj.workflow, **limits, by=request.user)
        if not values["is_paused"]:
            service.unpause_workflow(obj.workflow, by=request.user)
            return
        if obj.paused_at is not None and "paused_reason" in form.changed_data:
            # A pause for another reason is another pause.
            service.unpause_workflow(obj.workflow, by=request.user)
        service.pause_workflow(obj.workflow, reason=values["paused_reason"], by=request.user)

    # -- actions -----------------------------------------------------------------------------------------------------

    @admin.action(description=_("Pause"), permissions=["change"])
    def pause(self, request: HttpRequest, queryset: QuerySet[WorkflowControl]) -> None:
        """Let no run of the chosen workflows go on."""
        service = WorkflowService()
        done = [each for each in queryset if service.pause_workflow(each.workflow, by=request.user)]
        text = ngettext("%(n)d workflow was paused.", "%(n)d workflows were paused.", len(done))
        self._tell(request, done, text)

    @admin.action(description=_("Let go on"), permissions=["change"])
    def unpause(self, request: HttpRequest, queryset: QuerySet[WorkflowControl]) -> None:
        """Let the runs of the chosen workflows go on."""
        service = WorkflowService()
        done = [each for each in queryset if service.unpause_workflow(each.workflow, by=request.user)]
        text = ngettext("%(n)d workflow goes on.", "%(n)d workflows go on.", len(done))
        self._tell(request, done, text)

    def _tell(self, request: HttpRequest, done: list[WorkflowControl], text: str) -> None:
        for control in done:
            self.log_change(request, control, [{"changed": {"fields": ["paused"]}}])
        self.message_user(request, text % {"n": len(done)}, messages.SUCCESS if done else messages.WARNING)
