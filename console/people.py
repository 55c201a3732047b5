"""From a user to what the rooms of the console have of them, and back."""

from __future__ import annotations

from urllib.parse import urlencode

from django.apps import apps
from django.contrib.admin.utils import quote
from django.http import HttpRequest
from django.urls import reverse
from django.utils.translation import gettext_lazy as _

from console.gate import AGENTS, AUDIT, CREDENTIALS, SCOPES, WORKFLOWS, Area, has_model_permission

_ROOMS = (
    (_("Runs"), WORKFLOWS, "pikku_workflows", "workflowrun", "owner"),
    (_("Threads"), AGENTS, "pikku_agents", "agentthread", "resource"),
    (_("Credentials"), CREDENTIALS, "pikku_secrets", "credential", "q"),
    (_("Audit trail"), AUDIT, "pikku_audit", "auditentry", "user"),
)
"""Lists that can be narrowed to a user, and by which parameter."""


def person_url(request: HttpRequest, user_id: str) -> str:
    """The page of what a user was granted; empty for callers who may not see it."""
    if not _may_view(request, SCOPES, "pikku_access", "userrole"):
        return ""
    return reverse("admin:pikku_access_userrole_change", args=[quote(user_id)], current_app=_site(request))


def lists_of(request: HttpRequest, user_id: str) -> list[tuple[str, str]]:
    """Labels and addresses of the lists of what is a user's, as far as the caller may see them."""
    return [
        (
            str(label),
            f"{reverse(f'admin:{app}_{model}_changelist', current_app=_site(request))}?{urlencode({name: user_id})}",
        )
        for label, area, app, model, name in _ROOMS
        if _may_view(request, area, app, model)
    ]


def _may_view(request: HttpRequest, area: Area, app: str, model: str) -> bool:
    if not apps.is_installed(f"pikku_storage.{app.removeprefix('pikku_')}"):
        return False
    return area.may_view(request) and has_model_permission(request, "view", apps.get_model(app, model)._meta)


def _site(request: HttpRequest) -> str:
    return str(getattr(request, "current_app", None) or "admin")
