"""Versions: the stored definitions of workflows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from console.base import EmptyState, EngineRowAdmin
from console.filters import ChoicesMenu, ValuesMenu
from console.gate import WORKFLOWS
from console.jsontree import render_tree
from console.keyset import KeysetChangeList
from console.moments import since
from console.templatetags.pikku_console import pill
from pikku_storage.exceptions import WorkflowGraphError
from pikku_storage.workflows.graphs.structure import GRAPH_SOURCE
from pikku_storage.workflows.graphs.validation import loaded
from pikku_storage.workflows.graphs.view import view_of
from pikku_storage.workflows.models import WorkflowVersion
from pikku_storage.workflows.registry import registry


@admin.register(WorkflowVersion)
class VersionAdmin(EngineRowAdmin):
    """One row for each definition that ever ran; there are as many as deployments that changed a workflow."""

    area = WORKFLOWS
    keyset = ("workflow_name", "id")
    cheap_columns = ("id", "workflow_name", "graph_hash", "source", "status", "created_at")
    list_display = ("workflow_name", "short_hash", "is_current", "status_pill", "source", "created")
    list_display_links = ("workflow_name", "short_hash")
    list_filter = (("source", ValuesMenu), ("status", ChoicesMenu))
    search_fields = ("workflow_name",)
    search_help_text = _("A whole workflow name or version hash.")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[WorkflowVersion], search_term: str
    ) -> tuple[QuerySet[WorkflowVersion], bool]:
        """By name; by hash if there is none of that name."""
        term = search_term.strip()
        if not term:
            return queryset, False
        by_name = queryset.filter(workflow_name=term)
        return (by_name if by_name.exists() else queryset.filter(graph_hash=term)), False

    def empty_state(self, changes: KeysetChangeList) -> EmptyState:
        """Says when the first one is stored."""
        if changes.is_first_page and not (changes.query or changes.has_active_filters):
            return EmptyState(
                gettext("No version is stored yet."), gettext("A workflow's definition is stored when it first runs.")
            )
        return super().empty_state(changes)

    def row_page(self, request: HttpRequest, row_id: str) -> HttpResponse:
        """The definition."""
        version = self.visible_rows(request).defer(None).filter(pk=row_id).first()
        if version is None:
            raise self.not_found()
        graph: Any = version.graph
        source = graph.get("source") if isinstance(graph, Mapping) else None
        if version.source == GRAPH_SOURCE:
            source = _diagram(version)
        context = {
            "version": version,
            "title": str(version),
            "is_current": _is_current(version),
            "source": source if isinstance(source, str) else "",
            "tree": render_tree(graph),
        }
        return self.render(request, "workflows/version.html", context)

    @admin.display(description=_("version"))
    def short_hash(self, version: WorkflowVersion) -> SafeString:
        """The beginning of the hash."""
        return format_html('<code title="{}">{}</code>', version.graph_hash, version.graph_hash[:12])

    @admin.display(description=_("current"), boolean=True)
    def is_current(self, version: WorkflowVersion) -> bool:
        """Whether it is what this process would run today."""
        return _is_current(version)

    @admin.display(description=_("status"))
    def status_pill(self, version: WorkflowVersion) -> SafeString:
        """The status in its colour."""
        return pill(version.status)

    @admin.display(description=_("created"))
    def created(self, version: WorkflowVersion) -> SafeString:
        """When it was stored."""
        return since(version.created_at)


def _is_current(version: WorkflowVersion) -> bool:
    definition = registry.workflows.get(version.workflow_name)
    return definition is not None and definition.graph_hash == version.graph_hash


def _diagram(version: WorkflowVersion) -> str | None:
    """The graph as a diagram's text; `None` for one that another program stored and that cannot be run."""
    try:
        return view_of(loaded(version.workflow_name, version.graph)).to_mermaid()
    except WorkflowGraphError:
        return None
