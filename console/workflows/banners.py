"""The one sentence above a run's page: what it waits for, or why it ended. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any

from django.utils.dateparse import parse_datetime
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext, ngettext

from console.formatting import absolute, ago, duration, short_id, shorten
from console.workflows.records import RunRow, StepRow
from console.workflows.states import State
from console.workflows.timeline import Timeline
from pikku_storage.conf import settings
from pikku_storage.exceptions import WorkflowStepFailedError
from pikku_storage.workflows.dispatch import is_inline
from pikku_storage.workflows.engine.waits import LIMIT_KINDS
from pikku_storage.workflows.errors import RPC_NOT_FOUND, VERSION_CONFLICT, WORKFLOW_NOT_FOUND
from pikku_storage.workflows.statuses import RunStatus, StepStatus

_MESSAGE_LIMIT = 400
_GRACE = timedelta(seconds=30)
"""What is due for longer than this is late: nobody seems to look."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Banner:
    """`kind` is waiting, failed, or quiet. `code` is the error's, if it has one."""

    kind: str
    text: SafeString
    code: str = ""
    hint: str = ""


def banner_of(
    run: RunRow,
    steps: Sequence[StepRow],
    timeline: Timeline,
    *,
    now: datetime,
    step_error: str = "",
    people: Mapping[str, str] = MappingProxyType({}),
) -> Banner | None:
    """What there is to say about this run; `None` while it works, and when it is completed.

    `step_error` is the name of the error of the step that `failed_step_of` names. `people` has names by id.
    """
    if run.status == RunStatus.FAILED:
        return _failed(run.error, step_error)
    if run.status == RunStatus.CANCELLED:
        return _cancelled(run, people)
    if run.cancel_request is not None:
        return _being_undone(run, people)
    if run.status == RunStatus.SUSPENDED:
        return _suspended(run, steps, now)
    if run.status == RunStatus.RUNNING:
        return _waiting(run, steps, timeline, now)
    return None


def message_of(error: Any) -> str:
    """The message of a stored error, shortened; empty without one."""
    message = error.get("message") if isinstance(error, Mapping) else error
    return "" if message is None else shorten(str(message), _MESSAGE_LIMIT)


def code_of(error: Any) -> str:
    """The code of a stored error; empty without one."""
    code = error.get("code") if isinstance(error, Mapping) else None
    return "" if code is None else shorten(str(code), 80)


def failed_step_of(run: RunRow) -> str:
    """The name of the step whose failure ended the run; empty if it was something else."""
    if run.status != RunStatus.FAILED or not isinstance(run.error, Mapping):
        return ""
    step = run.error.get("step")
    is_of_step = run.error.get("name") == WorkflowStepFailedError.__name__
    return step if is_of_step and isinstance(step, str) else ""


def _failed(error: Any, step_error: str) -> Banner:
    parts = error if isinstance(error, Mapping) else {}
    # The exception that the body saw only wraps the step's own.
    name = shorten(str(step_error or parts.get("name") or ""), 80)
    step = shorten(str(parts.get("step") or ""), 120)
    message = message_of(error) or gettext("no message was stored")
    if name and step:
        text = format_html(gettext("Failed in <b>{}</b> with <b>{}</b>: {}"), step, name, message)
    elif step:
        text = format_html(gettext("Failed in <b>{}</b>: {}"), step, message)
    elif name:
        text = format_html(gettext("Failed with <b>{}</b>: {}"), name, message)
    else:
        text = format_html(gettext("Failed: {}"), message)
    return Banner(kind="failed", text=text, code=code_of(error))


def _cancelled(run: RunRow, people: Mapping[str, str]) -> Banner:
    reason = message_of(run.error) or gettext("no reason was given")
    when, who = absolute(run.updated_at), _who(run.error, people)
    text = (
        format_html(gettext("Cancelled {} by <b>{}</b>: {}"), when, who, reason)
        if who
        else format_html(gettext("Cancelled {}: {}"), when, reason)
    )
    return Banner(kind="quiet", text=text, code=code_of(run.error))


