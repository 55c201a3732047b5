"""Which threads a run of a workflow has to do with."""

from __future__ import annotations

from dataclasses import dataclass

from django.db import router
from django.http import HttpRequest

from console.agents.addresses import ThreadUrls, run_url
from console.agents.visibility import visible
from console.formatting import short_id
from pikku_storage.agents.models import AgentRun, AgentThread, AgentToolCall

_MOST = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Related:
    """An agent's run in a step of the workflow, the tool call that the workflow was started for, or the thread that its
    trigger names."""

    kind: str
    name: str
    url: str
    status: str = ""


def related_to(
    request: HttpRequest, run_id: str, idempotency_key: str | None, thread_id: str | None, *, site: str
) -> list[Related]:
    """What the caller may see of it: runs of agents in steps of that run, the tool call whose id is its idempotency
    key, and the thread that its `wire` names as `threadId`. Three queries at most."""
    ownership = visible(request)
    if ownership.owners == ():
        return []
    runs = AgentRun.everyones.using(router.db_for_read(AgentRun)).filter(workflow_run_id=run_id)
    rows = (
        runs.filter(ownership.condition("resource_id")).order_by("created_at").values("run_id", "agent_name", "status")
    )
    found = [
        Related(kind="run", name=row["agent_name"], url=run_url(row["run_id"], site), status=row["status"])
        for row in rows[:_MOST]
    ]
    if idempotency_key:
        calls = AgentToolCall.everyones.using(router.db_for_read(AgentToolCall)).filter(pk=idempotency_key)
        calls = calls.filter(ownership.condition("thread__resource_id")).order_by()
        found += [
            Related(kind="call", name=row["tool_name"], url=ThreadUrls(row["thread_id"], site).page)
            for row in calls.values("tool_name", "thread_id")
        ]
    if thread_id:
        threads = AgentThread.everyones.using(router.db_for_read(AgentThread)).filter(pk=thread_id)
        found += [
            Related(kind="thread", name=title or short_id(thread_id), url=ThreadUrls(thread_id, site).page)
            for title in threads.filter(ownership.condition("resource_id")).order_by().values_list("title", flat=True)
        ]
    return found
