"""Runs of virtual users, with their steps."""

from __future__ import annotations

import json
from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import quote, unquote
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_safe

from console.base import EmptyState, EngineRowAdmin
from console.filters import PeriodFilter
from console.formatting import duration, short_id, shorten
from console.gate import VIRTUAL_USERS
from console.keyset import KeysetChangeList
from console.moments import since
from console.owners import owner_names
from console.parts import Fact, PayloadView
from console.plain import json_text
from console.templatetags.pikku_console import pill
from console.virtual_users.reads import read_steps, read_totals
from pikku_storage.virtual_users.models import VirtualUserRun, VirtualUserRunStep
from pikku_storage.virtual_users.statuses import Disposition

_NOTHING = "—"
_ACTION_SHOWN = 120
_RUN_PARTS = {
    "findings": _("Findings"),
    "intents": _("Intents"),
    "goals": _("Goals"),
    "memory": _("Memory"),
    "tally": _("Tally"),
}
_STEP_PARTS = {"action": _("Action"), "response": _("Response"), "finding_kinds": _("Kinds of findings")}


class StartedFilter(PeriodFilter):
    """By when it was started."""

    title = _("started")
    parameter_name = "started"
    column = "created_at"


@admin.register(VirtualUserRun)
class VirtualUserRunAdmin(EngineRowAdmin):
    """What virtual users did, the newest first."""

    area = VIRTUAL_USERS
    keyset = ("-created_at", "-run_id")
    cheap_columns = (
        *("run_id", "persona", "disposition", "status", "stopped_by", "started_by", "created_at", "finished_at"),
    )
    list_display = ("status_pill", "persona", "short_id", "behaves", "started", "took", "steps", "tokens", "stopped")
    list_display_links = ("persona", "short_id")
    list_filter = (StartedFilter,)
    list_per_page = 100
    search_fields = ("persona",)
    search_help_text = _("A whole persona or run id.")

    # -- the list ----------------------------------------------------------------------------------------------------

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[VirtualUserRun], search_term: str
    ) -> tuple[QuerySet[VirtualUserRun], bool]:
        """By persona; by id if there is no run of one of that name."""
        term = search_term.strip()
        if not term:
            return queryset, False
        by_persona = queryset.filter(persona=term)
        return (by_persona if by_persona.exists() else queryset.filter(pk=term)), False

    def prepare_page(self, request: HttpRequest, rows: list[VirtualUserRun]) -> None:
        """Steps and tokens of all rows at once: one query."""
        totals = read_totals(self.get_queryset(request).db, [row.pk for row in rows])
        now = timezone.now()
        for row in rows:
            row.__dict__.update(console_totals=totals.get(row.pk, (0, 0)), console_now=now)

    def empty_state(self, changes: KeysetChangeList) -> EmptyState:
        """Says when there is one."""
        if changes.is_first_page and not (changes.query or changes.has_active_filters):
            return EmptyState(
                gettext("No virtual user has run yet."),
                gettext("Runs appear here when something records them with VirtualUserRunStore."),
            )
        return super().empty_state(changes)

    @admin.display(description=_("status"))
    def status_pill(self, run: VirtualUserRun) -> SafeString:
        """The status in its colour."""
        return pill(run.status)

    @admin.display(description=_("id"))
    def short_id(self, run: VirtualUserRun) -> SafeString:
        """Both ends of the id; the whole one on hover."""
        return format_html('<code title="{}">{}</code>', run.pk, short_id(run.pk))

    @admin.display(description=_("behaves"))
    def behaves(self, run: VirtualUserRun) -> str:
        """The disposition."""
        return _disposition(run)

    @admin.display(description=_("started"))
    def started(self, run: VirtualUserRun) -> SafeString:
        """How long ago; the time on hover."""
        return since(run.created_at, run.__dict__["console_now"])

    @admin.display(description=_("duration"))
    def took(self, run: VirtualUserRun) -> str:
        """From the start to the end, or to now."""
        return duration((run.finished_at or run.__dict__["console_now"]) - run.created_at)

    @admin.display(description=_("steps"))
    def steps(self, run: VirtualUserRun) -> int:
        """How many steps it took; they are recorded when it ends."""
        return int(run.__dict__["console_totals"][0])

    @admin.display(description=_("tokens"))
    def tokens(self, run: VirtualUserRun) -> int:
        """Of input and output."""
        return int(run.__dict__["console_totals"][1])

    @admin.display(description=_("stopped by"), empty_value=_NOTHING)
    def stopped(self, run: VirtualUserRun) -> str | None:
        """What ended it."""
        return run.stopped_by or None

    # -- pages -------------------------------------------------------------------------------------------------------

    def object_urls(self, name: str) -> list[URLPattern]:
        """The pages of steps, and payloads as text."""
        wrap = self.admin_site.admin_view
        return [
            path("<str:object_id>/payload/<str:part>/", wrap(require_safe(self.payload_view)), name=f"{name}_payload"),
            path("<str:object_id>/steps/<int:index>/", wrap(require_safe(self.step_view)), name=f"{name}_step"),
            path(
                "<str:object_id>/steps/<int:index>/<str:part>/",
                wrap(require_safe(self.step_payload_view)),
                name=f"{name}_step_payload",
            ),
        ]

    def row_page(self, request: HttpRequest, row_id: str) -> HttpResponse:
        """How it went, and its steps a page at a time."""
        run = self.visible_rows(request).defer(None).filter(pk=row_id).first()
        if run is None:
            raise self.not_found()
        given = request.GET.get("after", "")
        after = int(given) if given.isdecimal() and len(given) < 10 else None
        steps, has_more = read_steps(run._state.db or "default", run.pk, after=after)
        context = {
            "run": run,
            "title": f"{run.persona} · {short_id(run.pk)}",
            "facts": _facts(run),
            "steps": [
                (step, _summary(step.action), self._reverse("step", quote(run.pk), str(step.step_index)))
                for step in steps
            ],
            "is_first_page": after is None,
            "next_after": steps[-1].step_index if has_more else None,
            "payloads": [
                PayloadView.of(str(title), getattr(run, part), self._reverse("payload", quote(run.pk), part))
                for part, title in _RUN_PARTS.items()
                if getattr(run, part)
            ],
        }
        return self.render(request, "virtual_users/run.html", context)

    def step_view(self, request: HttpRequest, object_id: str, index: int) -> HttpResponse:
        """What it did, and what came of that."""
        step = self._step(request, object_id, index)
        url = self._reverse("change", quote(step.run_id))
        context = {
            "step": step,
            "run_url": url,
            "title": gettext("Step %(n)d") % {"n": step.step_index},
            "payloads": [
                PayloadView.of(
                    str(title),
                    getattr(step, part),
                    self._reverse("step_payload", quote(step.run_id), str(step.step_index), part),
                )
                for part, title in _STEP_PARTS.items()
                if getattr(step, part) is not None
            ],
        }
        return self.render(request, "virtual_users/step.html", context)

    def payload_view(self, request: HttpRequest, object_id: str, part: str) -> HttpResponse:
        """A payload of a run, whole, as text."""
        rows = self.visible_rows(request).filter(pk=unquote(object_id))
        row = rows.values(part).first() if part in _RUN_PARTS else None
        if row is None:
            raise self.not_found()
        return json_text(row[part])

    def step_payload_view(self, request: HttpRequest, object_id: str, index: int, part: str) -> HttpResponse:
        """A payload of a step, whole, as text."""
        if part not in _STEP_PARTS:
            raise self.not_found()
        return json_text(getattr(self._step(request, object_id, index), part))

    def _step(self, request: HttpRequest, object_id: str, index: int) -> VirtualUserRunStep:
        runs = self.visible_rows(request)
        run_id = unquote(object_id)
        steps = VirtualUserRunStep.objects.using(runs.db).filter(run_id=run_id, step_index=index)
        step = steps.first() if runs.filter(pk=run_id).exists() else None
        if step is None:
            raise self.not_found()
        return step

    def _reverse(self, view: str, *args: str) -> str:
        name = f"admin:pikku_virtual_users_virtualuserrun_{view}"
        return reverse(name, args=args, current_app=self.admin_site.name)


def _disposition(run: VirtualUserRun) -> str:
    return str(dict(Disposition.choices).get(run.disposition, run.disposition))


def _summary(action: Any) -> str:
    return "" if action is None else shorten(json.dumps(action, ensure_ascii=False), _ACTION_SHOWN)


def _facts(run: VirtualUserRun) -> list[Fact]:
    now = timezone.now()
    return [
        Fact(gettext("Behaves"), _disposition(run)),
        Fact.since(gettext("Started"), run.created_at, now),
        Fact(gettext("Duration"), duration((run.finished_at or now) - run.created_at)),
        Fact(gettext("Stopped by"), run.stopped_by or _NOTHING, run.stopped_by or ""),
        Fact.person(gettext("Started by"), run.started_by, owner_names([run.started_by])),
        Fact(gettext("Seed"), str(run.seed)),
    ]
