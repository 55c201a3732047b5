"""Approving and denying: the page of an approval of a run."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path
from django.utils import timezone
from django.utils.translation import gettext, gettext_lazy
from django.views.decorators.http import require_http_methods

from console.formatting import short_id
from console.workflows.admin.operations import OperatedRunAdmin
from console.workflows.gate import Gate, read_gate
from console.workflows.runurls import RunUrls
from pikku_storage.exceptions import (
    PikkuError,
    WorkflowApprovalInvalidError,
    WorkflowApprovalResolvedError,
)
from pikku_storage.workflows.models import WorkflowRun
from pikku_storage.workflows.service import WorkflowService

_FASTER = gettext_lazy("Your answer to “%(reason)s” was not taken: somebody else was faster.")
_ENDED = gettext_lazy("Your answer to “%(reason)s” was not taken: the run has ended.")
_TOO_LATE = {
    "answered": _FASTER,
    "decided": _FASTER,
    "expired": gettext_lazy("Your answer to “%(reason)s” was not taken: its time is over."),
}


class AnsweredRunAdmin(OperatedRunAdmin):
    """Runs whose approvals may be answered, by whoever manages workflows and is one of those who are asked."""

    def object_urls(self, name: str) -> list[URLPattern]:
        """The page of an approval."""
        view = require_http_methods(["GET", "HEAD", "POST"])(self.answer_view)
        return [
            *super().object_urls(name),
            path("<str:object_id>/answer/<str:step_id>/", self.admin_site.admin_view(view), name=f"{name}_answer"),
        ]

    def answer_view(self, request: HttpRequest, object_id: str, step_id: str) -> HttpResponse:
        """Ask, enter the answer, and go on to the run. What does not fit is said beside its field."""
        rows = self.visible_rows(request)
        run = rows.filter(pk=unquote(object_id)).first()
        found = None if run is None else read_gate(rows.db, run.pk, unquote(step_id))
        if run is None or found is None:
            raise self.not_found()
        if not self.has_operate_permission(request):
            raise PermissionDenied
        urls = RunUrls(run.pk, self.admin_site.name)
        gate = Gate(
            step=found[0],
            last=found[1],
            run_status=run.status,
            owner_id=run.owner_id,
            user=request.user,
            now=timezone.now(),
            url=urls.answer(found[0].step_id),
            data=request.POST if request.method == "POST" else None,
        )
        # Also who may not answer is told so by the service, which audits it.
        if (
            request.method == "POST"
            and gate.answer.is_valid()
            and self._answered(request, run, gate, WorkflowService(using=rows.db))
        ):
            return HttpResponseRedirect(urls.page)
        context = {
            "gate": gate,
            "run": run,
            "run_url": urls.page,
            "title": gettext("Answer %(reason)s") % {"reason": gate.approval.reason},
        }
        return self.render(request, "workflows/answer.html", context)

    def _answered(self, request: HttpRequest, run: WorkflowRun, gate: Gate, service: WorkflowService) -> bool:
        """Whether there is nothing more to be said in the form."""
        reason = gate.approval.reason
        try:
            service.approve_step(run.pk, reason, gate.answer.decision, by=request.user)
        except WorkflowApprovalInvalidError as error:
            gate.answer.refuse(error.problems)
            return False
        except WorkflowApprovalResolvedError as error:
            messages.warning(request, _TOO_LATE.get(error.status, _ENDED) % {"reason": reason})
            return True
        except PikkuError as error:
            gate.answer.refuse([{"message": str(error), "path": []}])
            return False
        self.log_change(request, run, f"answer: {reason}")
        text = gettext("Run %(id)s: your answer to “%(reason)s” is taken.")
        messages.success(request, text % {"id": short_id(run.pk), "reason": reason})
        return True
