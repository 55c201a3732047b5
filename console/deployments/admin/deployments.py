"""Deployments: which processes are up, and what each of them serves."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import quote
from django.core.exceptions import PermissionDenied
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
from console.deployments.states import Liveness, liveness_of
from console.formatting import shorten
from console.gate import DEPLOYMENTS
from console.keyset import KeysetChangeList
from console.moments import since
from console.parts import Fact
from console.templatetags.pikku_console import pill
from pikku_storage.deployments.models import Deployment
from pikku_storage.deployments.service import DeploymentService

MOST_SHOWN = 500
"""So many functions are shown on a page."""
_NAMES_SHOWN = 80


@admin.register(Deployment)
class DeploymentAdmin(EngineRowAdmin):
    """Processes that say that they are up, the last heartbeat first."""

    area = DEPLOYMENTS
    keyset = ("-last_heartbeat", "-deployment_id")
    list_display = ("state_pill", "deployment_id", "endpoint", "heartbeat", "offers", "up_since")
    list_display_links = ("deployment_id",)
    search_fields = ("deployment_id",)
    search_help_text = _("A whole deployment id.")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Deployment], search_term: str
    ) -> tuple[QuerySet[Deployment], bool]:
        """One deployment."""
        term = search_term.strip()
        return (queryset.filter(pk=term) if term else queryset), False

    def prepare_page(self, request: HttpRequest, rows: list[Deployment]) -> None:
        """One time for the whole page."""
        now = timezone.now()
        for row in rows:
            row.__dict__["console_now"] = now

    def list_context(self, request: HttpRequest, changes: KeysetChangeList) -> dict[str, Any]:
        """With the way to the functions."""
        context = super().list_context(request, changes)
        url = reverse("admin:pikku_deployments_deployment_functions", current_app=self.admin_site.name)
        return {
            **context,
            "list_note": format_html('<a href="{}">{}</a>', url, gettext("Functions, and who serves them")),
        }

    def empty_state(self, changes: KeysetChangeList) -> EmptyState:
        """Says how one is registered."""
        if changes.is_first_page and not changes.query:
            return EmptyState(
                gettext("No process has registered itself."),
                gettext("Call announce() in wsgi.py or asgi.py, and announce_workers() where the Celery app is made."),
            )
        return super().empty_state(changes)

    @admin.display(description=_("state"))
    def state_pill(self, deployment: Deployment) -> SafeString:
        """Whether it is up."""
        return pill(liveness_of(deployment.last_heartbeat, deployment.__dict__["console_now"]).value)

    @admin.display(description=_("last heartbeat"))
    def heartbeat(self, deployment: Deployment) -> SafeString:
        """How long ago; the time on hover."""
        return since(deployment.last_heartbeat, deployment.__dict__["console_now"])

    @admin.display(description=_("functions"))
    def offers(self, deployment: Deployment) -> SafeString:
        """How many functions it serves; their names on hover."""
        names = _functions(deployment)
        return format_html('<span title="{}">{}</span>', shorten(", ".join(names), _NAMES_SHOWN), len(names))

    @admin.display(description=_("registered"))
    def up_since(self, deployment: Deployment) -> SafeString:
        """How long ago; the time on hover."""
        return since(deployment.created_at, deployment.__dict__["console_now"])

    # -- pages -------------------------------------------------------------------------------------------------------

    def object_urls(self, name: str) -> list[URLPattern]:
        """The page of all functions."""
        view = self.admin_site.admin_view(require_safe(self.functions_view))
        return [path("functions/", view, name=f"{name}_functions")]

    def row_page(self, request: HttpRequest, row_id: str) -> HttpResponse:
        """Where it is reached, and what it serves."""
        deployment = self.visible_rows(request).filter(pk=row_id).first()
        if deployment is None:
            raise self.not_found()
        now, functions = timezone.now(), _functions(deployment)
        context = {
            "deployment": deployment,
            "state": liveness_of(deployment.last_heartbeat, now).value,
            "title": str(deployment),
            "facts": [
                Fact(gettext("Endpoint"), deployment.endpoint, deployment.endpoint),
                Fact.since(gettext("Last heartbeat"), deployment.last_heartbeat, now),
                Fact.since(gettext("Registered"), deployment.created_at, now),
                Fact(gettext("Functions"), str(len(functions))),
            ],
            "functions": functions[:MOST_SHOWN],
            "more": max(0, len(functions) - MOST_SHOWN),
        }
        return self.render(request, "deployments/deployment.html", context)

    def functions_view(self, request: HttpRequest) -> HttpResponse:
        """The functions that somebody serves now, and who does. One query."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        now = timezone.now()
        offered: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for deployment in DeploymentService(using=self.get_queryset(request).db).list_deployments():
            is_late = liveness_of(deployment.last_heartbeat, now) is not Liveness.LIVE
            url = reverse(
                "admin:pikku_deployments_deployment_change",
                args=[quote(deployment.deployment_id)],
                current_app=self.admin_site.name,
            )
            for name in deployment.functions:
                offered[name].append({"id": deployment.deployment_id, "url": url, "is_late": is_late})
        functions = sorted(offered.items())
        context = {
            "title": gettext("Functions that are served"),
            "functions": functions[:MOST_SHOWN],
            "more": max(0, len(functions) - MOST_SHOWN),
        }
        return self.render(request, "deployments/functions.html", context)


def _functions(deployment: Deployment) -> list[str]:
    functions: Any = deployment.functions
    return [str(name) for name in functions] if isinstance(functions, list) else []
