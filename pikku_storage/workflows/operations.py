"""What operators do to runs: cancel, resume, retry, fork, one by one or many at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from pikku_storage.access.actors import actor_of, user_id_of
from pikku_storage.exceptions import WorkflowError, WorkflowRunNotFoundError
from pikku_storage.ids import derived_id, new_id
from pikku_storage.json import Json, to_json_object, to_text
from pikku_storage.workflows.bulk import BulkReport, RunFilter, in_bulk
from pikku_storage.workflows.controls import WorkflowControls
from pikku_storage.workflows.engine.answers import approve
from pikku_storage.workflows.engine.children import see_off
from pikku_storage.workflows.engine.copies import copy_run, kept_for_fork, kept_for_retry
from pikku_storage.workflows.engine.imported import is_held, take_up
from pikku_storage.workflows.engine.open_gates import pass_suspensions
from pikku_storage.workflows.engine.programs import is_of_graph
from pikku_storage.workflows.errors import WORKFLOW_CANCELLED, coded_error
from pikku_storage.workflows.handle import WorkflowRunHandle
from pikku_storage.workflows.records import Run
from pikku_storage.workflows.registry import registry
from pikku_storage.workflows.statuses import LIVE_RUN_STATUSES, RunStatus, StepStatus
from pikku_storage.workflows.storage import WorkflowStorage

RETRIED_STATUSES = frozenset(RunStatus) - {RunStatus.COMPLETED}


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkPreview:
    """What a fork would take over, and which recorded steps would be carried out once more, by name and in order.

    `is_same_version` is `False` if today's code is not what the run was started with, `None` if the workflow is not
    registered in this process.
    """

    workflow: str
    input: Json
    kept: tuple[str, ...]
    again: tuple[str, ...]
    is_same_version: bool | None


class WorkflowOperations(WorkflowControls, WorkflowStorage):
    """Changes the course of runs. `reason` and `by`, a user or an id, say why and who."""

    def resume_workflow(self, run_id: str, *, reason: str | None = None, by: Any = None) -> bool:
        """Look at a run again, now; `False` for one that is terminal or unknown. A suspension is over, an approval is
        not. Steps whose messages may be lost are sent again."""
        if not self._resume(run_id):
            return False
        self._audit("resumed", run_id, by, reason=reason)
        return True

    def _resume(self, run_id: str) -> bool:
        run = self._runtime.read_run(run_id)
        if run is not None and is_held(run):
            take_up(self._runtime, run_id)
        pass_suspensions(self._runtime, run_id)
        if not self._runtime.runs.resume(run_id, at=self._runtime.now()):
            return False
        waiting = [StepStatus.PENDING, StepStatus.SCHEDULED]
        steps = self._runtime.steps.filter(run_id=run_id, status__in=waiting, queue__isnull=False)
        messages = [
            self._runtime.message(run_id, step_name, queue=queue)
            for step_name, queue in steps.values_list("step_name", "queue")
        ]
        self._runtime.hint(*messages, self._runtime.message(run_id))
        return True

    def cancel_workflow(
        self, run_id: str, reason: str | None = None, *, by: Any = None, compensate: bool = False
    ) -> bool:
        """Cancel a live run, and all that descend from it: the step that runs may end, none begins after it. `False` if
        it had ended already.

        With `compensate` the run is cancelled only after each step that was tried and has an `on_error` was compensated
        by it, the newest first; that takes the workers a while, and needs the code. `False` then also means that it is
        under way. Raises `WorkflowError` for a run of a graph, which has no such order: cancel it without.
        """
        error: dict[str, Json] = coded_error(WORKFLOW_CANCELLED, reason or "Workflow was cancelled")
        if (who := user_id_of(by, role="by")) is not None:
            error["by"] = who
        if compensate:
            run = self._runtime.read_run(run_id)
            if run is not None and not run.is_terminal and is_of_graph(self._runtime, run):
                raise WorkflowError(f"Run {run_id} is one of a graph, which cannot be undone; cancel it without that")
            if not self._runtime.runs.request_cancel(run_id, error, at=self._runtime.now()):
                return False
            self._runtime.hint(self._runtime.message(run_id))
            self._audit("cancelled", run_id, by, reason=reason, compensate=True)
            return True
        if not self._runtime.set_status(run_id, RunStatus.CANCELLED, error=error):
            return False
        self._audit("cancelled", run_id, by, reason=reason, compensate=False)
        see_off(self._runtime, run_id)
        return True

    def approve_step(self, run_id: str, reason: str, decision: Json, *, by: Any = None) -> None:
        """Answer an approval, also one that the run has not reached yet; the run goes on if the answer counts.

        `by` is a user, an id, or any object with `user_id` and `scopes`. Of answers that race one is taken. The run
        decides about it: an answer that it refuses leaves the approval open, and the run's state says why. Raises
        `WorkflowRunNotFoundError`; `WorkflowApprovalResolvedError` if there is an answer already, or the time is over;
        `WorkflowApprovalForbiddenError` and `WorkflowApprovalInvalidError` for what can be told at once; `PayloadError`
        for a decision that is not JSON.
        """
        approve(self._runtime, run_id, reason, decision, actor_of(by))

    def retry_run(self, run_id: str, *, reason: str | None = None, by: Any = None) -> WorkflowRunHandle:
        """Try again what failed.

        Of a live run, every step that waits for its retry gets it now, and the handle is the same run's. A failed or
        cancelled run never changes again, so a new run takes over the results of the steps that succeeded and goes on
        from there; its `wire.retryOf` names the old one. Raises `WorkflowRunNotFoundError`, and `WorkflowError` for a
        completed run.
        """
        run = self._existing(run_id)
        if run.status == RunStatus.COMPLETED:
            raise WorkflowError(f"Run {run_id} is completed; there is nothing to try again")
        if run.is_terminal:
            # One retry of one run, however often it is asked for.
            new = derived_id("retry", run_id)
            kept = kept_for_retry(self._runtime.read_steps(run_id))
            note = {"retryOf": run.id, **note_of(reason, by)}
            created = copy_run(self._runtime, run, kept, run_id=new, wire=note)
            if created:
                self._runtime.hint(self._runtime.message(new, priority=run.priority))
                self._audit("retried", run_id, by, reason=reason, newRunId=new)
            return WorkflowRunHandle(self, new, created=created)
        at = self._runtime.now()
        waiting = self._runtime.steps.filter(run_id=run_id, status=StepStatus.FAILED, due_at__isnull=False)
        for step_id, step_name, queue in list(waiting.values_list("id", "step_name", "queue")):
            if self._runtime.steps.hurry(step_id, at=at) and queue is not None:
                self._runtime.hint(self._runtime.message(run_id, step_name, queue=queue, priority=run.priority))
        self._resume(run_id)
        self._audit("retried", run_id, by, reason=reason)
        return WorkflowRunHandle(self, run_id, created=False)

    def fork_run(
        self,
        run_id: str,
        from_step: str,
        data: Mapping[str, Any] | None = None,
        *,
        reason: str | None = None,
        by: Any = None,
    ) -> WorkflowRunHandle:
        """Make a new run that takes over everything up to `from_step`, and goes on from there as if that step had not
        been reached. See `preview_fork`.

        `data` replaces the run's input; what is taken over was made with the old one. The run that is forked stays as
        it is, whatever its status. The new one's `wire` has `forkOf` and `forkFrom`. Raises `WorkflowRunNotFoundError`,
        `StepNotFoundError`, and `WorkflowNotFoundError`, `WorkflowInputError` and `PayloadError` for the new input.
        """
        run = self._existing(run_id)
        plain = None
        if data is not None:
            plain = to_json_object(data, root="$input")
            registry.workflow(run.workflow).check(plain)
        kept = kept_for_fork(run_id, self._runtime.read_steps(run_id), from_step)
        new = new_id()
        note = {"forkOf": run.id, "forkFrom": from_step, **note_of(reason, by)}
        copy_run(self._runtime, run, kept, run_id=new, wire=note, data=plain)
        self._runtime.hint(self._runtime.message(new, priority=run.priority))
        self._audit("forked", run_id, by, reason=reason, newRunId=new, fromStep=from_step)
        return WorkflowRunHandle(self, new)

    def preview_fork(self, run_id: str, from_step: str) -> ForkPreview:
        """What `fork_run` would do. Raises `WorkflowRunNotFoundError`, `StepNotFoundError`."""
        run = self._existing(run_id)
        steps = self._runtime.read_steps(run_id)
        kept = [step.step_name for step in kept_for_fork(run_id, steps, from_step)]
        today = registry.workflows.get(run.workflow)
        return ForkPreview(
            workflow=run.workflow,
            input=run.input,
            kept=tuple(kept),
            again=tuple(step.step_name for step in steps if step.step_name not in kept),
            is_same_version=None if today is None else today.graph_hash == run.graph_hash,
        )

    # -- many at once --------------------------------------------------------------------------------------------------

    def find_runs(
        self, where: RunFilter, *, statuses: Iterable[str] = RunStatus.values, limit: int | None = None
    ) -> list[str]:
        """The ids of the runs that `where` says and that have one of `statuses`, the oldest first."""
        return list(islice(where.ids(self._runtime.using, statuses=statuses), limit))

    def cancel_runs(
        self, where: RunFilter, *, reason: str, by: Any = None, compensate: bool = False, limit: int | None = None
    ) -> BulkReport:
        """Cancel every live run that `where` says, the oldest first, at most `limit`. May be repeated: what is
        cancelled already is no longer found."""
        return in_bulk(
            lambda run_id: self.cancel_workflow(run_id, reason, by=by, compensate=compensate),
            where.ids(self._runtime.using, statuses=LIVE_RUN_STATUSES),
            limit=limit,
        )

    def resume_runs(
        self, where: RunFilter, *, reason: str | None = None, by: Any = None, limit: int | None = None
    ) -> BulkReport:
        """Look again, now, at every live run that `where` says."""
        return in_bulk(
            lambda run_id: self.resume_workflow(run_id, reason=reason, by=by),
            where.ids(self._runtime.using, statuses=LIVE_RUN_STATUSES),
            limit=limit,
        )

    def retry_runs(
        self, where: RunFilter, *, reason: str | None = None, by: Any = None, limit: int | None = None
    ) -> BulkReport:
        """Retry every run that `where` says and that is not completed. A run that was retried before is skipped."""

        def retried(run_id: str) -> bool:
            handle = self.retry_run(run_id, reason=reason, by=by)
            return handle.created or handle.id == run_id

        return in_bulk(retried, where.ids(self._runtime.using, statuses=RETRIED_STATUSES), limit=limit)

    # -- helpers -------------------------------------------------------------------------------------------------------

    def _audit(self, operation: str, run_id: str, by: Any, **metadata: Json) -> None:
        self._tell_trail(f"workflow.run.{operation}", by, runId=run_id, **metadata)

    def _existing(self, run_id: str) -> Run:
        run = self._runtime.read_run(run_id)
        if run is None:
            raise WorkflowRunNotFoundError(run_id)
        return run


def note_of(reason: str | None, by: Any) -> dict[str, Json]:
    """Why and by whom a run was made, for its `wire`."""
    note: dict[str, Json] = {}
    if reason:
        note["reason"] = to_text(reason, root="$reason")
    if (who := user_id_of(by, role="by")) is not None:
        note["by"] = who
    return note
