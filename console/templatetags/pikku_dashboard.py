"""The dashboard, for templates of the admin. A project that has its own may place it there."""

from __future__ import annotations

import logging
from typing import Any

from django import template
from django.apps import apps
from django.db import DatabaseError
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext

register = template.Library()
logger = logging.getLogger(__name__)


@register.simple_tag(takes_context=True)
def pikku_dashboard(context: Any) -> SafeString:
    """Everything; nothing for those who may not see workflows."""
    return _rendered(context, "board_of", "console/workflows/dashboard.html")


@register.simple_tag(takes_context=True)
def pikku_summary(context: Any) -> SafeString:
    """A line of numbers; nothing for those who may not see workflows."""
    return _rendered(context, "summary_of", "console/workflows/summary.html")


_READ_FIRST = (
    *("WorkflowRun", "WorkflowSchedule", "WorkflowControl", "WorkflowVersion", "WorkflowStep", "WorkflowStepHistory"),
    *("AgentThread", "AgentApproval", "AgentRun", "Secret", "Credential", "UserRole", "Role", "Scope"),
)
"""The console's models in the order in which they are looked for."""


@register.filter
def in_reading_order(app_list: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The admin's list of apps, with ours beginning with what is looked for most. Other apps stay as they are."""
    place = {name: number for number, name in enumerate(_READ_FIRST)}
    return [
        {**app, "models": sorted(app["models"], key=lambda model: place.get(model["object_name"], len(place)))}
        if app["app_label"].startswith("pikku_")
        else app
        for app in app_list
    ]


def _rendered(context: Any, make: str, name: str) -> SafeString:
    request = context.get("request")
    if request is None or not apps.is_installed("pikku_storage.workflows"):
        return SafeString("")
    from console.workflows.dashboard import board

    try:
        made = getattr(board, make)(request)
    except DatabaseError as error:
        # The workflows may be in a database of their own, and the admin is more than them.
        logger.warning("The dashboard could not be read: %s", error)
        text = gettext("What the workflows do could not be read.")
        return format_html('<div class="pk-banner pk-is-failed" role="alert">{}</div>', text)
    if made is None:
        return SafeString("")
    return SafeString(context.template.engine.get_template(name).render(context.new({"board": made})))
