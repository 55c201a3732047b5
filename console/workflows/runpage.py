"""Everything the page of one run shows, read in a number of queries that does not depend on its size."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db.models import QuerySet
from django.utils.functional import cached_property
from django.utils.translation import gettext, gettext_lazy, pgettext_lazy

from console.owners import owner_names
from console.parts import Fact, PayloadView
from console.workflows import reads
from console.workflows.banners import Banner, awaited_queues, banner_of, failed_step_of, ids_of_people, origin_of
from console.workflows.drawing import Chart, draw, scale_of
from console.workflows.facts import facts_of
from console.workflows.gate import Gate, read_gate
from console.workflows.operations import OPERATIONS
from console.workflows.pagequery import PageQuery
from console.workflows.panel import StepPanel, load_panel
from console.workflows.records import RunRow, StepRow
from console.workflows.runurls import RunUrls
from console.workflows.states import FILTERABLE, State
from console.workflows.timeline import Lane, Timeline, build_timeline
from console.workflows.walk import Drawing, of_graph, place, walked
from pikku_storage.workflows import reads as workflow_reads
from pikku_storage.workflows.graphs.structure import GRAPH_SOURCE
from pikku_storage.workflows.graphs.view import GraphView
from pikku_storage.workflows.models import WorkflowRun
from pikku_storage.workflows.registry import registry
from pikku_storage.workflows.statuses import StepStatus
from pikku_storage.workflows.timeline import TimelineEvent

EVENTS_SHOWN = 100
EVENTS_EMBEDDED = 300
"""Up to so many events come with the page; those of a larger run load when somebody touches the slider."""


class RunPage:
    """One look at one run. `site` is the admin site's name."""

    state_choices = FILTERABLE
    relation_labels = {
        "parent": gettext_lazy("started by"),
        "retry": gettext_lazy("new try of"),
        "rerun": gettext_lazy("run again after"),
        "fork": gettext_lazy("forked from"),
        "child": pgettext_lazy("this run, another run", "started"),
        "retry_by": gettext_lazy("tried again as"),
        "rerun_by": gettext_lazy("run again as"),
        "fork_by": gettext_lazy("forked as"),
        "made": gettext_lazy("taken up by"),
    }

    def __init__(
        self, runs: QuerySet[WorkflowRun], run: RunRow, query: PageQuery, *, now: datetime, site: str = "admin"
    ) -> None:
        self._runs = runs
        self.run = run
        self.query = query
        self.now = now
        self.site = site
        self.urls = RunUrls(run.id, site)

    # -- the timeline ------------------------------------------------------------------------------------------------

    @cached_property
    def runs(self) -> dict[str, RunRow]:
        """The run, and its opened child runs, by id."""
        opened = [run_id for run_id in self.query.lanes.opened if run_id != self.run.id]
        return {self.run.id: self.run, **reads.read_runs(self._runs, opened)}

    @cached_property
    def _steps(self) -> dict[str, list[StepRow]]:
        return reads.read_steps(self._runs.db, list(self.runs))

    @property
    def steps(self) -> list[StepRow]:
        """All steps, without payloads."""
        return self._steps[self.run.id]

    @cached_property
    def _timelines(self) -> dict[str, Timeline]:
        attempts = reads.read_attempts(self._runs.db, list(self.runs))
        return {
            run_id: build_timeline(run, self._steps[run_id], attempts, now=self.now)
            for run_id, run in self.runs.items()
        }

    @property
    def timeline(self) -> Timeline:
        """Lanes and events."""
        return self._timelines[self.run.id]

    @cached_property
    def chart(self) -> Chart:
        """The page of lanes that was asked for."""
        return draw(self.timeline, self.query.lanes, self._timelines)

    @cached_property
    def drawing(self) -> Drawing | None:
        """The run as a graph: all of a graph's nodes, or the path that a body took; `None` without a step."""
        at = self.query.lanes.at
        if self.graph is not None:
            return place(of_graph(self.graph, self.timeline, at=at))
        return place(walked(self.timeline, self.steps, at=at)) if self.steps else None

    @cached_property
    def fingerprint(self) -> str:
        """Differs once something of this differs."""
        return reads.fingerprint_of(self.run, self.steps)

    @property
    def event_count(self) -> int:
        """How many events there are."""
        return len(self.timeline.events)

    @property
    def position(self) -> int:
        """How many events have happened at the moment that is looked at."""
        at = self.query.lanes.at
        return self.event_count if at is None else min(at + 1, self.event_count)

    @cached_property
    def current_event(self) -> TimelineEvent | None:
        """The event that the page looks back at; `None` in the present."""
        at = self.query.lanes.at
        return None if at is None or not 0 <= at < self.event_count else self.timeline.events[at]

    @property
    def recent_events(self) -> Sequence[TimelineEvent]:
        """The latest events, the latest first."""
        return self.timeline.events[: -EVENTS_SHOWN - 1 : -1]

    @property
    def embedded_events(self) -> dict[str, Any] | None:
        """The slider's data if it is small enough to come with the page."""
        return self.travel_data if self.event_count <= EVENTS_EMBEDDED else None

    @cached_property
    def travel_data(self) -> dict[str, Any]:
        """What the slider needs of each event, in columns: place on the track, step, kind, attempt and time."""
        scale = scale_of(self.timeline, hides_idle=self.query.lanes.hides_idle)
        lanes = list(self.timeline.steps())
        index = {lane.name: number for number, lane in enumerate(lanes)}
        origins = {step.step_name: step.from_step_name for step in self.steps}
        events = self.timeline.events
        groups = {lane.name: [index[child.name] for child in lane.children] for lane in self.timeline.lanes}
        return {
            "x": [round(scale.at(event.at), 2) for event in events],
            "step": [index[event.step_name] for event in events],
            "type": "".join(event.type[0] if event.type != "scheduled" else "q" for event in events),
            "attempt": [event.attempt_count for event in events],
            "ms": [round((event.at - self.timeline.start) / timedelta(milliseconds=1)) for event in events],
            "ids": [lane.step_id for lane in lanes],
            "names": [lane.name for lane in lanes],
            "from": [origins.get(lane.name) for lane in lanes],
            "sleeps": [number for number, lane in enumerate(lanes) if all(bar.kind == "waiting" for bar in lane.bars)],
            "groups": {name: members for name, members in groups.items() if members},
        }

    # -- the header --------------------------------------------------------------------------------------------------

    @cached_property
    def _people(self) -> dict[str, str]:
        return owner_names(ids_of_people(self.run))

    @cached_property
    def banner(self) -> Banner | None:
        """What it waits for, or why it ended."""
        step = failed_step_of(self.run)
        step_error = reads.read_error_name(self._runs.db, self.run.id, step) if step else ""
        return banner_of(self.run, self.steps, self.timeline, now=self.now, step_error=step_error, people=self._people)

    @property
    def origin(self) -> Banner | None:
        """Which run it was made from, by whom and why."""
        return origin_of(self.run, self._people, self._url_of)

    @property
    def awaited_queues(self) -> list[str]:
        """The queues on which it waits for a worker."""
        return awaited_queues(self.run, self.steps, self.timeline)

    @cached_property
    def facts(self) -> list[Fact]:
        """The header's table."""
        parent_url = self._url_of(self.run.parent_id or "")
        return facts_of(self.run, self.steps, self.timeline, self._people, parent_url=parent_url, now=self.now)

    def _url_of(self, run_id: str) -> str:
        """The page of a related run; empty if that is gone."""
        return next((relation["url"] for relation in self.relations if relation["run"].run_id == run_id), "")

    def gate_for(self, user: Any) -> Gate | None:
        """The approval at which the run stands, for somebody who may perhaps answer it."""
        asking = [step for step in self.steps if step.is_approval and step.status == StepStatus.RUNNING]
        if not asking or self.run.is_terminal:
            return None
        found = read_gate(self._runs.db, self.run.id, asking[-1].id)
        if found is None:
            return None
        return Gate(
            step=found[0],
            last=found[1],
            run_status=self.run.status,
            owner_id=self.run.owner_id,
            user=user,
            now=self.now,
            url=self.urls.answer(found[0].step_id),
        )

    @property
    def operations(self) -> list[dict[str, str]]:
        """The buttons: label, address, and why it is disabled if it is."""
        return [
            {
                "label": str(operation.label),
                "url": self.urls.operation(operation.name),
                "why_not": operation.why_not(self.run.status),
            }
            for operation in OPERATIONS.values()
        ]

    # -- its graph ---------------------------------------------------------------------------------------------------

    @cached_property
    def graph(self) -> GraphView | None:
        """How far each node is, for a run of a graph. A run of a function that is known needs no query to say so."""
        run = self.run
        known = registry.workflows.get(run.workflow)
        is_body = known is not None and known.version_source != GRAPH_SOURCE and known.graph_hash == run.graph_hash
        if run.graph_hash is None or is_body:
            return None
        return workflow_reads.graph_view(self._runs.db, run.id, run.workflow, run.graph_hash)

    # -- beside it ---------------------------------------------------------------------------------------------------

    @cached_property
    def payloads(self) -> list[PayloadView]:
        """State, input and output; without an output while there is none."""
        read = reads.read_run_payloads(self._runs.db, self.run.id)
        if read is None:
            return []
        views = [
            PayloadView.of(gettext("Run state"), read.state or {}, self.urls.payload("state"), changes=True),
            PayloadView.of(gettext("Input"), read.input, self.urls.payload("input")),
        ]
        if self.run.status == "completed":
            output = self.urls.payload("output")
            views.append(PayloadView.of(gettext("Output"), read.output, output, changes=True))
        return views

    @cached_property
    def relations(self) -> list[dict[str, Any]]:
        """Other runs that have to do with this one."""
        return [
            {
                "label": self.relation_labels[relation.kind],
                "run": relation,
                "url": RunUrls(relation.run_id, self.site).page if relation.workflow is not None else "",
            }
            for relation in reads.read_relations(self._runs, self.run, self.steps)
        ]

    # -- the opened step ---------------------------------------------------------------------------------------------

    @cached_property
    def selected_id(self) -> str:
        """The step to show: the one asked for, else the one somebody would look at first."""
        return self.query.step_id or self._interesting_step

    @cached_property
    def panel(self) -> StepPanel | None:
        """The panel of the selected step; `None` if there is no such step in this run."""
        return self.panel_of(self.selected_id) if self.selected_id else None

    def panel_of(self, step_id: str) -> StepPanel | None:
        """The panel of a step; `None` if there is no such step in this run, or an opened one."""
        return load_panel(self._runs.db, step_id, runs=self.runs, now=self.now, site=self.site)

    @property
    def _interesting_step(self) -> str:
        lanes: list[Lane] = list(self.timeline.steps())
        by_state = {lane.state: lane.step_id for lane in reversed(lanes)}
        for state in (State.FAILED, State.RUNNING, State.WAITING, State.QUEUED):
            if by_state.get(state):
                return by_state[state] or ""
        return lanes[-1].step_id or "" if lanes else ""