def _being_undone(run: RunRow, people: Mapping[str, str]) -> Banner:
    reason, who = message_of(run.cancel_request), _who(run.cancel_request, people)
    text = (
        format_html(gettext("Being undone, then cancelled by <b>{}</b>: {}"), who, reason)
        if who
        else format_html(gettext("Being undone, then cancelled: {}"), reason)
    )
    return Banner(kind="waiting", text=text)


def ids_of_people(run: RunRow) -> list[str]:
    """The ids of those who stand in the banners of this run, and of its owner."""
    found = [run.owner_id, _by(run.error), _by(run.cancel_request), _by(run.wire)]
    return [each for each in found if each]


def origin_of(run: RunRow, people: Mapping[str, str], url_of: Callable[[str], str]) -> Banner | None:
    """Which run this one was made from, by whom and why; `None` for one that was started. `url_of` is empty for a run
    that is gone."""
    made = {
        "forkOf": gettext("Forked from {} at <b>{}</b>"),
        "retryOf": gettext("A new try of {}"),
        "rerunOf": gettext("Run again after {}"),
    }
    key = next((key for key in made if run.from_wire(key)), None)
    if key is None:
        return None
    origin = run.from_wire(key) or ""
    url, shown = url_of(origin), format_html("<code>{}</code>", short_id(origin))
    named = format_html('<a href="{}">{}</a>', url, shown) if url else shown
    text = format_html(made[key], named, run.from_wire("forkFrom") or "")
    who, why = _who(run.wire, people), run.from_wire("reason")
    if who:
        text = format_html(gettext("{}, by <b>{}</b>"), text, who)
    if why:
        text = format_html(gettext("{}: {}"), text, shorten(why, _MESSAGE_LIMIT))
    return Banner(kind="quiet", text=text)


def _by(note: Any) -> str | None:
    who = note.get("by") if isinstance(note, Mapping) else None
    return who if isinstance(who, str) else None


def _who(note: Any, people: Mapping[str, str]) -> str:
    who = _by(note) or ""
    return people.get(who, who)


def _suspended(run: RunRow, steps: Sequence[StepRow], now: datetime) -> Banner:
    asks = next((step for step in steps if step.is_approval and step.status == StepStatus.RUNNING), None)
    if asks is not None:
        return _asks(run, asks, now)
    message = message_of(run.error)
    code = code_of(run.error)
    if code == RPC_NOT_FOUND:
        text = format_html(gettext("Waiting on a missing function: {}"), message)
        hint = gettext("The run goes on by itself once a worker knows the function.")
    elif code == WORKFLOW_NOT_FOUND:
        text = format_html(gettext("Waiting on a missing workflow: {}"), message)
        hint = gettext("The run goes on by itself once a worker knows the workflow.")
    elif code == VERSION_CONFLICT:
        text = format_html(gettext("Today's code does not fit this run: {}"), message)
        hint = gettext("The run goes on by itself once a worker has code that fits what was recorded.")
    else:
        # A suspended run's error is a reason, not a failure (contract console.md §5).
        text = format_html(gettext("Waiting to be resumed. {}"), message)
        hint = ""
    return Banner(kind="waiting", text=text, code=code, hint=hint)


def _not_let_in(run: RunRow, now: datetime) -> Banner | None:
    waits_for = run.waits_for if isinstance(run.waits_for, Mapping) else {}
    if waits_for.get("kind") not in LIMIT_KINDS:
        return None
    since = parse_datetime(str(waits_for.get("since"))) or run.updated_at
    said = shorten(str(waits_for.get("text") or ""), _MESSAGE_LIMIT)
    text = format_html(gettext("Waiting to be let in: {}. Lined up {}."), said, ago(since, now))
    return Banner(kind="waiting", text=text)


def _asks(run: RunRow, step: StepRow, now: datetime) -> Banner:
    who = {
        "owner": gettext("Its owner may answer."),
        "not-initiator": gettext("Anybody signed in may answer but who started the run."),
    }.get(step.approvers or "", gettext("Anybody may answer."))
    text = format_html(
        gettext("Waiting for an answer to <b>{}</b>, asked {}."), message_of(run.error), ago(step.created_at, now)
    )
    if step.planned is None:
        return Banner(kind="waiting", text=text, code=code_of(run.error), hint=who)
    ends = gettext("It expires %(when)s.") % {"when": absolute(step.created_at + step.planned)}
    return Banner(kind="waiting", text=text, code=code_of(run.error), hint=f"{who} {ends}")


