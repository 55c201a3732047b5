"""Steps and attempts: lists within a run, and the steps of all runs for which something is due."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import urlencode

from django.contrib import admin
from django.contrib.admin import ModelAdmin
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from console.base import EmptyState, EngineRowAdmin
from console.filters import HIDDEN, MENU
from console.formatting import ago, duration, short_id
from console.gate import WORKFLOWS, has_model_permission
from console.keyset import KeysetChangeList
from console.moments import moment, since
from console.templatetags.pikku_console import pill
from console.workflows.panel import load_panel
from console.workflows.runurls import RunUrls
from console.workflows.states import state_of
from pikku_storage.workflows.gates import GATE_RPCS, shown_name
from pikku_storage.workflows.models import WorkflowRun, WorkflowStep, WorkflowStepHistory
from pikku_storage.workflows.reads import step_ids_of
from pikku_storage.workflows.statuses import StepStatus


class OfRunFilter(admin.SimpleListFilter):
    """One run's rows. It is set by links and by the search, so it is not shown."""

    title = _("run")
    parameter_name = "run"
    template = HIDDEN

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin[Any]) -> Iterable[tuple[str, Any]]:
        """One choice, so that the filter is applied also where no run is chosen."""
        return [("", _("any"))]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """That run's rows; without a run, what `without_run` leaves."""
        if self.value():
            return self.of_run(queryset, self.value() or "")
        # A search says by itself which rows it means.
        return queryset if request.GET.get("q") else self.without_run(queryset)

    def of_run(self, queryset: QuerySet[Any], run_id: str) -> QuerySet[Any]:
        """Its rows."""
        return queryset.filter(run_id=run_id)

    def without_run(self, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Steps for which something is due: those have an index of their own."""
        return queryset.filter(due_at__isnull=False)


class AttemptsOfRunFilter(OfRunFilter):
    """Attempts have an index within their step only."""

    def of_run(self, queryset: QuerySet[Any], run_id: str) -> QuerySet[Any]:
        """Those of its steps."""
        return queryset.filter(step_id__in=step_ids_of(queryset.db, [run_id]))

    def without_run(self, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Nothing."""
        return queryset.none()


class StepStatusFilter(admin.SimpleListFilter):
    """By status, within a run: only there it has an index."""

    title = _("status")
    parameter_name = "status"
    template = MENU

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin[Any]) -> Iterable[tuple[str, Any]]:
        """Every status, once a run is chosen."""
        return StepStatus.choices if request.GET.get("run") else []

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Rows of that status."""
        value = self.value()
        return queryset.filter(status=value) if value in StepStatus.values else queryset


class StepPages(EngineRowAdmin):
    """What the lists of steps and of attempts share: a row's page is the panel of its step."""

    area = WORKFLOWS
    search_fields = ("id",)

    def step_page(self, request: HttpRequest, step_id: str | None) -> HttpResponse:
        """The panel of a step as a page of its own."""
        using = self.visible_rows(request).db
        now = timezone.now()
        panel = None if step_id is None else load_panel(using, step_id, runs=None, now=now, site=self.admin_site.name)
        if panel is None:
            raise self.not_found()
        sees_run = has_model_permission(request, "view", WorkflowRun._meta)
        context = {
            "panel": panel,
            "title": shown_name(panel.row.step_name),
            "run_url": RunUrls(panel.step.run_id, self.admin_site.name).page if sees_run else "",
        }
        return self.render(request, "workflows/step.html", context)


