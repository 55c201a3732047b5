"""Cancel, resume, retry, run again and fork: a page each for one run, and actions of the list for many."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext, ngettext

from console.formatting import short_id
from console.gate import WORKFLOWS
from console.operations import OperatedRowAdmin, action_of, log_text
from console.workflows.operations import OPERATIONS, Operation, ReasonForm
from console.workflows.runurls import RunUrls
from pikku_storage.exceptions import PikkuError, StepNotFoundError
from pikku_storage.workflows.bulk import in_bulk
from pikku_storage.workflows.handle import WorkflowRunHandle
from pikku_storage.workflows.models import WorkflowRun
from pikku_storage.workflows.service import WorkflowService

STEPS_OFFERED = 500


class OperatedRunAdmin(OperatedRowAdmin):
    """Runs that may be operated on, by whoever manages workflows. What they did is in the admin's log."""

    area = WORKFLOWS
    actions = [action_of(operation) for operation in OPERATIONS.values() if operation.many]

    # -- one run -----------------------------------------------------------------------------------------------------

    def operation_view(self, request: HttpRequest, object_id: str, operation: str) -> HttpResponse:
        """Ask why, show what it will do, do it, and go on to the run."""
        rows = self.visible_rows(request)
        run = rows.filter(pk=unquote(object_id)).first()
        if run is None or operation not in OPERATIONS:
            raise self.not_found()
        if not self.has_operate_permission(request):
            raise PermissionDenied
        chosen = OPERATIONS[operation]
        service = WorkflowService(using=rows.db)
        form, problem = self._form(request, run, chosen), chosen.why_not(run.status)
        if request.method == "POST" and not problem and form.is_valid():
            try:
                outcome = chosen.act(service, run.pk, form.cleaned_data, request.user)
                return self._go_on(request, run, chosen, form.cleaned_data, outcome)
            except PikkuError as error:
                form.add_error(None, str(error))
        context = {
            "row": run,
            "operation": chosen,
            "form": form,
            "problem": problem,
            "row_url": RunUrls(run.pk, self.admin_site.name).page,
            "title": f"{chosen.label} · {run.workflow} · {short_id(run.pk)}",
            **(self._fork_context(request, run, service) if chosen.name == "fork" else {}),
        }
        return self.render(request, "workflows/operation.html", context)

    def _form(self, request: HttpRequest, run: WorkflowRun, operation: Operation) -> ReasonForm:
        initial = {"input": run.input or {}, "from_step": request.GET.get("from_step", "")}
        return operation.form(request.POST if request.method == "POST" else None, initial=initial)

    def _fork_context(self, request: HttpRequest, run: WorkflowRun, service: WorkflowService) -> dict[str, Any]:
        """The steps to choose from, and what the chosen one would mean."""
        given = request.POST if request.method == "POST" else request.GET
        from_step = given.get("from_step", "")
        names = list(run.steps.order_by("created_at", "id").values_list("step_name", flat=True)[:STEPS_OFFERED])
        context: dict[str, Any] = {"steps": names, "from_step": from_step, "preview": None, "is_undecided": True}
        if from_step:
            try:
                context |= {"preview": service.preview_fork(run.pk, from_step), "is_undecided": False}
            except StepNotFoundError:
                context["preview_error"] = gettext("The run has no step of that name.")
            except PikkuError as error:
                context["preview_error"] = str(error)
        return context

    def _go_on(
        self, request: HttpRequest, run: WorkflowRun, operation: Operation, values: dict[str, Any], outcome: Any
    ) -> HttpResponse:
        if outcome is False:
            text = gettext("Run %(id)s was not changed: it is under way already, or somebody else was faster.")
            messages.warning(request, text % {"id": short_id(run.pk)})
            return HttpResponseRedirect(RunUrls(run.pk, self.admin_site.name).page)
        self.log_change(request, run, log_text(operation.name, request))
        text = gettext("Run %(id)s: %(done)s.") % {"id": short_id(run.pk), "done": operation.outcome(values)}
        messages.success(request, text)
        target = outcome.id if isinstance(outcome, WorkflowRunHandle) else run.pk
        return HttpResponseRedirect(RunUrls(target, self.admin_site.name).page)

    # -- many runs ---------------------------------------------------------------------------------------------------

    def operate_on_many(self, request: HttpRequest, rows: QuerySet[WorkflowRun], operation: Any) -> HttpResponse | None:
        """Ask once more, then do it to each; say what was done and what was left."""
        is_confirmed = "confirmed" in request.POST
        form = operation.form(request.POST if is_confirmed else None)
        if not is_confirmed or not form.is_valid():
            chosen = list(rows.order_by("-created_at", "-id"))
            possible = [row for row in chosen if not operation.why_not(row.status)]
            title = gettext("%(operation)s several runs") % {"operation": operation.label}
            context = self.question_about_many(operation, form, chosen, possible)
            return self.render(request, "workflows/operation_on_many.html", {**context, "title": title})
        service = WorkflowService(using=rows.db)
        by_id = {row.pk: row for row in rows}
        possible_ids = [pk for pk, row in by_id.items() if not operation.why_not(row.status)]
        report = in_bulk(
            lambda pk: _changed(operation.act(service, pk, form.cleaned_data, request.user), pk), possible_ids
        )
        for pk in report.done:
            self.log_change(request, by_id[pk], log_text(operation.name, request))
        self._report(
            request,
            operation.outcome(form.cleaned_data),
            len(report.done),
            len(by_id) - len(report.done) - len(report.failed),
        )
        for pk, reason in report.failed.items():
            messages.error(request, f"{short_id(pk)}: {reason}")
        return None

    def _report(self, request: HttpRequest, outcome: str, done: int, left: int) -> None:
        if done:
            text = ngettext("%(n)d run: %(done)s.", "%(n)d runs: %(done)s.", done)
            messages.success(request, text % {"n": done, "done": outcome})
        if left:
            text = ngettext("%(n)d run was left as it is.", "%(n)d runs were left as they are.", left)
            messages.warning(request, text % {"n": left})


def _changed(outcome: Any, run_id: str) -> bool:
    if isinstance(outcome, WorkflowRunHandle):
        return outcome.created or outcome.id == run_id
    return bool(outcome)
