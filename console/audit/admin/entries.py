"""The audit trail: the list, the page of an event, and the export. Nobody changes or deletes anything here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import quote, unquote
from django.core.exceptions import PermissionDenied
from django.db.models import Q, QuerySet
from django.db.models.functions import Substr
from django.http import HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.http import urlencode
from django.utils.safestring import SafeString
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_safe

from console.audit.admin.filters import ActorFilter, OccurredFilter, OutcomeFilter, TypeFilter
from console.audit.export import CONTENT_TYPES, MOST_EXPORTED, lines_of
from console.audit.objects import metadata_of, subject_link, subject_of, visible_pages
from console.audit.people import Person, people_of, who_did
from console.base import EmptyState, EngineRowAdmin
from console.formatting import absolute, ago, short_id
from console.gate import AUDIT
from console.keyset import KeysetChangeList
from console.owners import owner_ids_of
from console.parts import Fact, PayloadView
from console.plain import plain_text
from console.templatetags.pikku_console import pill
from pikku_storage import auditing
from pikku_storage.audit.models import AuditEntry
from pikku_storage.audit.records import AuditRecord
from pikku_storage.conf import settings

STORE = "pikku_storage.audit.sinks.store"
"""The sink that writes what is shown here."""
_NOTHING = "—"
_METADATA_READ = 2000
"""So much of the metadata is read for the list; of an event with more, what it is about is on its page."""
_CHUNK = 500


@admin.register(AuditEntry)
class EntryAdmin(EngineRowAdmin):
    """What happened, the newest first."""

    area = AUDIT
    keyset = ("-occurred_at", "-audit_id")
    cheap_columns = ("audit_id", "occurred_at", "type", "outcome", "user_id", "pikku_user_id", "wire_type")
    change_list_template = "console/audit/change_list.html"
    list_display = ("when", "who", "what", "outcome_pill", "subject", "where")
    list_display_links = ("what",)
    list_filter = (TypeFilter, OutcomeFilter, ActorFilter, OccurredFilter)
    search_fields = ("audit_id",)
    search_help_text = _("A user's name or id, or a whole type, organisation or event id.")

    # -- the list ----------------------------------------------------------------------------------------------------

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[AuditEntry], search_term: str
    ) -> tuple[QuerySet[AuditEntry], bool]:
        """By indexes only."""
        term = search_term.strip()
        if not term:
            return queryset, False
        by_user = Q(user_id__in=[term, *owner_ids_of(term)])
        return queryset.filter(by_user | Q(type=term) | Q(org_id=term) | Q(pk=term)), False

    def prepare_page(self, request: HttpRequest, rows: list[AuditEntry]) -> None:
        """People, and what each event is about: two queries."""
        people = people_of(row.user_id for row in rows)
        entries = self.get_queryset(request).filter(pk__in=[row.pk for row in rows]).order_by()
        beginnings = entries.annotate(beginning=Substr("data", 1, _METADATA_READ)).values_list("pk", "beginning")
        metadata = dict(beginnings) if rows else {}
        visible = visible_pages(request, self.admin_site)
        now = timezone.now()
        for row in rows:
            subject = subject_of(metadata_of(metadata.get(row.pk)))
            row.__dict__.update(
                console_now=now,
                console_who=who_did(row, people),
                console_subject=None if subject is None else subject_link(subject, visible),
            )

    def list_context(self, request: HttpRequest, changes: KeysetChangeList) -> dict[str, Any]:
        """With what is not kept here, and the exports."""
        query = changes.get_query_string()
        exports = [
            {"label": label, "url": f"{self._reverse('export', form)}{query}"}
            for form, label in (("csv", gettext("CSV")), ("jsonl", gettext("JSON lines")))
        ]
        return {
            **super().list_context(request, changes),
            "warnings": _warnings(),
            "exports": exports if changes.result_list else [],
            "most_exported": MOST_EXPORTED,
            "actor": request.GET.get("user", ""),
        }

    def empty_state(self, changes: KeysetChangeList) -> EmptyState:
        """A trail that is kept elsewhere is not an empty one."""
        if changes.is_first_page and not (changes.query or changes.has_active_filters):
            if not _is_readable():
                return EmptyState(
                    gettext("The trail is not readable here."),
                    gettext("Events go elsewhere. That none are here does not mean that there are none."),
                )
            return EmptyState(gettext("Nothing was recorded yet."), gettext("Events appear as they happen."))
        return super().empty_state(changes)

    @admin.display(description=_("when"))
    def when(self, entry: AuditEntry) -> SafeString:
        """The time; how long ago on hover."""
        return format_html(
            '<time datetime="{}" title="{}">{}</time>',
            entry.occurred_at.isoformat(),
            ago(entry.occurred_at, entry.__dict__["console_now"]),
            absolute(entry.occurred_at),
        )

    @admin.display(description=_("who"))
    def who(self, entry: AuditEntry) -> SafeString:
        """The actor; a user leads to all that they did."""
        who: SafeString = entry.__dict__["console_who"]
        if not entry.user_id:
            return who
        return format_html('<a href="?{}" title="{}">{}</a>', urlencode({"user": entry.user_id}), entry.user_id, who)

    @admin.display(description=_("what"))
    def what(self, entry: AuditEntry) -> str:
        """The type."""
        return str(entry.type)

    @admin.display(description=_("outcome"), empty_value=_NOTHING)
    def outcome_pill(self, entry: AuditEntry) -> SafeString | None:
        """The outcome in its colour."""
        return None if entry.outcome is None else pill(entry.outcome)

    @admin.display(description=_("about"), empty_value=_NOTHING)
    def subject(self, entry: AuditEntry) -> SafeString | None:
        """Which object it was done to."""
        subject: SafeString | None = entry.__dict__["console_subject"]
        return subject

    @admin.display(description=_("where"), empty_value=_NOTHING)
    def where(self, entry: AuditEntry) -> str | None:
        """Which part of the package, or which wire."""
        return entry.wire_type or None

    # -- pages -------------------------------------------------------------------------------------------------------

    def object_urls(self, name: str) -> list[URLPattern]:
        """The export, and an event's metadata as text."""
        wrap = self.admin_site.admin_view
        return [
            path("export/<str:form>/", wrap(require_safe(self.export_view)), name=f"{name}_export"),
            path("<str:object_id>/metadata/", wrap(require_safe(self.metadata_view)), name=f"{name}_metadata"),
        ]

    def row_page(self, request: HttpRequest, row_id: str) -> HttpResponse:
        """Everything that is known of an event."""
        entry = self.visible_rows(request).defer(None).filter(pk=row_id).first()
        if entry is None:
            raise self.not_found()
        metadata = metadata_of(entry.data)
        subject = subject_of(metadata)
        visible = visible_pages(request, self.admin_site)
        people = people_of([entry.user_id])
        context = {
            "entry": entry,
            "title": f"{entry.type} · {short_id(entry.pk)}",
            "who": who_did(entry, people),
            "subject": None if subject is None else subject_link(subject, visible),
            "facts": _facts(entry, people),
            "payload": PayloadView.of(gettext("Metadata"), metadata, self._reverse("metadata", quote(entry.pk))),
        }
        return self.render(request, "audit/entry.html", context)

    def metadata_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """An event's metadata, as it is stored."""
        row = self.visible_rows(request).filter(pk=unquote(object_id)).values("data").first()
        if row is None:
            raise self.not_found()
        return plain_text(row["data"] or "null", "application/json")

    def export_view(self, request: HttpRequest, form: str) -> HttpResponseBase:
        """The newest `MOST_EXPORTED` events for which the filters hold, as they are read."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        if form not in CONTENT_TYPES:
            raise self.not_found()
        changes: Any = self.get_changelist_instance(request)
        rows = changes.queryset.values(*AuditRecord.COLUMNS)[:MOST_EXPORTED]
        response = StreamingHttpResponse(
            lines_of(rows.iterator(chunk_size=_CHUNK), form), content_type=f"{CONTENT_TYPES[form]}; charset=utf-8"
        )
        response.headers["Content-Disposition"] = f'attachment; filename="audit-{timezone.now():%Y%m%d-%H%M%S}.{form}"'
        response.headers["X-Content-Type-Options"] = "nosniff"
        return response

    def _reverse(self, view: str, *args: str) -> str:
        return reverse(f"admin:pikku_audit_auditentry_{view}", args=args, current_app=self.admin_site.name)


def _is_readable() -> bool:
    return settings.AUDIT_SINK == STORE


def _warnings() -> list[str]:
    warnings = []
    if not _is_readable():
        sink = settings.AUDIT_SINK
        warnings.append(
            gettext("New events are not readable here: AUDIT_SINK is %(sink)s.") % {"sink": sink}
            if sink
            else gettext("Nothing is recorded: AUDIT_SINK is None.")
        )
    if auditing.lost.events:
        text = ngettext(
            "This server process could not keep %(n)d event since it began; the last time: %(error)s",
            "This server process could not keep %(n)d events since it began; the last time: %(error)s",
            auditing.lost.events,
        )
        warnings.append(text % {"n": auditing.lost.events, "error": auditing.lost.last_error})
    return warnings


def _facts(entry: AuditEntry, people: Mapping[str, Person]) -> list[Fact]:
    named = [
        (gettext("Named by the wire"), entry.pikku_user_id),
        (gettext("Organisation"), entry.org_id),
        (gettext("Where"), entry.wire_type),
        (gettext("Source"), entry.source),
        (gettext("Function"), entry.function_id),
        (gettext("Trace"), entry.trace_id),
        (gettext("Transaction"), entry.transaction_id),
        (gettext("Query"), entry.query_id),
        (gettext("Event"), entry.event),
        (gettext("Tables"), entry.tables),
        (gettext("Changed columns"), entry.changed_cols),
    ]
    facts = [Fact(label, value, value) for label, value in named if value]
    if not entry.user_id:
        return facts
    # As it is stored: the name stands above.
    user_id = entry.user_id if entry.user_id in people else ""
    return [Fact(gettext("User"), entry.user_id, entry.user_id, user_id), *facts]
