"""The panel of a step: its attempts, its payloads, and what may be done about it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from django.utils.functional import cached_property
from django.utils.translation import gettext

from console.formatting import absolute, duration
from console.parts import PayloadView
from console.workflows import reads
from console.workflows.operations import OPERATIONS
from console.workflows.records import RunRow
from console.workflows.runurls import RunUrls
from console.workflows.states import State, state_of
from console.workflows.timeline import is_sleeping_step
from pikku_storage.workflows.statuses import StepStatus


class StepPanel:
    """The opened step. `run` is known on the page of its run only; without it nothing is offered to be done."""

    def __init__(
        self,
        step: reads.StepWithPayloads,
        state: State,
        *,
        run: RunRow | None,
        is_sleep: bool,
        now: datetime,
        site: str,
    ) -> None:
        self.step = step
        self.row = step.row
        self.state = state
        self.is_sleep = is_sleep
        self._run = run
        self._now = now
        self._urls = RunUrls(step.run_id, site)
        self._site = site
        payload = self._urls.step_payload
        self.input = PayloadView.of(gettext("Input"), step.input, payload(self.row.id, "input"))
        self.output = PayloadView.of(gettext("Output"), step.output, payload(self.row.id, "output"))
        self.has_output = self.row.status == StepStatus.SUCCEEDED

    @property
    def child_url(self) -> str:
        """The page of the run that did it; empty if that is gone."""
        return RunUrls(self.row.child_run_id or "", self._site).page if self.step.has_child else ""

    @cached_property
    def remarks(self) -> list[str]:
        """Short sentences for the panel's head."""
        if self.row.is_gate:
            return [gettext("waits for a person")] if self.state is State.WAITING else []
        return [*self._spent, *self._budget, *self._next]

    @property
    def _spent(self) -> Iterable[str]:
        begun = [attempt.row for attempt in self.step.attempts if attempt.row.running_at]
        queued = sum(((row.running_at or row.created_at) - row.created_at for row in begun), timedelta())
        if queued >= timedelta(milliseconds=1):
            yield gettext("queued %(length)s") % {"length": duration(queued)}
        if begun and not self.is_sleep:
            ran = sum(((row.ended_at or self._now) - (row.running_at or self._now) for row in begun), timedelta())
            yield gettext("ran %(length)s") % {"length": duration(ran)}

    @property
    def _budget(self) -> Iterable[str]:
        row = self.row
        if row.max_attempts is not None and not self.is_sleep:
            yield gettext("%(used)d of %(most)d attempts used") % {"used": row.attempt, "most": row.max_attempts}
            left = row.max_attempts - row.attempt
            if left > 0 and self.state is not State.SUCCEEDED:
                yield gettext("%(n)d left") % {"n": left}
        if row.queue:
            yield gettext("queue %(queue)s") % {"queue": row.queue}

    @property
    def _next(self) -> Iterable[str]:
        if self.state is State.WAITING and self.row.due_at is not None:
            text = gettext("wakes %(when)s") if self.is_sleep else gettext("next attempt %(when)s")
            yield text % {"when": absolute(self.row.due_at)}

    @cached_property
    def moments(self) -> list[tuple[str, datetime | None]]:
        """When the step was made, and when its latest attempt was queued, begun and ended."""
        latest = self.step.attempts[-1].row if self.step.attempts else None
        return [
            (gettext("Created"), self.row.created_at),
            (gettext("Queued"), None if latest is None else latest.scheduled_at or latest.created_at),
            (gettext("Started"), None if latest is None else latest.running_at),
            (gettext("Ended"), None if latest is None else latest.ended_at),
        ]

    def took(self, attempt: reads.Attempt) -> str:
        """How long an attempt ran, or has been running."""
        if attempt.row.running_at is None and not self.is_sleep:
            return ""
        return duration((attempt.row.ended_at or self._now) - attempt.started_at)

    @cached_property
    def lines(self) -> list[dict[str, Any]]:
        """The rows of the attempts table."""
        return [{"attempt": attempt, "took": self.took(attempt)} for attempt in self.step.attempts]

    @property
    def operations(self) -> list[dict[str, str]]:
        """What may be done from this step: label, address, and why it is disabled if it is."""
        if self._run is None:
            return []
        from_here = urlencode({"from_step": self.row.step_name})
        return [
            {
                "label": gettext("Retry this step"),
                "url": self._urls.operation("retry"),
                "why_not": self._why_not_retried(self._run.status),
            },
            {
                "label": gettext("Fork from this step"),
                "url": f"{self._urls.operation('fork')}?{from_here}",
                "why_not": "",
            },
        ]

    def _why_not_retried(self, run_status: str) -> str:
        if self.row.is_gate:
            return gettext("It asks a person, and is not carried out.")
        if self.state is State.SUCCEEDED:
            return gettext("It has succeeded: fork from it to carry it out once more.")
        if self.state in {State.QUEUED, State.RUNNING} or self.is_sleep:
            return gettext("It has not failed.")
        return OPERATIONS["retry"].why_not(run_status)


def load_panel(
    using: str, step_id: str, *, runs: Mapping[str, RunRow] | None, now: datetime, site: str
) -> StepPanel | None:
    """The panel of a step, with `runs` only if it is of one of these; `None` if there is none. Two queries."""
    step = reads.read_step(using, step_id, run_ids=None if runs is None else list(runs))
    if step is None:
        return None
    run = None if runs is None else runs[step.run_id]
    is_sleep = is_sleeping_step(step.row, [attempt.row for attempt in step.attempts])
    is_live = run is None or not run.is_terminal
    is_wait = is_sleep or step.row.is_gate
    state = state_of(step.row.status, is_wait=is_wait, retry_is_due=is_live and step.row.due_at is not None)
    return StepPanel(step, state, run=run, is_sleep=is_sleep, now=now, site=site)
