"""The table in the header of a run's page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from django.utils import timezone
from django.utils.html import format_html
from django.utils.translation import gettext

from console.formatting import absolute, ago, duration, short_id
from console.parts import Fact
from console.workflows.records import RunRow, StepRow
from console.workflows.states import State
from console.workflows.timeline import Timeline
from pikku_storage.workflows.registry import registry
from pikku_storage.workflows.schedules.wire import fire_time_of
from pikku_storage.workflows.statuses import StepStatus

NOTHING = "—"
_HASH_SHOWN = 8


def facts_of(
    run: RunRow,
    steps: Sequence[StepRow],
    timeline: Timeline,
    people: Mapping[str, str],
    *,
    parent_url: str,
    now: datetime,
) -> list[Fact]:
    """What is known of the run. `people` has the names of those whose ids stand in it; `parent_url` is empty if the
    parent is gone."""
    ended, worker = run.ended_at, _last_worker(run, steps)
    return [
        Fact.person(gettext("Owner"), run.owner_id, people),
        _trigger(run),
        _parent(run, parent_url),
        Fact.since(gettext("Started"), run.created_at, now),
        Fact(
            gettext("Ended"),
            gettext("not yet") if ended is None else ago(ended, now),
            "" if ended is None else absolute(ended),
        ),
        Fact(gettext("Duration"), duration((ended or now) - run.created_at)),
        _steps(steps, timeline),
        _attempts(timeline),
        _version(run),
        Fact(gettext("Idempotency key"), _code(run.idempotency_key), run.idempotency_key or ""),
        Fact(gettext("Last worker"), _code(worker), worker or ""),
        Fact(gettext("Times are in"), timezone.get_current_timezone_name()),
    ]


def _trigger(run: RunRow) -> Fact:
    kind = run.from_wire("type") or gettext("unknown")
    where = gettext("inline") if run.inline else gettext("queued")
    # The time for which a schedule started it, in the schedule's time zone.
    fire_at = fire_time_of(run.wire) if run.from_wire("fireTime") else None
    fire = "" if fire_at is None else gettext("for %(time)s") % {"time": f"{fire_at:%Y-%m-%d %H:%M %Z}"}
    return Fact(gettext("Trigger"), " · ".join(filter(None, (kind, run.from_wire("schedule"), where))), fire)


def _parent(run: RunRow, url: str) -> Fact:
    label, parent = gettext("Parent"), run.parent_id
    if parent is None:
        return Fact(label, NOTHING)
    shown = format_html("<code>{}</code>", short_id(parent))
    return Fact(label, format_html('<a href="{}">{}</a>', url, shown) if url else shown, parent)


def _steps(steps: Sequence[StepRow], timeline: Timeline) -> Fact:
    done = sum(step.status == StepStatus.SUCCEEDED for step in steps)
    text = gettext("%(done)d of %(all)d done") % {"done": done, "all": len(steps)}
    failed = sum(lane.state is State.FAILED for lane in timeline.steps())
    failures = gettext("%(n)d failed") % {"n": failed}
    return Fact(gettext("Steps"), f"{text} · {failures}" if failed else text)


def _attempts(timeline: Timeline) -> Fact:
    attempts = sum(lane.attempts for lane in timeline.steps())
    failed = sum(event.type == StepStatus.FAILED for event in timeline.events)
    text: str = str(attempts)
    if failed:
        text = format_html('{} <span class="pk-error">({})</span>', attempts, gettext("%(n)d failed") % {"n": failed})
    return Fact(gettext("Attempts"), text)


def _version(run: RunRow) -> Fact:
    label, stored = gettext("Version"), run.graph_hash
    if stored is None:
        return Fact(label, NOTHING)
    definition = registry.workflows.get(run.workflow)
    if definition is None:
        remark = gettext("not registered here")
    elif definition.graph_hash == stored:
        remark = gettext("current")
    else:
        remark = gettext("older; now %(hash)s") % {"hash": definition.graph_hash[:_HASH_SHOWN]}
    return Fact(label, format_html("<code>{}</code> · {}", stored[:_HASH_SHOWN], remark), stored)


def _last_worker(run: RunRow, steps: Sequence[StepRow]) -> str | None:
    latest = max((step for step in steps if step.claimed_by), key=lambda step: step.updated_at, default=None)
    return run.last_worker if latest is None else latest.claimed_by


def _code(text: str | None) -> str:
    return format_html("<code>{}</code>", text) if text else NOTHING
