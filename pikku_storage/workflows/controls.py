"""What operators set for whole workflows: pauses and limits."""

from __future__ import annotations

from enum import Enum
from typing import Any, Final

from pikku_storage.access.actors import identity_of, user_id_of
from pikku_storage.async_twins import AsyncTwins
from pikku_storage.auditing import AuditEvent, record_all
from pikku_storage.exceptions import WorkflowInputError, WorkflowNotFoundError
from pikku_storage.json import Json, to_text
from pikku_storage.workflows.engine import admission, rules
from pikku_storage.workflows.engine.runtime import Runtime
from pikku_storage.workflows.limits import RateLimit, check_slots
from pikku_storage.workflows.models import WorkflowControl
from pikku_storage.workflows.records import Control
from pikku_storage.workflows.registry import registry


class Unchanged(Enum):
    """See `UNCHANGED`."""

    UNCHANGED = 0

    def __repr__(self) -> str:
        return self.name


UNCHANGED: Final = Unchanged.UNCHANGED
"""A limit that is left as it is."""


class WorkflowControls(AsyncTwins):
    """Pauses workflows and changes their limits, for all processes and without a restart."""

    _runtime: Runtime

    def pause_workflow(self, name: str, *, reason: str | None = None, by: Any = None) -> bool:
        """Let no run of a workflow go on; `False` if it is paused already.

        Runs may be started, and wait. A step that is under way ends, and none begins after it; other processes learn of
        it within a second. `by` is a user, or any id as text. Raises `WorkflowNotFoundError` for a workflow that is
        neither registered nor has a run.
        """
        self._check_known(name)
        reason = None if reason is None else to_text(reason, root="$reason")
        paused = self._runtime.controls.pause(name, at=self._runtime.now(), by=user_id_of(by, role="by"), reason=reason)
        rules.forget(self._runtime.using)
        if paused:
            self._tell_trail("workflow.paused", by, workflow=name, reason=reason)
        return paused

    def unpause_workflow(self, name: str, *, by: Any = None) -> bool:
        """Let a paused workflow go on, its waiting runs in the order of their priority and age; `False` if it is not
        paused."""
        resumed = self._runtime.controls.unpause(name, at=self._runtime.now(), by=user_id_of(by, role="by"))
        rules.forget(self._runtime.using)
        if resumed:
            self._tell_trail("workflow.unpaused", by, workflow=name)
        # Also if it was not: the process that ended the pause may have died before it woke them all.
        admission.go_on(self._runtime, name)
        return resumed

    def set_limits(
        self,
        name: str,
        *,
        concurrency: int | Unchanged | None = UNCHANGED,
        concurrency_per_key: int | Unchanged | None = UNCHANGED,
        rate_limit: str | Unchanged | None = UNCHANGED,
        by: Any = None,
    ) -> None:
        """Set limits of a workflow in place of its code's; `None` puts the code's back.

        A raised limit holds at once, a lowered one within a second: what is inside stays, and nothing comes in before
        there is room. Raises `WorkflowInputError` and `WorkflowNotFoundError`.
        """
        self._check_known(name)
        given: dict[str, Any] = {
            "concurrency": concurrency,
            "concurrency_per_key": concurrency_per_key,
            "rate_limit": rate_limit,
        }
        limits = {key: value for key, value in given.items() if value is not UNCHANGED}
        try:
            for key in ("concurrency", "concurrency_per_key"):
                check_slots(key, limits.get(key))
            if limits.get("rate_limit") is not None:
                RateLimit.of(limits["rate_limit"])
        except ValueError as error:
            raise WorkflowInputError(f"Limits of workflow {name!r}: {error}") from None
        self._runtime.controls.set_limits(name, limits, at=self._runtime.now(), by=user_id_of(by, role="by"))
        rules.forget(self._runtime.using)
        self._tell_trail("workflow.limited", by, workflow=name, limits=limits)
        admission.call_all(self._runtime, name)

    def get_workflow_control(self, name: str) -> Control | None:
        """What operators have set for a workflow; `None` for nothing."""
        row = self._runtime.controls.filter(pk=name).values(*Control.COLUMNS).first()
        return None if row is None else Control(**row)

    def get_queue_position(self, run_id: str) -> int | None:
        """Which place a run has in the line that it waits in, 1 for the next one; `None` if it waits in none."""
        runs = self._runtime.runs
        row = runs.filter(pk=run_id, line__isnull=False).values("line", "line_place").first()
        if row is None:
            return None
        return runs.filter(line=row["line"], line_place__lt=row["line_place"]).count() + 1

    def _tell_trail(self, what: str, by: Any, **metadata: Json) -> None:
        """Tell the audit trail, once it is committed."""
        event = AuditEvent(type=what, outcome="success", actor=identity_of(by), wire_type="workflow", metadata=metadata)
        record_all([event], using=self._runtime.using)

    def _check_known(self, name: str) -> None:
        known = name in registry.workflows or self._runtime.runs.filter(workflow=name).exists()
        if not (known or WorkflowControl.objects.using(self._runtime.using).filter(pk=name).exists()):
            raise WorkflowNotFoundError(name)
