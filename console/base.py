"""What the admin classes of engine rows share: the gate, nothing to change, lists without counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.contrib import admin, messages
from django.contrib.admin.options import ShowFacets
from django.contrib.admin.utils import unquote
from django.contrib.admin.views.main import ChangeList
from django.db.models import QuerySet
from django.forms import Media
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.text import capfirst
from django.utils.translation import gettext

from console.gate import Area, has_model_permission
from console.keyset import KeysetChangeList
from pikku_storage.exceptions import PayloadError, WorkflowError


@dataclass(frozen=True, slots=True)
class EmptyState:
    """Why a list is empty, and what to do about it."""

    title: str
    text: str


if TYPE_CHECKING:
    _ModelAdmin = admin.ModelAdmin[Any]
else:
    # Generic for the type checker only.
    _ModelAdmin = admin.ModelAdmin


class EngineRowAdmin(_ModelAdmin):
    """Rows that only the engine writes: to be looked at, and only by those whom the gate lets in.

    There are no other addresses than the list, the page of a row, and what `object_urls` adds; whoever may not see a
    row gets the answer for one that does not exist.
    """

    area: Area
    """Whose scopes open these pages."""
    keyset: tuple[str, str] = ("-created_at", "-id")
    """The two columns that order the list; they need an index, and the last one is unique."""
    cheap_columns: tuple[str, ...] = ()
    """The columns that the list loads: never payloads."""

    change_list_template = "console/change_list.html"
    actions: Any = None
    sortable_by = ()
    list_per_page = 50
    list_max_show_all = 0
    show_full_result_count = False
    show_facets = ShowFacets.NEVER
    preserve_filters = False
    empty_value_display = "—"

    @property
    def media(self) -> Media:
        """The console's styles and scripts; under django-unfold the colours that these need as well."""
        styles = ["console/console.css", *(["console/unfold.css"] if apps.is_installed("unfold") else [])]
        return super().media + Media(css={"all": styles}, js=["console/list.js", "console/zone.js"])

    # -- the gate ----------------------------------------------------------------------------------------------------

    def has_module_permission(self, request: HttpRequest) -> bool:
        """As for the rows."""
        return self.has_view_permission(request)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Who may see the area."""
        return self.area.may_view(request) and has_model_permission(request, "view", self.opts)

    def may(self, request: HttpRequest, verb: str, action: str = "change") -> bool:
        """Whether the caller may do what the area's `verb` allows; `action` is what Django calls it."""
        return self.area.may(request, verb) and has_model_permission(request, action, self.opts)

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody."""
        return False

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """The rows that the caller may see, with cheap columns."""
        rows = super().get_queryset(request)
        if not self.has_view_permission(request):
            return rows.none()
        return rows.only(*self.cheap_columns) if self.cheap_columns else rows

    def visible_rows(self, request: HttpRequest) -> QuerySet[Any]:
        """The rows that the caller may see; raises `not_found` for a caller who may see none."""
        if not self.has_view_permission(request):
            raise self.not_found()
        return self.get_queryset(request).order_by()

    def not_found(self) -> Http404:
        """The one answer for rows that do not exist and rows that are none of the caller's business."""
        return Http404(gettext("There is no such %(name)s.") % {"name": self.opts.verbose_name})

    # -- addresses ---------------------------------------------------------------------------------------------------

    def get_urls(self) -> list[URLPattern]:
        """The list, the row's page, and `object_urls`; no forms to add, change or delete."""
        name = f"{self.opts.app_label}_{self.opts.model_name}"
        wrap = self.admin_site.admin_view
        return [
            path("", wrap(self.changelist_view), name=f"{name}_changelist"),
            *self.object_urls(name),
            path("<path:object_id>/change/", wrap(self.change_view), name=f"{name}_change"),
        ]

    def object_urls(self, name: str) -> list[URLPattern]:
        """More addresses below a row's; names begin with `name`."""
        return []

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The page of a row."""
        return self.row_page(request, unquote(object_id))

    def row_page(self, request: HttpRequest, row_id: str) -> HttpResponse:
        """The page of the row with that id; raises `not_found`."""
        raise NotImplementedError

    def render(self, request: HttpRequest, template: str, context: dict[str, Any]) -> TemplateResponse:
        """A template of the console inside the admin."""
        request.current_app = self.admin_site.name
        # A timeline wants the room that the list of applications would take.
        own = {"opts": self.opts, "media": self.media, "is_nav_sidebar_enabled": False}
        base = {**self.admin_site.each_context(request), **own}
        return TemplateResponse(request, f"console/{template}", {**base, **context})

    # -- the list ----------------------------------------------------------------------------------------------------

    def get_keyset(self, request: HttpRequest) -> tuple[str, str]:
        """The two columns that order this list."""
        return self.keyset

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        """Paged by key."""
        return KeysetChangeList

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """The list, with its empty state."""
        own = {"title": self.list_title(), "is_nav_sidebar_enabled": False}
        response = super().changelist_view(request, {**own, **(extra_context or {})})
        context = getattr(response, "context_data", None)
        if context is not None and "cl" in context:
            context.update(self.list_context(request, context["cl"]))
        return response

    def list_title(self) -> str:
        """The heading of the list."""
        return capfirst(str(self.opts.verbose_name_plural))

    def list_context(self, request: HttpRequest, changes: KeysetChangeList) -> dict[str, Any]:
        """What the list's template is told besides its rows."""
        return {"empty_state": None if changes.result_list else self.empty_state(changes)}

    def prepare_page(self, request: HttpRequest, rows: list[Any]) -> None:
        """Read what the columns of these rows need, in a constant number of queries."""

    def empty_state(self, changes: KeysetChangeList) -> EmptyState:
        """Why nothing is listed."""
        if changes.query or changes.has_active_filters:
            return EmptyState(
                gettext("Nothing matches."), gettext("Clear the search and the filters to see everything there is.")
            )
        if not changes.is_first_page:
            return EmptyState(gettext("There is nothing further."), gettext("Go back to the first page."))
        return EmptyState(gettext("There is nothing yet."), "")


