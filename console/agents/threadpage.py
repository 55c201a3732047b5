"""Everything the page of one thread shows, read in a number of queries that does not depend on its length."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.http import QueryDict
from django.utils.functional import cached_property
from django.utils.translation import gettext

from console.agents import reads
from console.agents.addresses import ThreadUrls, approval_url, run_url, runs_url, threads_url
from console.agents.conversation import Allowance, Conversation, Shown
from console.agents.resources import owner_fact, resource_names
from console.formatting import ago, duration, number, shorten
from console.jsontree import as_text
from console.parts import Fact, PayloadView
from console.tabs import COUNT_UP_TO
from console.workflows.runurls import RunUrls
from pikku_storage.access.ownership import Ownership
from pikku_storage.agents import reads as agent_reads
from pikku_storage.agents.models import AgentThread
from pikku_storage.agents.records import AgentRun as Run
from pikku_storage.agents.records import Approval
from pikku_storage.agents.statuses import AgentRunStatus, MemoryScope
from pikku_storage.ids import derived_id

PENDING_SHOWN = 10
_TITLE = 160
_ARGUMENTS = 1500
_REASON = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Grades:
    """The grades of a run by one scorer: the last one, and those before it."""

    scorer: str
    score: str
    reason: str
    at: datetime
    earlier: list[dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """A run as it is listed."""

    run: Run
    url: str
    took: str
    tokens: str
    grades: list[Grades]
    workflow_run: Mapping[str, Any] | None
    workflow_url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingView:
    """An approval that waits, with what it is asked for."""

    approval: Approval
    name: str
    arguments: Shown
    url: str


def run_views(
    using: str, runs: list[Run], *, now: datetime, site: str, workflows: Mapping[str, Mapping[str, Any]]
) -> list[RunView]:
    """The runs with their grades. One query."""
    scores = reads.read_scores(using, [run.run_id for run in runs])
    return [
        RunView(
            run=run,
            url=run_url(run.run_id, site),
            took=duration((now if run.status == AgentRunStatus.RUNNING else run.updated_at) - run.created_at),
            tokens=number(run.usage.input_tokens + run.usage.output_tokens),
            grades=_grades(scores.get(run.run_id, [])),
            workflow_run=workflows.get(run.workflow_run_id or ""),
            workflow_url=RunUrls(run.workflow_run_id or "", site).page if run.workflow_run_id in workflows else "",
        )
        for run in runs
    ]


def _grades(scores: list[dict[str, Any]]) -> list[Grades]:
    by_scorer: dict[str, list[dict[str, Any]]] = {}
    for score in scores:
        by_scorer.setdefault(score["scorer_name"], []).append(score)
    return [
        Grades(
            scorer=scorer,
            score=found[-1]["shown"],
            reason=shorten(found[-1]["why"] or "", _REASON),
            at=found[-1]["created_at"],
            earlier=found[:-1][::-1],
        )
        for scorer, found in by_scorer.items()
    ]


def pending_view(approval: Approval, *, site: str, allowance: Allowance) -> PendingView:
    """An approval: the arguments are those that people are meant to be shown, if there are such."""
    shown = approval.args if approval.display_args is None else approval.display_args
    return PendingView(
        approval=approval,
        name=approval.display_tool_name or approval.tool_name or "",
        arguments=allowance.take(as_text(shown), _ARGUMENTS),
        url=approval_url(approval.tool_call_id, site),
    )


def place_of(params: QueryDict) -> reads.Place:
    """Which page of the conversation the address asks for."""
    return reads.Place(
        before=params.get("before", ""), after=params.get("after", ""), from_start=params.get("from") == "start"
    )


class ThreadPage:
    """One thread as `visible` lets somebody see it. `sees_workflows` says whether they may see runs of workflows."""

    def __init__(
        self,
        using: str,
        thread: AgentThread,
        place: reads.Place,
        *,
        visible: Ownership,
        sees_workflows: bool,
        now: datetime,
        site: str,
    ) -> None:
        self.thread, self.place, self.now = thread, place, now
        self.urls = ThreadUrls(thread.pk, site)
        self._using, self._visible, self._sees_workflows, self._site = using, visible, sees_workflows, site

    @property
    def title(self) -> str:
        """What the thread is called."""
        return shorten(self.thread.title or "", _TITLE) or gettext("Without a title")

    # -- the conversation --------------------------------------------------------------------------------------------

    @cached_property
    def conversation(self) -> Conversation:
        """The messages that the place asks for."""
        names, (_by_id, by_call) = self._names, self._workflow_runs
        linked = {key: {**row, "url": RunUrls(row["id"], self._site).page} for key, row in by_call.items()}
        return Conversation(self._messages, self.urls, site=self._site, now=self.now, names=names, workflow_runs=linked)

    @cached_property
    def _messages(self) -> reads.MessagePage:
        return reads.read_messages(self._using, self.thread.pk, self.place)

    @cached_property
    def _names(self) -> dict[str, str]:
        calls = [call for found in self._messages.calls.values() for call in found]
        return resource_names([self.thread.resource_id, *(call["approval_resolved_by"] for call in calls)])

    @cached_property
    def _workflow_runs(self) -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, Any]]]:
        if not self._sees_workflows:
            return {}, {}
        call_ids = [call["id"] for found in self._messages.calls.values() for call in found]
        run_ids = [run.workflow_run_id for run in self._runs]
        return reads.read_workflow_runs(run_ids=run_ids, call_ids=call_ids)

    # -- runs and approvals ------------------------------------------------------------------------------------------

    @cached_property
    def _runs(self) -> list[Run]:
        rows = agent_reads.runs(self._using, thread_id=self.thread.pk)
        return agent_reads.page_of_runs(rows, self._visible, None, reads.RUNS + 1)

    @cached_property
    def runs(self) -> list[RunView]:
        """The latest runs, the newest first."""
        workflows = self._workflow_runs[0]
        return run_views(self._using, self._runs[: reads.RUNS], now=self.now, site=self._site, workflows=workflows)

    @property
    def all_runs_url(self) -> str:
        """The list of all runs, if there are more."""
        return runs_url(self._site, thread=self.thread.pk) if len(self._runs) > reads.RUNS else ""

    @cached_property
    def pending(self) -> list[PendingView]:
        """What waits for an answer, the oldest first."""
        allowance = Allowance(PENDING_SHOWN * _ARGUMENTS)
        return [
            pending_view(approval, site=self._site, allowance=allowance)
            for approval in reads.read_pending(self._using, self.thread.pk, PENDING_SHOWN)
        ]

    @property
    def is_active(self) -> bool:
        """Whether something may change by itself soon."""
        return any(
            run.status == AgentRunStatus.RUNNING and reads.is_active(run.updated_at, self.now) for run in self._runs
        )

    @property
    def fingerprint(self) -> str:
        """Differs once a message, a run or an approval of this differs."""
        runs = [[run.run_id, run.status, run.updated_at.isoformat()] for run in self._runs]
        waiting = [view.approval.tool_call_id for view in self.pending]
        return derived_id("thread page", self.thread.updated_at.isoformat(), str(runs), str(waiting))

    # -- the header --------------------------------------------------------------------------------------------------

    @cached_property
    def facts(self) -> list[Fact]:
        """The header's table."""
        thread = self.thread
        read = reads.read_facts(self._using, [thread.pk]).get(thread.pk, reads.ThreadFacts())
        more = gettext("more than %(n)d") % {"n": COUNT_UP_TO}
        facts = [
            owner_fact(thread.resource_id, self._names),
            Fact(gettext("Agent"), read.agent or "—"),
            Fact(gettext("Messages"), more if read.messages is None else str(read.messages)),
            Fact(gettext("Runs"), more if read.runs is None else str(read.runs)),
            Fact(gettext("Tokens"), more if read.tokens is None else number(read.tokens)),
            Fact.since(gettext("Started"), thread.created_at, self.now),
            Fact.since(gettext("Last activity"), thread.updated_at, self.now),
        ]
        checkpoint = reads.read_checkpoint(self._using, thread.pk)
        if checkpoint is not None:
            at = checkpoint["created_at"]
            facts.append(Fact(gettext("Last checkpoint of LangGraph"), ago(at, self.now), checkpoint["checkpoint_id"]))
        return facts

    @property
    def owner_url(self) -> str:
        """The threads of the same owner."""
        return threads_url(self._site, resource=self.thread.resource_id)

    # -- beside it ---------------------------------------------------------------------------------------------------

    @cached_property
    def memories(self) -> list[PayloadView]:
        """What is remembered of the thread and of its owner."""
        found = reads.read_memories(self._using, self.thread.pk, self.thread.resource_id)
        titles = {
            MemoryScope.THREAD.value: gettext("Memory of the thread"),
            MemoryScope.RESOURCE.value: gettext("Memory of the owner"),
        }
        return [
            PayloadView.of(title, found[scope], self.urls.memory(scope))
            for scope, title in titles.items()
            if scope in found
        ]

    @cached_property
    def metadata(self) -> PayloadView | None:
        """What the program keeps with the thread."""
        if not self.thread.metadata:
            return None
        return PayloadView.of(gettext("Metadata"), self.thread.metadata, self.urls.memory("metadata"))
