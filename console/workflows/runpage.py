"""Everything the page of one run shows, read in a number of queries that does not depend on its size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from django.contrib.admin.utils import quote
from django.db.models import QuerySet
from django.http import QueryDict
from django.urls import reverse
from django.utils.functional import cached_property
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext, gettext_lazy

from console.formatting import absolute, ago, duration
from console.jsontree import render_tree, size_of
from console.owners import owner_names
from console.workflows import reads
from console.workflows.banners import Banner, banner_of, failed_step_of
from console.workflows.drawing import Chart, LaneQuery, draw, scale_of
from console.workflows.operations import OPERATIONS
from console.workflows.records import RunRow, StepRow
from console.workflows.states import FILTERABLE, State, state_of
from console.workflows.timeline import Lane, Timeline, build_timeline, is_sleeping_step
from pikku_storage.json import Json
from pikku_storage.workflows import reads as workflow_reads
from pikku_storage.workflows.graphs.structure import GRAPH_SOURCE
from pikku_storage.workflows.graphs.view import GraphView
from pikku_storage.workflows.models import WorkflowRun
from pikku_storage.workflows.registry import registry
from pikku_storage.workflows.schedules.wire import fire_time_of
from pikku_storage.workflows.statuses import StepStatus
from pikku_storage.workflows.timeline import TimelineEvent

EVENTS_SHOWN = 100
EVENTS_EMBEDDED = 300
"""Up to so many events come with the page; those of a larger run load when somebody touches the slider."""

_HASH_SHOWN = 8


@dataclass(frozen=True, slots=True)
class Fact:
    """A label and a value of the header."""

    label: str
    value: str
    title: str = ""


class RunUrls:
    """The addresses of one run's page and of what belongs to it."""

    def __init__(self, run_id: str, site: str = "admin") -> None:
        self._run_id = run_id
        self._site = site

    def _reverse(self, view: str, *args: str) -> str:
        name = f"admin:pikku_workflows_workflowrun_{view}"
        return reverse(name, args=[quote(self._run_id), *map(quote, args)], current_app=self._site)

    @property
    def page(self) -> str:
        """The page itself."""
        return self._reverse("change")

    @property
    def live(self) -> str:
        """What changes on the page, as HTML."""
        return self._reverse("live")

    @property
    def events(self) -> str:
        """The events in the form the slider uses."""
        return self._reverse("events")

    @property
    def raw_events(self) -> str:
        """The events as one reads them."""
        return f"{self.events}?raw=1"

    def step(self, step_id: str) -> str:
        """The panel of a step, as HTML."""
        return self._reverse("step", step_id)

    def payload(self, part: str) -> str:
        """A payload of the run, whole."""
        return self._reverse("payload", part)

    def step_payload(self, step_id: str, part: str) -> str:
        """A payload of a step, whole."""
        return self._reverse("step_payload", step_id, part)

    def operation(self, name: str) -> str:
        """The page that asks about an operation."""
        return self._reverse("operation", name)


@dataclass(frozen=True, slots=True, kw_only=True)
class PageQuery:
    """What the address asks the page for.

    In the address, as everywhere on the page, events are counted from 1, and 0 is the time before the first.
    """

    lanes: LaneQuery
    step_id: str

    @classmethod
    def from_params(cls, params: QueryDict) -> PageQuery:
        """From the query string; what makes no sense there is left out."""
        state = params.get("state", "")
        return cls(
            lanes=LaneQuery(
                state=state if state in FILTERABLE else "",
                name=params.get("name", "").strip()[:255],
                group=params.get("group", ""),
                page=_number(params.get("page")) or 1,
                hides_idle=params.get("idle") == "hide",
                at=_event_number(params.get("at")),
            ),
            step_id=params.get("step", ""),
        )

    def link(self, **changes: Any) -> str:
        """The query string of this view of the page with some parameters changed; `None` leaves one out."""
        lanes = self.lanes
        params = {
            "state": lanes.state or None,
            "name": lanes.name or None,
            "group": lanes.group or None,
            "page": lanes.page if lanes.page > 1 else None,
            "idle": "hide" if lanes.hides_idle else None,
            "at": None if lanes.at is None else lanes.at + 1,
            "step": self.step_id or None,
            **changes,
        }
        return f"?{urlencode({name: value for name, value in params.items() if value is not None})}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PayloadView:
    """A payload as shown: a tree cut to size, the whole's size, and where the whole is."""

    title: str
    tree: SafeString
    size: int
    url: str
    changes: bool = False
    """Whether it may have been another one earlier in the run."""

    @classmethod
    def of(cls, title: str, value: Json, url: str, *, changes: bool = False) -> PayloadView:
        """The view of that value."""
        return cls(title=title, tree=render_tree(value), size=size_of(value), url=url, changes=changes)


