"""Everything the page of one agent run shows, in a constant number of queries."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.utils.functional import cached_property
from django.utils.translation import gettext

from console.agents import reads
from console.agents.addresses import ThreadUrls
from console.agents.conversation import Allowance
from console.agents.resources import name_of, owner_fact, resource_names
from console.agents.threadpage import PendingView, RunView, pending_view, run_views
from console.formatting import number, short_id, shorten
from console.parts import Fact
from pikku_storage.access.ownership import Ownership
from pikku_storage.agents import reads as agent_reads
from pikku_storage.agents.records import AgentRun as Run
from pikku_storage.agents.records import Thread

_TITLE = 160
_APPROVALS = 100


class RunPage:
    """One run as `visible` lets somebody see it."""

    def __init__(
        self, using: str, run: Run, *, visible: Ownership, sees_workflows: bool, now: datetime, site: str
    ) -> None:
        self.run, self.now = run, now
        self._using, self._visible, self._sees_workflows, self._site = using, visible, sees_workflows, site

    @cached_property
    def view(self) -> RunView:
        """The run as it is listed in its thread."""
        workflows: dict[str, dict[str, Any]] = {}
        if self._sees_workflows:
            workflows, _by_call = reads.read_workflow_runs(run_ids=[self.run.workflow_run_id], call_ids=[])
        (view,) = run_views(self._using, [self.run], now=self.now, site=self._site, workflows=workflows)
        return view

    @cached_property
    def thread(self) -> Thread | None:
        """Its thread, if that may be seen."""
        thread = agent_reads.thread(self._using, self.run.thread_id)
        return thread if thread is not None and self._visible.covers(thread.resource_id) else None

    @property
    def thread_title(self) -> str:
        """What the thread is called."""
        return "" if self.thread is None else shorten(self.thread.title or "", _TITLE) or short_id(self.thread.id)

    @property
    def thread_url(self) -> str:
        """The page of the thread."""
        return "" if self.thread is None else ThreadUrls(self.thread.id, self._site).page

    @cached_property
    def approvals(self) -> list[PendingView]:
        """All that it asked for, whatever became of it."""
        allowance = Allowance()
        found = agent_reads.run_approvals(self._using, self.run.run_id)[:_APPROVALS] if self.thread else []
        return [pending_view(approval, site=self._site, allowance=allowance) for approval in found]

    @cached_property
    def _names(self) -> dict[str, str]:
        people = [view.approval.resolved_by for view in self.approvals]
        return resource_names([self.run.resource_id, *people])

    @property
    def decisions(self) -> list[dict[str, Any]]:
        """The approvals, each with the name of who decided."""
        return [{"view": view, "by": name_of(view.approval.resolved_by, self._names)} for view in self.approvals]

    @property
    def facts(self) -> list[Fact]:
        """The header's table."""
        run, view = self.run, self.view
        usage = gettext("%(in)s in · %(out)s out") % {
            "in": number(run.usage.input_tokens),
            "out": number(run.usage.output_tokens),
        }
        return [
            owner_fact(run.resource_id, self._names),
            Fact(gettext("Model"), run.usage.model or "—"),
            Fact(gettext("Tokens"), usage),
            Fact.since(gettext("Started"), run.created_at, self.now),
            Fact.since(gettext("Changed"), run.updated_at, self.now),
            Fact(gettext("Duration"), view.took),
        ]
