"""Approvals: what waits for the caller's answer, of agents and of workflows, and the page that takes an answer."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Literal, cast

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db import router
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils import timezone
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from console.agents import reads
from console.agents.addresses import ThreadUrls, approvals_url
from console.agents.admin.owned import OwnedRowAdmin
from console.agents.conversation import Allowance
from console.agents.inbox import key_of, read_page
from console.agents.resources import name_of, resource_names
from console.agents.threadpage import pending_view
from console.agents.visibility import answerable
from console.formatting import ago, short_id
from console.gate import AGENTS, WORKFLOWS, has_model_permission
from console.templatetags.pikku_console import state_label
from pikku_storage.access.actors import Actor, actor_of
from pikku_storage.agents.access import AgentAccess
from pikku_storage.agents.models import AgentApproval
from pikku_storage.agents.records import Approval
from pikku_storage.agents.service import AgentStorageService
from pikku_storage.agents.statuses import ApprovalStatus
from pikku_storage.db import engine
from pikku_storage.workflows.models import WorkflowRun

_SOON = timedelta(hours=1)
_DONE = {ApprovalStatus.APPROVED.value: _("Approved: %(tool)s."), ApprovalStatus.DENIED.value: _("Denied: %(tool)s.")}


class AnswerForm(forms.Form):
    """What is decided, and why."""

    decision = forms.ChoiceField(
        choices=[(ApprovalStatus.APPROVED, _("Approve")), (ApprovalStatus.DENIED, _("Deny"))], widget=forms.HiddenInput
    )
    reason = forms.CharField(
        label=_("Reason"), max_length=500, required=False, help_text=_("Kept with the approval; the agent can read it.")
    )


@admin.register(AgentApproval)
class ApprovalAdmin(OwnedRowAdmin):
    """What waits for the caller's answer."""

    owner_column = "thread__resource_id"

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Tool calls that somebody was asked about."""
        return super().get_queryset(request).filter(approval_status__isnull=False)

    # -- the list ----------------------------------------------------------------------------------------------------

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """All that waits for the caller's answer, the oldest first."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        may_change = has_model_permission(request, "change", self.opts)
        page = read_page(
            agents=self.get_queryset(request).db,
            workflows=router.db_for_read(WorkflowRun),
            ownership=answerable(request),
            gatekeeper=_gatekeeper(request),
            after=key_of(request.GET.get("after", "")),
            site=self.admin_site.name,
        )
        now = timezone.now()
        context = {
            "page": page,
            "title": gettext("Approvals"),
            "now": now,
            "soon": now + _SOON,
            "is_first_page": not request.GET.get("after"),
            "may_change": may_change,
            "sees_all": AGENTS.may(request, "manage"),
            "sees_gates": _gatekeeper(request) is not None,
            "first_url": approvals_url(self.admin_site.name),
            "next_url": approvals_url(self.admin_site.name, after=page.next_place) if page.next_place else "",
        }
        return self.render(request, "agents/approvals.html", context)

    # -- one approval ------------------------------------------------------------------------------------------------

    def row_page(self, request: HttpRequest, row_id: str) -> HttpResponse:
        """Show what is asked for, take the answer, and go on to the thread, or to what else waits."""
        rows = self.visible_rows(request)
        found = self._read(rows, row_id)
        if found is None:
            raise self.not_found()
        approval, thread = found
        may_answer = self._may_answer(request, thread)
        form = AnswerForm(request.POST if request.method == "POST" else None)
        if request.method == "POST":
            if not may_answer:
                raise PermissionDenied
            if form.is_valid():
                return self._answer(request, rows, approval, thread, form.cleaned_data)
        names = resource_names([thread["thread__resource_id"], approval.resolved_by])
        context = {
            "approval": approval,
            "view": pending_view(approval, site=self.admin_site.name, allowance=Allowance()),
            "thread": thread,
            "urls": ThreadUrls(thread["thread_id"], self.admin_site.name),
            "owner": name_of(thread["thread__resource_id"], names),
            "resolved_by": name_of(approval.resolved_by, names),
            "may_answer": may_answer,
            "scope": AGENTS.named("manage"),
            "form": form,
            "back": request.GET.get("back", ""),
            "now": timezone.now(),
            "title": gettext("Approval · %(tool)s") % {"tool": approval.display_tool_name or approval.tool_name},
        }
        return self.render(request, "agents/approval.html", context)

    def _read(self, rows: QuerySet[Any], call_id: str) -> tuple[Approval, dict[str, Any]] | None:
        row = rows.filter(pk=call_id).values(*Approval.COLUMNS).first()
        thread = None if row is None else reads.read_approval_threads(rows.db, [call_id]).get(call_id)
        if row is None or thread is None:
            return None
        return Approval.from_row(row, engine(rows.db).now()), thread

    def _may_answer(self, request: HttpRequest, thread: dict[str, Any]) -> bool:
        covers = answerable(request).covers(thread["thread__resource_id"])
        return covers and has_model_permission(request, "change", self.opts)

    def _answer(
        self,
        request: HttpRequest,
        rows: QuerySet[Any],
        approval: Approval,
        thread: dict[str, Any],
        answer: dict[str, Any],
    ) -> HttpResponse:
        decision = cast("Literal['approved', 'denied']", answer["decision"])
        reason = answer["reason"] or None
        call_id = approval.tool_call_id
        if AGENTS.may(request, "manage"):
            service = AgentStorageService(rows.db)
            is_decided = service.resolve_approval(call_id, decision, by=request.user, reason=reason)
        else:
            access = AgentAccess(request.user, using=rows.db)
            is_decided = access.resolve_approval(call_id, decision, reason=reason)
        name = approval.display_tool_name or approval.tool_name or short_id(call_id)
        if is_decided:
            row = AgentApproval(id=call_id, tool_name=approval.tool_name or "")
            self.log_change(request, row, f"{decision}: {reason}" if reason else decision)
            messages.success(request, str(_DONE[decision]) % {"tool": name})
        else:
            messages.warning(request, self._who_was_faster(rows, call_id, name))
        if request.POST.get("back") == "inbox":
            return HttpResponseRedirect(approvals_url(self.admin_site.name))
        return HttpResponseRedirect(ThreadUrls(thread["thread_id"], self.admin_site.name).page)

    def _who_was_faster(self, rows: QuerySet[Any], call_id: str, name: str) -> str:
        found = self._read(rows, call_id)
        if found is None or found[0].status == ApprovalStatus.PENDING:
            return gettext("Too late: nobody asks about %(tool)s any more.") % {"tool": name}
        decided, _thread = found
        if decided.status == ApprovalStatus.EXPIRED or decided.resolved_at is None:
            return gettext("Too late: the time to answer about %(tool)s is over.") % {"tool": name}
        by = decided.resolved_by or ""
        return gettext("Too late: %(who)s was faster. %(tool)s is %(status)s, %(ago)s.") % {
            "tool": name,
            "who": resource_names([by]).get(by) or gettext("somebody"),
            "status": state_label(decided.status),
            "ago": ago(decided.resolved_at, timezone.now()),
        }


def _gatekeeper(request: HttpRequest) -> Actor | None:
    """Whoever may answer gates of workflows in the console, as whom they do it."""
    may = WORKFLOWS.may(request, "manage") and has_model_permission(request, "change", WorkflowRun._meta)
    return actor_of(request.user) if may else None