class StepPanel:
    """The opened step."""

    def __init__(self, step: reads.StepWithPayloads, state: State, *, is_sleep: bool, now: datetime, site: str) -> None:
        self.step = step
        self.row = step.row
        self.state = state
        self.is_sleep = is_sleep
        self._now = now
        urls = RunUrls(step.run_id, site)
        payload = urls.step_payload
        self.input = PayloadView.of(gettext("Input"), step.input, payload(self.row.id, "input"))
        self.output = PayloadView.of(gettext("Output"), step.output, payload(self.row.id, "output"))
        self.has_output = self.row.status == StepStatus.SUCCEEDED

    @cached_property
    def remarks(self) -> list[str]:
        """Short sentences for the panel's head."""
        row = self.row
        attempts = self.step.attempts
        queued = sum(
            ((attempt.row.running_at - attempt.row.created_at) for attempt in attempts if attempt.row.running_at),
            timedelta(),
        )
        ran = sum(
            (
                (attempt.row.ended_at or self._now) - attempt.row.running_at
                for attempt in attempts
                if attempt.row.running_at
            ),
            timedelta(),
        )
        remarks = []
        if queued >= timedelta(milliseconds=1):
            remarks.append(gettext("queued %(length)s") % {"length": duration(queued)})
        if self.row.is_gate:
            return [gettext("waits for a person")] if self.state is State.WAITING else []
        if not self.is_sleep and any(attempt.row.running_at for attempt in attempts):
            remarks.append(gettext("ran %(length)s") % {"length": duration(ran)})
        if row.max_attempts is not None and not self.is_sleep:
            remarks.append(
                gettext("%(used)d of %(most)d attempts used") % {"used": row.attempt, "most": row.max_attempts}
            )
        if row.queue:
            remarks.append(gettext("queue %(queue)s") % {"queue": row.queue})
        if self.state is State.WAITING and row.due_at is not None:
            when = absolute(row.due_at)
            text = gettext("wakes %(when)s") if self.is_sleep else gettext("next attempt %(when)s")
            remarks.append(text % {"when": when})
        return remarks

    def took(self, attempt: reads.Attempt) -> str:
        """How long an attempt ran, or has been running."""
        if attempt.row.running_at is None and not self.is_sleep:
            return ""
        return duration((attempt.row.ended_at or self._now) - attempt.started_at)

    @cached_property
    def lines(self) -> list[dict[str, Any]]:
        """The rows of the attempts table."""
        return [{"attempt": attempt, "took": self.took(attempt)} for attempt in self.step.attempts]


