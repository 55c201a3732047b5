"""Statuses of runs and steps, and the only transitions there are.

`querysets/` builds the WHERE of each guarded UPDATE from these tables, so a row cannot take a way that is not drawn
here.
"""

from __future__ import annotations

from django.db.models import TextChoices
from django.utils.translation import gettext_lazy as _


class RunStatus(TextChoices):
    """Where a run is (contract services.md §1.1)."""

    RUNNING = "running", _("running")
    SUSPENDED = "suspended", _("suspended")
    COMPLETED = "completed", _("completed")
    FAILED = "failed", _("failed")
    CANCELLED = "cancelled", _("cancelled")


class StepStatus(TextChoices):
    """Where a step, or one attempt of it, is (contract services.md §1.1)."""

    PENDING = "pending", _("pending")
    SCHEDULED = "scheduled", _("scheduled")
    RUNNING = "running", _("running")
    SUCCEEDED = "succeeded", _("succeeded")
    FAILED = "failed", _("failed")


class VersionStatus(TextChoices):
    """Whether a stored workflow version may be used."""

    DRAFT = "draft", _("draft")
    ACTIVE = "active", _("active")
    DECLINED = "declined", _("declined")


class Verdict(TextChoices):
    """What became of an entry in an approval's trail. Set once; the last entry that is not refused is the outcome."""

    ACCEPTED = "accepted", _("accepted")
    REFUSED = "refused", _("refused")
    EXPIRED = "expired", _("expired")


RUN_TRANSITIONS: dict[RunStatus, frozenset[RunStatus]] = {
    RunStatus.RUNNING: frozenset(RunStatus),
    RunStatus.SUSPENDED: frozenset(RunStatus),
    RunStatus.COMPLETED: frozenset(),
    RunStatus.FAILED: frozenset(),
    RunStatus.CANCELLED: frozenset(),
}
"""Status → statuses a run may take next. Terminal statuses are never left."""

STEP_TRANSITIONS: dict[StepStatus, frozenset[StepStatus]] = {
    StepStatus.PENDING: frozenset({StepStatus.SCHEDULED, StepStatus.RUNNING, StepStatus.SUCCEEDED, StepStatus.FAILED}),
    StepStatus.SCHEDULED: frozenset({StepStatus.RUNNING, StepStatus.SUCCEEDED, StepStatus.FAILED}),
    StepStatus.RUNNING: frozenset({StepStatus.SUCCEEDED, StepStatus.FAILED}),
    StepStatus.SUCCEEDED: frozenset(),
    # Only as a new attempt: `current_attempt` grows with it, and a new history row begins.
    StepStatus.FAILED: frozenset({StepStatus.PENDING, StepStatus.RUNNING}),
}
"""Status → statuses a step may take next."""

TERMINAL_RUN_STATUSES = frozenset(status for status, following in RUN_TRANSITIONS.items() if not following)
LIVE_RUN_STATUSES = frozenset(RunStatus) - TERMINAL_RUN_STATUSES
END_STATUSES = TERMINAL_RUN_STATUSES | {RunStatus.SUSPENDED}
"""Statuses at which a waiter stops waiting (contract services.md §0)."""


def run_statuses_before(status: RunStatus) -> list[str]:
    """The statuses a run may leave for `status`, sorted."""
    return sorted(before.value for before, following in RUN_TRANSITIONS.items() if status in following)


def step_statuses_before(status: StepStatus) -> list[str]:
    """The statuses a step may leave for `status` within one attempt, sorted."""
    return sorted(
        before.value
        for before, following in STEP_TRANSITIONS.items()
        if status in following and before is not StepStatus.FAILED
    )
