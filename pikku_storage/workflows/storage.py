"""The row operations of workflows (contract services.md §1.4): what is stored, without driving it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from django.db import IntegrityError

from pikku_storage.async_twins import AsyncTwins
from pikku_storage.durations import Duration
from pikku_storage.exceptions import (
    StepNotFoundError,
    WorkflowError,
)
from pikku_storage.ids import new_id
from pikku_storage.json import Json, to_json, to_json_object, to_text
from pikku_storage.retry import RetryPolicy
from pikku_storage.workflows import reads
from pikku_storage.workflows.engine.queued import claim_step
from pikku_storage.workflows.engine.runtime import Runtime
from pikku_storage.workflows.errors import describe_error
from pikku_storage.workflows.models import WorkflowVersion
from pikku_storage.workflows.querysets import NewStep
from pikku_storage.workflows.records import GraphState, Run, RunReport, StepInstance, StepState, Version
from pikku_storage.workflows.statuses import RunStatus, StepStatus, VersionStatus
from pikku_storage.workflows.timeline import (
    ReconstructedState,
    TimelineEvent,
    build_run_timeline,
    reconstruct_state_at,
)


class WorkflowStorage(AsyncTwins):
    """Records runs, steps, attempts and versions.

    `using` picks a database alias, `worker` is the name that attempts are recorded under. Methods that change something
    answer whether they did: `False` means that another caller was faster or that the row's status does not allow it,
    and nothing was written.
    """

    def __init__(self, using: str | None = None, worker: str | None = None) -> None:
        self._runtime = Runtime(using, worker)

    # -- runs ----------------------------------------------------------------------------------------------------------

    def create_run(
        self,
        name: str,
        data: Json = None,
        inline: bool = False,
        graph_hash: str | None = None,
        wire: Mapping[str, Any] | None = None,
        *,
        deterministic: bool = False,
        planned_steps: Sequence[Any] | None = None,
        run_id: str | None = None,
    ) -> str:
        """Store a run without driving it; answers with its id, which is made unless it is given. The workflow need not
        be registered. If there is a run with a given id, nothing is stored."""
        at = self._runtime.now()
        plain_wire = None if wire is None else to_json_object(wire, root="$wire")
        values = {
            "id": new_id() if run_id is None else to_text(run_id, root="$run_id"),
            "workflow": to_text(name, root="$workflow"),
            "status": RunStatus.RUNNING.value,
            "input": to_json(data, root="$input"),
            "state": {},
            "inline": inline,
            "graph_hash": graph_hash,
            "wire": plain_wire,
            "deterministic": deterministic,
            "planned_steps": None if planned_steps is None else to_json(planned_steps, root="$planned_steps"),
            "owner_id": (plain_wire or {}).get("pikkuUserId"),
            "due_at": self._runtime.stalled_end(at),
            "created_at": at,
            "updated_at": at,
        }
        self._runtime.runs.create_run(values)
        return str(values["id"])

    def get_run(self, run_id: str) -> Run | None:
        """The run, or `None`."""
        return self._runtime.read_run(run_id)

    def list_child_runs(self, run_id: str) -> list[Run]:
        """The runs that do steps of this one, oldest first; those of one fan-out in no particular order. One read."""
        rows = self._runtime.runs.filter(parent_run_id=run_id).order_by("created_at", "id").values(*Run.COLUMNS)
        return [Run.from_row(row) for row in rows]

    def update_run_status(
        self, run_id: str, status: str, output: Any = None, error: BaseException | Mapping[str, Any] | None = None
    ) -> bool:
        """Set a live run's status; a terminal one is never overwritten, an unknown id is a silent no-op."""
        return self._runtime.set_status(
            run_id, RunStatus(status), output=to_json(output, root="$output"), error=_error_json(error)
        )

    def get_run_status(self, run_id: str) -> RunReport | None:
        """What a caller may know: status, output of a completed run, the error's message, steps; `None` for an unknown
        run."""
        run = self._runtime.read_run(run_id)
        if run is None:
            return None
        return RunReport(
            id=run.id,
            status=run.status,
            started_at=run.created_at,
            completed_at=run.completed_at,
            deterministic=run.deterministic,
            planned_steps=run.planned_steps,
            output=run.output if run.status == RunStatus.COMPLETED else None,
            error=None if run.error is None else {"message": run.error.get("message") or "Unknown error"},
            waits_for=run.waits_for,
            steps=reads.summarise(reads.run_history(self._runtime.using, run_id)),
        )

    def get_run_timeline(self, run_id: str) -> list[TimelineEvent] | None:
        """What happened, in order; `None` for an unknown run."""
        history = reads.run_history(self._runtime.using, run_id)
        if not history and self._runtime.read_run(run_id) is None:
            return None
        return build_run_timeline(history)

    def reconstruct_run_state_at(self, run_id: str, at: int | datetime | None = None) -> ReconstructedState | None:
        """The run as it was after event `at`, or at that instant; as it is now without. `None` for an unknown run."""
        timeline = self.get_run_timeline(run_id)
        return None if timeline is None else reconstruct_state_at(timeline, at)

    def update_run_state(self, run_id: str, key: str, value: Any) -> bool:
        """Set one key of the run's state, merged in the database: concurrent writers of different keys never lose each
        other."""
        return self._runtime.write_state(run_id, key, value)

    def get_run_state(self, run_id: str) -> dict[str, Json]:
        """The run's state; empty for an unknown run."""
        return self._runtime.read_state(run_id)

    # -- steps ---------------------------------------------------------------------------------------------------------

    def insert_step_state(
        self,
        run_id: str,
        step_name: str,
        rpc_name: str | None = None,
        data: Any = None,
        *,
        retries: int | None = None,
        retry_delay: Duration | None = None,
        from_step_name: str | None = None,
        step_id: str | None = None,
    ) -> StepState:
        """Store a pending step, attempt 1; its id is made unless it is given. A second one of that name raises
        `IntegrityError`, and so does an unknown run."""
        policy = RetryPolicy.of(retries, retry_delay)
        at = self._runtime.now()
        step = NewStep(
            run_id=run_id,
            step_name=to_text(step_name, root="$step_name"),
            rpc_name=None if rpc_name is None else to_text(rpc_name, root="$rpc_name"),
            data=to_json(data, root="$data"),
            max_attempts=policy.max_attempts,
            retries=policy.retries,
            retry_delay=policy.delay,
            from_step_name=from_step_name,
            id=new_id() if step_id is None else to_text(step_id, root="$step_id"),
        )
        # That there is such a run is asked for, because MongoDB has no foreign keys.
        if not self._runtime.steps.add(step, at=at, due_at=self._runtime.patience_end(at), inside={}):
            raise IntegrityError(f"There is no run {run_id!r}")
        return self.get_step_state(run_id, step_name)

    def get_step_state(self, run_id: str, step_name: str) -> StepState:
        """The step; raises `StepNotFoundError`. One read."""
        step = self._runtime.read_step(run_id, step_name)
        if step is None:
            raise StepNotFoundError(run_id, step_name)
        return step

    def list_step_states(self, run_id: str) -> list[StepState]:
        """All steps of the run, oldest first. One read."""
        return self._runtime.read_steps(run_id)

    def claim_step(self, run_id: str, step_name: str, rpc_name: str | None = None) -> StepState | None:
        """Take a step: running, under a lease of this caller, as its `claim_token` shows; `None` if there is nothing to
        take.

        Of any number of callers one wins (contract services.md §1.5). Raises `StepNotFoundError`,
        `WorkflowStepFunctionMismatchError`.
        """
        taken = claim_step(self._runtime, run_id, step_name, rpc_name)
        return None if taken is None else taken[0]

    def set_step_running(self, step_id: str) -> bool:
        """A waiting step runs. Two writes, no read, one transaction; so for the outcomes below."""
        at = self._runtime.now()
        return self._runtime.steps.run_by_hand(step_id, at=at, until=self._runtime.lease_end(at))

    def set_step_scheduled(self, step_id: str) -> bool:
        """A pending step's message is with the broker."""
        at = self._runtime.now()
        return bool(self._runtime.steps.schedule([step_id], at=at, due_at=self._runtime.patience_end(at)))

    def set_step_result(
        self, step_id: str, result: Any = None, *, attempt: int | None = None, claim_token: str | None = None
    ) -> bool:
        """The step succeeded. With `attempt` and `claim_token` only that claim's outcome counts."""
        plain = to_json(result, root="$result")
        return self._runtime.steps.succeed(step_id, plain, at=self._runtime.now(), attempt=attempt, token=claim_token)

    def set_step_error(
        self,
        step_id: str,
        error: BaseException | Mapping[str, Any],
        *,
        attempt: int | None = None,
        claim_token: str | None = None,
    ) -> bool:
        """The step failed; stored as `{message, stack, code}`. With `attempt` and `claim_token` only that claim's
        outcome counts."""
        return self._runtime.steps.fail(
            step_id, _error_json(error), at=self._runtime.now(), attempt=attempt, token=claim_token
        )

    def create_retry_attempt(self, step_id: str, status: str = StepStatus.PENDING) -> StepState:
        """Begin the next attempt of a failed step, pending or running; the step keeps its id.

        Raises `WorkflowError` if the step is not failed, or has no attempts left.
        """
        row = self._runtime.steps.filter(pk=step_id).values(*StepState.COLUMNS).first()
        if row is None:
            raise WorkflowError(f"Step not found: {step_id}")
        step = StepState.from_row(row)
        claim = self._runtime.claim(after=step.next_at)
        begun = step.has_attempts_left and self._runtime.steps.begin_retry(
            step,
            at=claim.at,
            due_at=self._runtime.patience_end(claim.at),
            claim=claim if StepStatus(status) is StepStatus.RUNNING else None,
        )
        if not begun:
            raise WorkflowError(
                f"Step {step.step_name!r} is {step.status} after attempt {step.attempt_count} of {step.max_attempts}: "
                "no further attempt can begin"
            )
        return self.get_step_state(step.run_id, step.step_name)

    def set_step_child_run_id(self, step_id: str, child_run_id: str) -> bool:
        """Note the run that this step started."""
        return self._runtime.steps.note(step_id, at=self._runtime.now(), child_run_id=child_run_id)

    def set_branch_taken(self, step_id: str, branch: str) -> bool:
        """Note the branch that this step chose."""
        return self._runtime.steps.note(step_id, at=self._runtime.now(), branch_taken=branch)

    def get_step_instances(self, run_id: str) -> list[StepInstance]:
        """Name, status and origin of each step."""
        rows = self._runtime.steps.filter(run_id=run_id).order_by("created_at", "id")
        return [StepInstance(**row) for row in rows.values("step_name", "status", "from_step_name")]

    def get_node_results(self, run_id: str, names: Sequence[str]) -> dict[str, Json]:
        """Results of those of the named steps that succeeded."""
        if not names:
            return {}
        steps = self._runtime.steps.filter(run_id=run_id, step_name__in=list(names), status=StepStatus.SUCCEEDED)
        return dict(steps.values_list("step_name", "result"))

    def get_completed_graph_state(self, run_id: str) -> GraphState:
        """Which steps succeeded, which failed for good, and the branches taken."""
        steps = self._runtime.read_steps(run_id)
        succeeded = [step for step in steps if step.status == StepStatus.SUCCEEDED]
        return GraphState(
            completed_node_ids=tuple(step.step_name for step in succeeded),
            failed_node_ids=tuple(
                step.step_name for step in steps if step.status == StepStatus.FAILED and not step.has_attempts_left
            ),
            branch_keys={step.step_name: step.branch_taken for step in succeeded if step.branch_taken is not None},
        )

    # -- versions ------------------------------------------------------------------------------------------------------

    def upsert_workflow_version(
        self, name: str, graph_hash: str, graph: Any, source: str, status: str = VersionStatus.ACTIVE
    ) -> bool:
        """Store a version unless it is there; `False` if it was, unchanged."""
        return WorkflowVersion.objects.using(self._runtime.using).add(
            name, graph_hash, to_json(graph, root="$graph"), source, VersionStatus(status).value, at=self._runtime.now()
        )

    def update_workflow_version_status(self, name: str, graph_hash: str, status: str) -> bool:
        """Set a version's status."""
        versions = WorkflowVersion.objects.using(self._runtime.using)
        return versions.set_status(name, graph_hash, VersionStatus(status).value)

    def get_workflow_version(self, name: str, graph_hash: str) -> Version | None:
        """A stored version, or `None`."""
        return reads.version(self._runtime.using, name, graph_hash)


def _error_json(error: BaseException | Mapping[str, Any] | None) -> dict[str, Json] | None:
    if error is None:
        return None
    return describe_error(error) if isinstance(error, BaseException) else to_json_object(error, root="$error")