class RunPage:
    """One look at one run. `site` is the admin site's name."""

    state_choices = FILTERABLE
    relation_labels = {
        "parent": gettext_lazy("started by"),
        "retry_of": gettext_lazy("new try of"),
        "child": gettext_lazy("started"),
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
    def steps(self) -> list[StepRow]:
        """All steps, without payloads."""
        return reads.read_steps(self._runs.db, self.run.id)

    @cached_property
    def timeline(self) -> Timeline:
        """Lanes and events."""
        attempts = reads.read_attempts(self._runs.db, self.run.id)
        return build_timeline(self.run, self.steps, attempts, now=self.now)

    @cached_property
    def chart(self) -> Chart:
        """The page of lanes that was asked for."""
        return draw(self.timeline, self.query.lanes)

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
    def banner(self) -> Banner | None:
        """What it waits for, or why it ended."""
        step = failed_step_of(self.run)
        step_error = reads.read_error_name(self._runs.db, self.run.id, step) if step else ""
        return banner_of(self.run, self.steps, self.timeline, now=self.now, step_error=step_error)

    @cached_property
    def facts(self) -> list[Fact]:
        """The header's table."""
        run = self.run
        ended = run.ended_at
        attempts = sum(lane.attempts for lane in self.timeline.steps())
        failed = sum(event.type == StepStatus.FAILED for event in self.timeline.events)
        done = sum(step.status == StepStatus.SUCCEEDED for step in self.steps)
        done_text = gettext("%(done)d of %(all)d done") % {"done": done, "all": len(self.steps)}
        failed_steps = sum(lane.state is State.FAILED for lane in self.timeline.steps())
        if failed_steps:
            done_text += " · " + gettext("%(n)d failed") % {"n": failed_steps}
        trigger = run.from_wire("type") or gettext("unknown")
        where = gettext("inline") if run.inline else gettext("queued")
        attempts_text: str = str(attempts)
        if failed:
            failures = gettext("%(n)d failed") % {"n": failed}
            attempts_text = format_html('{} <span class="pk-error">({})</span>', attempts, failures)
        return [
            Fact(gettext("Owner"), self._owner, run.owner_id or ""),
            Fact(gettext("Trigger"), " · ".join(filter(None, (trigger, run.from_wire("schedule"), where))), self._fire),
            Fact(gettext("Started"), ago(run.created_at, self.now), absolute(run.created_at)),
            Fact(
                gettext("Ended"),
                gettext("not yet") if ended is None else ago(ended, self.now),
                "" if ended is None else absolute(ended),
            ),
            Fact(gettext("Duration"), duration((ended or self.now) - run.created_at)),
            Fact(gettext("Steps"), done_text),
            Fact(gettext("Attempts"), attempts_text),
            self._version,
            Fact(gettext("Idempotency key"), _code(run.idempotency_key), run.idempotency_key or ""),
            Fact(gettext("Last worker"), _code(self._last_worker), self._last_worker or ""),
        ]

    @property
    def _fire(self) -> str:
        """The time for which a schedule started it, in the schedule's time zone."""
        fire_at = fire_time_of(self.run.wire) if self.run.from_wire("fireTime") else None
        return "" if fire_at is None else gettext("for %(time)s") % {"time": f"{fire_at:%Y-%m-%d %H:%M %Z}"}

    @property
    def _owner(self) -> str:
        owner_id = self.run.owner_id
        return "—" if owner_id is None else owner_names([owner_id]).get(owner_id, owner_id)

    @cached_property
    def _last_worker(self) -> str | None:
        latest = max((step for step in self.steps if step.claimed_by), key=lambda step: step.updated_at, default=None)
        return self.run.last_worker if latest is None else latest.claimed_by

    @property
    def _version(self) -> Fact:
        stored = self.run.graph_hash
        label = gettext("Version")
        if stored is None:
            return Fact(label, "—")
        definition = registry.workflows.get(self.run.workflow)
        if definition is None:
            remark = gettext("not registered here")
        elif definition.graph_hash == stored:
            remark = gettext("current")
        else:
            remark = gettext("older; now %(hash)s") % {"hash": definition.graph_hash[:_HASH_SHOWN]}
        return Fact(label, format_html("<code>{}</code> · {}", stored[:_HASH_SHOWN], remark), stored)

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
        """The panel of a step; `None` if there is no such step in this run."""
        return load_panel(self._runs.db, step_id, run=self.run, now=self.now, site=self.site)

    @property
    def _interesting_step(self) -> str:
        lanes: list[Lane] = list(self.timeline.steps())
        by_state = {lane.state: lane.step_id for lane in reversed(lanes)}
        for state in (State.FAILED, State.RUNNING, State.WAITING, State.QUEUED):
            if by_state.get(state):
                return by_state[state] or ""
        return lanes[-1].step_id or "" if lanes else ""


def load_panel(using: str, step_id: str, *, run: RunRow | None, now: datetime, site: str) -> StepPanel | None:
    """The panel of a step, with `run` only if it is that run's; `None` if there is none. Two queries."""
    step = reads.read_step(using, step_id, run_id=None if run is None else run.id)
    if step is None:
        return None
    is_sleep = is_sleeping_step(step.row, [attempt.row for attempt in step.attempts])
    is_live = run is None or not run.is_terminal
    is_wait = is_sleep or step.row.is_gate
    state = state_of(step.row.status, is_wait=is_wait, retry_is_due=is_live and step.row.due_at is not None)
    return StepPanel(step, state, is_sleep=is_sleep, now=now, site=site)


def _code(text: str | None) -> str:
    return "—" if not text else format_html("<code>{}</code>", text)


def _event_number(text: str | None) -> int | None:
    number = _number(text)
    return None if number is None else max(number, 0) - 1


def _number(text: str | None) -> int | None:
    try:
        return None if text is None else max(-1, int(text))
    except ValueError:
        return None
