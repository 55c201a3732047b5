"""What a step is doing, as an operator would say it: one state, one colour."""

from __future__ import annotations

from collections.abc import Iterable

from django.db.models import TextChoices
from django.utils.translation import gettext_lazy as _

from pikku_storage.workflows.statuses import StepStatus


class State(TextChoices):
    """A step's status with what `scheduled` and `failed` leave open told apart."""

    QUEUED = "queued", _("queued")
    RUNNING = "running", _("running")
    WAITING = "waiting", _("waiting")
    SUCCEEDED = "succeeded", _("succeeded")
    FAILED = "failed", _("failed")
    UNREACHED = "unreached", _("not reached")


FILTERABLE = (State.RUNNING, State.WAITING, State.QUEUED, State.SUCCEEDED, State.FAILED)
ACTIVE = frozenset({State.QUEUED, State.RUNNING, State.WAITING})

_PLAIN = {
    StepStatus.PENDING.value: State.QUEUED,
    StepStatus.SCHEDULED.value: State.QUEUED,
    StepStatus.RUNNING.value: State.RUNNING,
    StepStatus.SUCCEEDED.value: State.SUCCEEDED,
    StepStatus.FAILED.value: State.FAILED,
}


def state_of(status: str, *, is_wait: bool = False, retry_is_due: bool = False) -> State:
    """The state of a step with that status. A sleep that is not over waits; so does one that asks a person, and a
    failure to be tried again."""
    state = _PLAIN.get(status, State.QUEUED)
    if (is_wait and state in {State.QUEUED, State.RUNNING}) or (retry_is_due and state is State.FAILED):
        return State.WAITING
    return state


def state_of_group(states: Iterable[State]) -> State:
    """What a fan-out is doing: the liveliest thing one of its items does; failed if one failed and none is active."""
    found = set(states)
    for state in (State.RUNNING, State.WAITING, State.QUEUED, State.FAILED):
        if state in found:
            return state
    if State.UNREACHED in found:
        return State.RUNNING if State.SUCCEEDED in found else State.UNREACHED
    return State.SUCCEEDED
