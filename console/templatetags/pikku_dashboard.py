"""The dashboard, for templates of the admin. A project that has its own may place it there."""

from __future__ import annotations

from typing import Any

from django import template
from django.apps import apps
from django.utils.safestring import SafeString

register = template.Library()


@register.simple_tag(takes_context=True)
def pikku_dashboard(context: Any) -> SafeString:
    """Everything; nothing for those who may not see workflows."""
    return _rendered(context, "board_of", "console/workflows/dashboard.html")


@register.simple_tag(takes_context=True)
def pikku_summary(context: Any) -> SafeString:
    """A line of numbers; nothing for those who may not see workflows."""
    return _rendered(context, "summary_of", "console/workflows/summary.html")


def _rendered(context: Any, make: str, name: str) -> SafeString:
    request = context.get("request")
    if request is None or not apps.is_installed("pikku_storage.workflows"):
        return SafeString("")
    from console.workflows.dashboard import board

    made = getattr(board, make)(request)
    if made is None:
        return SafeString("")
    return SafeString(context.template.engine.get_template(name).render(context.new({"board": made})))
