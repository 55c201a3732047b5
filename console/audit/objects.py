"""What an event is about, from its metadata."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.contrib.admin import AdminSite
from django.contrib.admin.utils import quote
from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from console.formatting import shorten

_PAGES = {
    "runId": "pikku_workflows.workflowrun",
    "deliveryId": "pikku_webhooks.webhookdelivery",
    "channelId": "pikku_channels.channel",
    "threadId": "pikku_agents.agentthread",
    "agentRunId": "pikku_agents.agentrun",
}
"""Names of metadata that are the id of a row, and of which model; the first one that is there says it."""
_NAMES = (
    *("schedule", "workflow", "secretName", "key", "name", "credentialName", "toolCallId", "function", "scope", "role"),
    *("userId", "keyVersion"),
)
"""Names of metadata that say it where no row is named."""
_SHOWN = 60


@dataclass(frozen=True, slots=True)
class Subject:
    """What an event is about: the metadata's name, and its value. `model` if that is the id of a row."""

    kind: str
    value: str
    model: str | None = None


def metadata_of(text: str | None) -> Any:
    """The metadata; `None` where there is none, and the text where it is no JSON."""
    try:
        return None if text is None else json.loads(text)
    except ValueError:
        return text


def subject_of(metadata: Any) -> Subject | None:
    """What it is about; `None` if the metadata does not say."""
    if not isinstance(metadata, Mapping):
        return None
    for kind in (*_PAGES, *_NAMES):
        value = metadata.get(kind)
        if isinstance(value, str | int) and not isinstance(value, bool) and value != "":
            return Subject(kind, str(value), _PAGES.get(kind))
    return None


def visible_pages(request: HttpRequest, site: AdminSite) -> dict[str, str]:
    """Of which models the caller may see the rows' pages, and the names of their addresses."""
    return {
        label: f"{site.name}:{label.replace('.', '_')}_change"
        for model, pages in site._registry.items()
        if (label := model._meta.label_lower) in _PAGES.values() and pages.has_view_permission(request)
    }


def subject_link(subject: Subject, visible: Mapping[str, str]) -> SafeString:
    """What it is about, as a link for those who may see that page."""
    text = format_html(
        '<span class="pk-quiet">{}</span> <code title="{}">{}</code>',
        subject.kind.removesuffix("Id"),
        subject.value,
        shorten(subject.value, _SHOWN),
    )
    if subject.model is None or subject.model not in visible:
        return text
    try:
        url = reverse(visible[subject.model], args=[quote(subject.value)])
    except NoReverseMatch:
        return text
    return format_html('<a href="{}">{}</a>', url, text)