def _waiting(run: RunRow, steps: Sequence[StepRow], timeline: Timeline, now: datetime) -> Banner | None:
    not_let_in = _not_let_in(run, now)
    if not_let_in is not None:
        return not_let_in
    states = {lane.step_id: lane.state for lane in timeline.steps()}
    running = [step for step in steps if states.get(step.id) is State.RUNNING]
    if running:
        return _on_children(running)
    waiting = [step for step in steps if states.get(step.id) is State.WAITING and step.due_at is not None]
    queued = [step for step in steps if states.get(step.id) is State.QUEUED]
    if queued:
        return _queued(queued, now)
    if waiting:
        return _due(min(waiting, key=lambda step: step.due_at or now), now)
    if run.due_at is not None and not run.inline and run.last_worker is None:
        text = format_html(gettext("No worker has taken this run yet; it was started {}."), ago(run.created_at, now))
        return Banner(kind="waiting", text=text, hint=_late_hint(run.created_at, now, gettext("a Celery worker")))
    return None


def awaited_queues(run: RunRow, steps: Sequence[StepRow], timeline: Timeline) -> list[str]:
    """The queues from which nobody has taken what this run has there; none while it works."""
    if run.status != RunStatus.RUNNING or run.inline or is_inline():
        return []
    states = {lane.step_id: lane.state for lane in timeline.steps()}
    queues = {step.queue or settings.QUEUE for step in steps if states.get(step.id) is State.QUEUED}
    if not steps and run.last_worker is None and run.due_at is not None:
        queues.add(settings.QUEUE)
    return sorted(queues)


def _on_children(running: Sequence[StepRow]) -> Banner | None:
    if not all(step.awaits_child for step in running):
        return None
    text = ngettext(
        "Waiting for the run that does <b>{}</b>.",
        "Waiting for {} runs, the first of them does <b>{}</b>.",
        len(running),
    )
    names = [running[0].step_name] if len(running) == 1 else [len(running), running[0].step_name]
    return Banner(kind="waiting", text=format_html(text, *names))


def _queued(steps: Sequence[StepRow], now: datetime) -> Banner:
    oldest = min(steps, key=lambda step: step.created_at)
    text = format_html(
        ngettext(
            "Waiting for a worker to take <b>{}</b>, queued {}.",
            "Waiting for workers to take {} queued steps; the oldest is <b>{}</b>, queued {}.",
            len(steps),
        ),
        *([] if len(steps) == 1 else [len(steps)]),
        oldest.step_name,
        ago(oldest.created_at, now),
    )
    worker = gettext("a Celery worker on the queue “%(queue)s”") % {"queue": oldest.queue or settings.QUEUE}
    return Banner(kind="waiting", text=text, hint=_late_hint(oldest.created_at, now, worker))


def _due(step: StepRow, now: datetime) -> Banner:
    due_at = step.due_at or now
    when = gettext("in %(left)s") % {"left": duration(due_at - now)} if due_at > now else ago(due_at, now)
    if step.rpc_name is None and step.status == "scheduled":
        text = format_html(gettext("Sleeping in <b>{}</b> until {} ({})."), step.step_name, absolute(due_at), when)
    else:
        text = format_html(
            gettext("<b>{}</b> failed; attempt {} of {} is due {} ({})."),
            step.step_name,
            step.attempt + 1,
            step.max_attempts or "∞",
            absolute(due_at),
            when,
        )
    relay = gettext("the relay (celery beat, or manage.py relay)")
    return Banner(kind="waiting", text=text, hint=_late_hint(due_at, now, relay))


def _late_hint(due_at: datetime, now: datetime, needed: str) -> str:
    return gettext("That is late: is %(needed)s running?") % {"needed": needed} if now - due_at > _GRACE else ""
