"""Schedules: the list, and the form with which operators make and change them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.utils import quote
from django.db import router
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

from console.base import EmptyState, OperatorRowAdmin
from console.filters import ChoicesMenu
from console.formatting import absolute, ago, ahead
from console.gate import WORKFLOWS
from console.keyset import KeysetChangeList
from console.moments import moment
from console.templatetags.pikku_console import pill
from console.workflows.schedule_form import ScheduleForm
from pikku_storage.access.actors import actor_of
from pikku_storage.auditing import AuditEvent, record_all
from pikku_storage.exceptions import ScheduleNotFoundError
from pikku_storage.json import Json
from pikku_storage.workflows.models import WorkflowSchedule
from pikku_storage.workflows.records import Schedule
from pikku_storage.workflows.schedules.fires import local
from pikku_storage.workflows.schedules.policies import ScheduleSource, ScheduleState
from pikku_storage.workflows.schedules.service import ScheduleService, next_fires_of

FIRES_SHOWN = 5
_NOTHING = "—"
_FACTS = ("state_pill", "next_fires", "last_fire", "source")
_OF_CODE = ("name", "workflow", "input", "owner_id", "cron", "timezone", "catch_up", "overlap")


@admin.register(WorkflowSchedule)
class ScheduleAdmin(OperatorRowAdmin):
    """All schedules. Those that the code declares can be paused and resumed, and are changed in the code."""

    area = WORKFLOWS
    keyset = ("name", "id")
    cheap_columns = (
        *("id", "name", "workflow", "cron", "timezone", "source", "enabled", "undeclared"),
        *("next_fire_at", "last_fire_at", "last_run_id"),
    )
    list_display = ("name", "state_pill", "workflow", "expression", "next_fire", "last_fire", "source")
    list_display_links = ("name",)
    list_filter = (("source", ChoicesMenu),)
    search_fields = ("name",)
    search_help_text = _("Beginning of a name, or a whole workflow name.")
    actions = ("pause", "resume")
    form = ScheduleForm
    fieldsets = (
        (None, {"fields": ("name", "workflow", "input", "owner_id")}),
        (_("When"), {"fields": ("cron", "timezone", "catch_up", "overlap", "enabled")}),
    )

    # -- the gate ----------------------------------------------------------------------------------------------------

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Who manages workflows; nobody may delete what the code declares, because it would only come back."""
        is_kept = obj is not None and obj.source == ScheduleSource.CODE and not obj.undeclared
        return self.may(request, "manage", "delete") and not is_kept

    # -- addresses ---------------------------------------------------------------------------------------------------

    def object_urls(self, name: str) -> list[URLPattern]:
        """The form to delete, too."""
        add, history = super().object_urls(name)
        wrap = self.admin_site.admin_view
        return [add, path("<path:object_id>/delete/", wrap(self.delete_view), name=f"{name}_delete"), history]

    def delete_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The question whether; raises `not_found`."""
        self.need(request, object_id)
        response: HttpResponse = super().delete_view(request, object_id, extra_context)
        return response

    # -- the list ----------------------------------------------------------------------------------------------------

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[WorkflowSchedule], search_term: str
    ) -> tuple[QuerySet[WorkflowSchedule], bool]:
        """By the beginning of the name, or by workflow."""
        term = search_term.strip()
        found = queryset.filter(Q(name__startswith=term) | Q(workflow=term)) if term else queryset
        return found, False

    def empty_state(self, changes: KeysetChangeList) -> EmptyState:
        """Says how to get a first one."""
        if changes.is_first_page and not (changes.query or changes.has_active_filters):
            return EmptyState(
                gettext("There are no schedules yet."),
                gettext("Add one here, or declare it in the code: @workflow(schedule=…). The relay finds it there."),
            )
        return super().empty_state(changes)

    @admin.display(description=_("state"))
    def state_pill(self, schedule: WorkflowSchedule) -> SafeString:
        """Whether it fires."""
        return pill(_state(schedule).value)

    @admin.display(description=_("when"))
    def expression(self, schedule: WorkflowSchedule) -> SafeString:
        """The expression and its time zone."""
        return format_html('<code>{}</code> <span class="pk-quiet">{}</span>', schedule.cron, schedule.timezone)

    @admin.display(description=_("next fire"))
    def next_fire(self, schedule: WorkflowSchedule) -> str:
        """In how long; the time on hover."""
        at = schedule.next_fire_at
        if at is None or _state(schedule) is not ScheduleState.ACTIVE:
            return _NOTHING
        now = timezone.now()
        wait = gettext("due now") if at <= now else ahead(at, now)
        return moment(at, wait)

    @admin.display(description=_("last fire"))
    def last_fire(self, schedule: WorkflowSchedule) -> str:
        """How long ago, with a link to its run; the time on hover."""
        at = schedule.last_fire_at
        if at is None or schedule.last_run_id is None:
            return _NOTHING
        name = "admin:pikku_workflows_workflowrun_change"
        url = reverse(name, args=[quote(schedule.last_run_id)], current_app=self.admin_site.name)
        return format_html('<a href="{}" title="{}">{}</a>', url, absolute(at), ago(at, timezone.now()))

    # -- the form ----------------------------------------------------------------------------------------------------

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """With the input where a single row is asked for."""
        rows = super().get_queryset(request)
        match = request.resolver_match
        return rows if match is None or "object_id" not in match.kwargs else rows.defer(None)

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """With what is known of a schedule that there is."""
        fieldsets = super().get_fieldsets(request, obj)
        return fieldsets if obj is None else ((_("Now"), {"fields": _FACTS}), *fieldsets)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        """Name and workflow stay: they make the ids of the runs. What the code says is changed there."""
        if obj is None:
            return ()
        fixed = _OF_CODE if obj.source == ScheduleSource.CODE else ("name", "workflow")
        return (*_FACTS, *fixed)

    @admin.display(description=_("next fires"))
    def next_fires(self, schedule: WorkflowSchedule) -> str:
        """The next five, in the schedule's time zone."""
        record = Schedule(**{name: getattr(schedule, name) for name in Schedule.COLUMNS})
        fires = next_fires_of(record, FIRES_SHOWN)
        shown = ((f"{local(fire, schedule.timezone):%a %Y-%m-%d %H:%M %Z}",) for fire in fires)
        return format_html_join("", "<div>{}</div>", shown) if fires else _NOTHING

    def save_model(self, request: HttpRequest, obj: WorkflowSchedule, form: Any, change: bool) -> None:
        """Through the service."""
        service = ScheduleService()
        if not change:
            obj.pk = service.create(**_arguments(form.cleaned_data)).id
            _tell_trail(request, "created", obj.name)
            return
        changes = _arguments({name: form.cleaned_data[name] for name in form.changed_data})
        enabled = changes.pop("enabled", None)
        if changes:
            service.update(obj.name, **changes)
            _tell_trail(request, "updated", obj.name, changed=sorted(changes))
        if enabled is not None:
            (service.resume if enabled else service.pause)(obj.name)
            _tell_trail(request, "resumed" if enabled else "paused", obj.name)

    def delete_model(self, request: HttpRequest, obj: WorkflowSchedule) -> None:
        """Through the service."""
        ScheduleService().delete(obj.name)
        _tell_trail(request, "deleted", obj.name)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[WorkflowSchedule]) -> None:
        """Through the service."""
        for schedule in queryset:
            self.delete_model(request, schedule)

    # -- actions -----------------------------------------------------------------------------------------------------

    @admin.action(description=_("Pause"), permissions=["change"])
    def pause(self, request: HttpRequest, queryset: QuerySet[WorkflowSchedule]) -> None:
        """Let the chosen ones fire no more."""
        done = self._each(request, queryset, ScheduleService().pause)
        text = ngettext("%(n)d schedule was paused.", "%(n)d schedules were paused.", done) % {"n": done}
        self.message_user(request, text, messages.SUCCESS if done else messages.WARNING)

    @admin.action(description=_("Resume"), permissions=["change"])
    def resume(self, request: HttpRequest, queryset: QuerySet[WorkflowSchedule]) -> None:
        """Let the chosen ones fire again."""
        done = self._each(request, queryset, ScheduleService().resume)
        text = ngettext("%(n)d schedule was resumed.", "%(n)d schedules were resumed.", done) % {"n": done}
        self.message_user(request, text, messages.SUCCESS if done else messages.WARNING)

    def _each(
        self, request: HttpRequest, queryset: QuerySet[WorkflowSchedule], operation: Callable[[str], bool]
    ) -> int:
        done = 0
        for schedule in queryset:
            try:
                is_done = operation(schedule.name)
            except ScheduleNotFoundError:
                continue
            if is_done:
                done += 1
                self.log_change(request, schedule, [{"changed": {"fields": ["enabled"]}}])
                _tell_trail(request, f"{operation.__name__}d", schedule.name)
        return done


def _tell_trail(request: HttpRequest, what: str, name: str, **metadata: Json) -> None:
    event = AuditEvent(
        type=f"workflow.schedule.{what}",
        outcome="success",
        actor=actor_of(request.user),
        wire_type="workflow",
        metadata={"schedule": name, **metadata},
    )
    record_all([event], using=router.db_for_write(WorkflowSchedule))


def _state(schedule: WorkflowSchedule) -> ScheduleState:
    return ScheduleState.of(enabled=schedule.enabled, undeclared=schedule.undeclared)


def _arguments(values: dict[str, Any]) -> dict[str, Any]:
    """The form's values under the names that the service gives them."""
    names = {"input": "data", "owner_id": "owner"}
    return {names.get(name, name): value for name, value in values.items()}
