"""How the console's templates write statuses, times and ids."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from console import formatting, moments
from console.channels.states import ChannelState
from console.deployments.states import Liveness
from console.people import person_url
from console.secrets.states import KeyStatus
from console.workflows.runurls import RunUrls
from console.workflows.states import State
from pikku_storage.agents.statuses import AgentRunStatus, ApprovalStatus
from pikku_storage.virtual_users.statuses import RunStatus as VirtualUserRunStatus
from pikku_storage.webhooks.statuses import DeliveryStatus
from pikku_storage.workflows.gates import shown_name
from pikku_storage.workflows.schedules.policies import ScheduleState
from pikku_storage.workflows.statuses import RunStatus, StepStatus, VersionStatus

register = template.Library()

_LABELS: dict[str, Any] = {
    **dict(VirtualUserRunStatus.choices),
    **dict(DeliveryStatus.choices),
    **dict(ChannelState.choices),
    **dict(Liveness.choices),
    **dict(State.choices),
    **dict(StepStatus.choices),
    **dict(ScheduleState.choices),
    **dict(VersionStatus.choices),
    **dict(RunStatus.choices),
    **dict(AgentRunStatus.choices),
    **dict(ApprovalStatus.choices),
    **dict(KeyStatus.choices),
    "success": _("success"),
    "denied": _("denied"),
    "system": _("system"),
    "own": _("made here"),
    "stale": _("stale"),
}


@register.simple_tag
def pill(status: str) -> SafeString:
    """A status in its colour; one that is not known reads as it is stored."""
    label = str(_LABELS.get(status, status))
    return format_html('<span class="pk-pill pk-is-{}">{}</span>', status if status in _LABELS else "unknown", label)


@register.filter
def state_label(state: str) -> str:
    """A state's or status's word."""
    return str(_LABELS.get(state, state))


@register.filter
def absolute(moment: datetime | None) -> str:
    """Date, time and zone."""
    return "" if moment is None else formatting.absolute(moment)


@register.simple_tag
def since(moment: datetime | None, now: datetime | None = None) -> SafeString:
    """How long ago; the time on hover."""
    return moments.since(moment, now)


@register.simple_tag(takes_context=True)
def person(context: Any, user_id: str, name: str) -> SafeString:
    """A user's name, for those who may see it as a link to their page."""
    url = person_url(context["request"], user_id)
    return format_html('<a href="{}">{}</a>', url, name) if url else format_html("{}", name)


@register.filter
def milliseconds(count: int) -> str:
    """A number of milliseconds as a duration."""
    return formatting.duration(timedelta(milliseconds=count))


@register.filter
def precise_clock(moment: datetime | None) -> str:
    """The time of day with milliseconds."""
    return "" if moment is None else formatting.precise_clock(moment)


@register.filter
def step_label(name: str) -> str:
    """A step's name as one reads it."""
    return shown_name(name)


@register.filter
def short_id(identifier: str) -> str:
    """Both ends of an id."""
    return formatting.short_id(identifier)


@register.filter
def error_part(error: Any, part: str) -> str:
    """`name`, `message`, `code` or `stack` of a stored error; of anything else, the thing itself as message."""
    if isinstance(error, Mapping):
        value = error.get(part)
        return "" if value is None else str(value)
    return str(error) if part == "message" and error is not None else ""


@register.filter
def line_count(text: str) -> int:
    """How many lines a text has."""
    return len(text.splitlines())


@register.simple_tag(takes_context=True)
def view_link(context: Any, **changes: Any) -> str:
    """The query string of this run page with some parameters changed; an empty value leaves one out."""
    page = context["page"]
    return str(page.query.link(**{name: value if value != "" else None for name, value in changes.items()}))


@register.simple_tag(takes_context=True)
def step_url(context: Any, step_id: str, run_id: str = "") -> str:
    """The address of a step's panel; of this page's run unless another one is named."""
    page = context["page"]
    urls = page.urls if run_id in {"", page.run.id} else RunUrls(run_id, page.site)
    return str(urls.step(step_id))


@register.simple_tag(takes_context=True)
def run_url(context: Any, run_id: str) -> str:
    """The address of a run's page."""
    return RunUrls(run_id, context["page"].site).page


@register.simple_tag(takes_context=True)
def toggle_link(context: Any, run_id: str) -> str:
    """The query string of this run page with that child run opened, or closed."""
    return str(context["page"].query.toggling(run_id))


@register.filter
def as_json(value: Any) -> str:
    """As JSON, for the attribute of an element."""
    return json.dumps(value, ensure_ascii=False)


@register.simple_tag
def url_with_step(run_url: str, step_id: str) -> str:
    """The run's page with that step opened."""
    return f"{run_url}?{urlencode({'step': step_id})}"


@register.filter
def admin_list_name(opts: Any) -> str:
    """The name of the address of a model's list."""
    return f"admin:{opts.app_label}_{opts.model_name}_changelist"


@register.simple_tag(takes_context=True)
def agent_approvals_waiting(context: Any) -> int:
    """How many approvals of agents wait for the answer of whoever looks, counted up to a thousand and one."""
    # Only the page of that app asks, and without the app there are no such models.
    from console.agents.visibility import waiting_for

    return waiting_for(context["request"])
