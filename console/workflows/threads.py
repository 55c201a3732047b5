"""The thread of an agent that a run belongs to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.apps import apps
from django.contrib.admin.utils import quote
from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse

from console.gate import AGENTS
from console.workflows.records import RunRow

_APP = "pikku_agents"


@dataclass(frozen=True, slots=True)
class RelatedThread:
    """A thread that the viewer may see; `url` is empty where the console has no page for it."""

    thread_id: str
    title: str
    url: str


def related_thread(request: HttpRequest, run: RunRow, *, using: str, site: str) -> RelatedThread | None:
    """The thread that the run's `wire` names as `threadId`, else that of the tool call whose id is the run's
    idempotency key. `None` without one, and for whoever may not see threads."""
    named, key = run.from_wire("threadId"), run.idempotency_key
    if not (named or key) or not apps.is_installed("pikku_storage.agents") or not AGENTS.may_view(request):
        return None
    if named is None:
        calls = _rows("AgentToolCall", using)
        named = calls.filter(pk=key).values_list("thread_id", flat=True).first()
    found = None if named is None else _rows("AgentThread", using).filter(pk=named).values("pk", "title").first()
    if found is None:
        return None
    return RelatedThread(found["pk"], found["title"] or "", _url_of(found["pk"], site))


def _rows(model: str, using: str) -> Any:
    return apps.get_model(_APP, model)._base_manager.using(using).order_by()


def _url_of(thread_id: str, site: str) -> str:
    try:
        return reverse(f"admin:{_APP}_agentthread_change", args=[quote(thread_id)], current_app=site)
    except NoReverseMatch:
        return ""