@admin.register(WorkflowStep)
class StepAdmin(StepPages):
    """The steps of a run; without one, the steps of all runs for which something is due, the most overdue first."""

    cheap_columns = (
        "id",
        "step_name",
        "rpc_name",
        "status",
        "run_id",
        "current_attempt",
        "max_attempts",
        "claimed_by",
        "queue",
        "due_at",
        "created_at",
        "updated_at",
    )
    list_display = ("step_name", "status_pill", "function", "run_link", "attempt", "due", "worker", "created")
    list_filter = (OfRunFilter, StepStatusFilter)
    search_help_text = _("A whole run id or step id.")

    def get_keyset(self, request: HttpRequest) -> tuple[str, str]:
        """Oldest first within a run, most overdue first over all runs."""
        return ("created_at", "id") if request.GET.get("run") or request.GET.get("q") else ("due_at", "id")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[WorkflowStep], search_term: str
    ) -> tuple[QuerySet[WorkflowStep], bool]:
        """The steps of a run, or one step."""
        term = search_term.strip()
        return (queryset.filter(Q(run_id=term) | Q(pk=term)) if term else queryset), False

    def list_context(self, request: HttpRequest, changes: KeysetChangeList) -> dict[str, Any]:
        """Says which steps these are."""
        run_id = request.GET.get("run")
        note = (
            gettext("The steps of run %(run)s, the oldest first.") % {"run": run_id}
            if run_id
            else gettext(
                "Steps of all runs that are queued, running, sleeping or due for another attempt, the most overdue "
                "first. All steps of one run are on its page, or found here by its id."
            )
        )
        return {**super().list_context(request, changes), "list_note": "" if changes.query else note}

    def empty_state(self, changes: KeysetChangeList) -> EmptyState:
        """Nothing due is good news."""
        if changes.is_first_page and not (changes.query or changes.has_active_filters):
            return EmptyState(
                gettext("Nothing is due."),
                gettext("No run has a step that is queued, running, sleeping or waits for another attempt."),
            )
        return super().empty_state(changes)

    def row_page(self, request: HttpRequest, row_id: str) -> HttpResponse:
        """The step's panel."""
        return self.step_page(request, row_id)

    @admin.display(description=_("status"))
    def status_pill(self, step: WorkflowStep) -> SafeString:
        """What it is doing: a failed step that is due again is waiting, and so is a sleep."""
        is_sleep = step.rpc_name is None and step.status == StepStatus.SCHEDULED
        return pill(
            state_of(step.status, is_wait=is_sleep or step.rpc_name in GATE_RPCS, retry_is_due=step.due_at is not None)
        )

    @admin.display(description=_("function"), empty_value="—")
    def function(self, step: WorkflowStep) -> SafeString | None:
        """The function's name; a sleep and a plain callable have none."""
        return None if step.rpc_name is None else format_html("<code>{}</code>", step.rpc_name)

    @admin.display(description=_("run"))
    def run_link(self, step: WorkflowStep) -> SafeString:
        """The run's page."""
        return _run_link(step.run_id, step.pk, self.admin_site.name)

    @admin.display(description=_("attempt"))
    def attempt(self, step: WorkflowStep) -> str:
        """Which one it is, of how many."""
        return f"{step.current_attempt or 1}/{step.max_attempts or '∞'}"

    @admin.display(description=_("due"), empty_value="—")
    def due(self, step: WorkflowStep) -> SafeString | None:
        """When somebody must look again."""
        if step.due_at is None:
            return None
        now = timezone.now()
        left = step.due_at - now
        text = gettext("in %(left)s") % {"left": duration(left)} if step.due_at > now else ago(step.due_at, now)
        return moment(step.due_at, text)

    @admin.display(description=_("worker"), empty_value="—")
    def worker(self, step: WorkflowStep) -> str | None:
        """The worker that had it last."""
        return step.claimed_by or None

    @admin.display(description=_("created"))
    def created(self, step: WorkflowStep) -> SafeString:
        """When it was made."""
        return since(step.created_at)


@admin.register(WorkflowStepHistory)
class AttemptAdmin(StepPages):
    """The attempts of a run, the oldest first."""

    keyset = ("created_at", "id")
    cheap_columns = (
        "id",
        "status",
        "attempt",
        "created_at",
        "running_at",
        "succeeded_at",
        "failed_at",
        "worker",
        "step_id",
        "step__step_name",
        "step__run_id",
    )
    list_display = ("step_name", "number", "status_pill", "started", "took", "worker_name", "run_link")
    list_filter = (AttemptsOfRunFilter, StepStatusFilter)
    list_select_related = ("step",)
    search_help_text = _("A whole run id or step id.")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[WorkflowStepHistory], search_term: str
    ) -> tuple[QuerySet[WorkflowStepHistory], bool]:
        """The attempts of a run or of a step."""
        term = search_term.strip()
        if not term:
            return queryset, False
        return queryset.filter(Q(step_id__in=step_ids_of(queryset.db, [term])) | Q(step_id=term)), False

    def empty_state(self, changes: KeysetChangeList) -> EmptyState:
        """Says that a run has to be chosen."""
        if not (changes.query or changes.filter_params.get("run")):
            return EmptyState(
                gettext("Choose a run."),
                gettext("Attempts are listed for one run at a time: search for its id, or open the run's page."),
            )
        return super().empty_state(changes)

    def row_page(self, request: HttpRequest, row_id: str) -> HttpResponse:
        """The panel of the attempt's step."""
        return self.step_page(
            request, self.visible_rows(request).filter(pk=row_id).values_list("step_id", flat=True).first()
        )

    @admin.display(description=_("step"))
    def step_name(self, attempt: WorkflowStepHistory) -> str:
        """The step's name."""
        return str(attempt.step.step_name)

    @admin.display(description=_("attempt"))
    def number(self, attempt: WorkflowStepHistory) -> int:
        """Which attempt it was."""
        return attempt.attempt or 1

    @admin.display(description=_("status"))
    def status_pill(self, attempt: WorkflowStepHistory) -> SafeString:
        """The status in its colour."""
        return pill(attempt.status)

    @admin.display(description=_("started"), empty_value="—")
    def started(self, attempt: WorkflowStepHistory) -> SafeString | None:
        """When a worker began."""
        return since(attempt.running_at) or None

    @admin.display(description=_("took"), empty_value="—")
    def took(self, attempt: WorkflowStepHistory) -> str | None:
        """How long it ran."""
        end = attempt.succeeded_at or attempt.failed_at
        return None if end is None or attempt.running_at is None else duration(end - attempt.running_at)

    @admin.display(description=_("worker"), empty_value="—")
    def worker_name(self, attempt: WorkflowStepHistory) -> str | None:
        """Who had it."""
        return attempt.worker or None

    @admin.display(description=_("run"))
    def run_link(self, attempt: WorkflowStepHistory) -> SafeString:
        """The run's page."""
        return _run_link(attempt.step.run_id, attempt.step_id, self.admin_site.name)


def _run_link(run_id: str, step_id: str, site: str) -> SafeString:
    url = f"{RunUrls(run_id, site).page}?{urlencode({'step': step_id})}"
    return format_html('<a href="{}" title="{}"><code>{}</code></a>', url, run_id, short_id(run_id))