class OperatorRowAdmin(EngineRowAdmin):
    """Rows that whoever manages the area makes and changes. Whatever is saved goes through a service."""

    def has_module_permission(self, request: HttpRequest) -> bool:
        """As for the rows, and for whoever may add one."""
        return self.has_view_permission(request) or self.has_add_permission(request)

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Who manages the area."""
        return self.may(request, "manage", "add")

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Who manages the area."""
        return self.may(request, "manage")

    def object_urls(self, name: str) -> list[URLPattern]:
        """The form to add, and the history of a row."""
        wrap = self.admin_site.admin_view
        return [
            path("add/", wrap(self.add_view), name=f"{name}_add"),
            path("<path:object_id>/history/", wrap(self.history_view), name=f"{name}_history"),
        ]

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The form; raises `not_found`."""
        self.need(request, object_id)
        response: HttpResponse = self.changeform_view(request, object_id, form_url, extra_context)
        return response

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Who changed it when; raises `not_found`."""
        self.need(request, object_id)
        context = {"is_nav_sidebar_enabled": False, **(extra_context or {})}
        return super().history_view(request, object_id, context)

    def need(self, request: HttpRequest, object_id: str) -> None:
        """Raise `not_found` unless the caller may see that row."""
        if not self.visible_rows(request).filter(pk=unquote(object_id)).exists():
            raise self.not_found()

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> Any:
        """As the admin's. What the service refuses after all, because somebody was faster, is said."""
        try:
            context = {"is_nav_sidebar_enabled": False, **(extra_context or {})}
            return super().changeform_view(request, object_id, form_url, context)
        except (WorkflowError, PayloadError) as error:
            self.message_user(request, str(error), messages.ERROR)
            return HttpResponseRedirect(request.get_full_path())
