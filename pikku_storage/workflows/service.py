"""The public operations of workflows (contract services.md §1)."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from django.db import transaction

from pikku_storage.async_twins import AsyncTwins
from pikku_storage.durations import Duration
from pikku_storage.exceptions import (
    StepNotFoundError,
    WorkflowError,
    WorkflowInputError,
    WorkflowRunNotFoundError,
)
from pikku_storage.ids import derived_id, new_id, new_token
from pikku_storage.json import Json, to_json, to_json_object, to_text
from pikku_storage.workflows import reads
from pikku_storage.workflows.definitions import WorkflowDefinition
from pikku_storage.workflows.engine.passes import drive
from pikku_storage.workflows.engine.queued import claim_step, execute_step
from pikku_storage.workflows.engine.relay import relay_runs, relay_steps
from pikku_storage.workflows.engine.retries import copy_for_retry
from pikku_storage.workflows.engine.runtime import Runtime
from pikku_storage.workflows.errors import WORKFLOW_CANCELLED, coded_error, describe_error
from pikku_storage.workflows.handle import WorkflowRunHandle, output_of, wait_for_end
from pikku_storage.workflows.models import WorkflowVersion
from pikku_storage.workflows.querysets import NewStep
from pikku_storage.workflows.records import GraphState, Run, RunReport, StepInstance, StepState, Version
from pikku_storage.workflows.registry import registry
from pikku_storage.workflows.retry import RetryPolicy
from pikku_storage.workflows.statuses import RunStatus, StepStatus, VersionStatus
from pikku_storage.workflows.timeline import (
    ReconstructedState,
    TimelineEvent,
    build_run_timeline,
    reconstruct_state_at,
)

logger = logging.getLogger(__name__)

SOURCE = "complex"
"""The contract's name for a version that is a function's body."""

_MOST_BATCHES = 1_000

_stored_versions: set[tuple[str, str, str]] = set()


class WorkflowService(AsyncTwins):
    """Starts, drives and records workflows.

    `using` picks a database alias, `worker` is the name that attempts are recorded under. Methods that change something
    answer whether they did: `False` means that another caller was faster or that the row's status does not allow it,
    and nothing was written.
    """

    def __init__(self, using: str | None = None, worker: str | None = None) -> None:
        self._runtime = Runtime(using, worker)

    # -- starting and driving ------------------------------------------------------------------------------------------

    def start_workflow(
        self,
        name: str,
        data: Mapping[str, Any] | None = None,
        *,
        owner: Any = None,
        idempotency_key: str | None = None,
        trigger: str = "code",
        wire: Mapping[str, Any] | None = None,
        inline: bool = False,
    ) -> WorkflowRunHandle:
        """Store a run and hand it to the workers; with `inline`, or without a dispatcher, carry it out here.

        An inline run that fails raises `WorkflowRunFailedError`, whose `run_id` names it. Raises
        `WorkflowNotFoundError`, `WorkflowInputError` and `PayloadError` before anything is stored.
        """
        if inline or self._runtime.is_inline:
            handle = self.run_inline(
                name, data, owner=owner, idempotency_key=idempotency_key, trigger=trigger, wire=wire
            )
            output_of(handle.get())
            return handle
        values = self._new_run(name, data, owner, idempotency_key, trigger, wire, inline=False)
        at = values["created_at"]
        created = self._runtime.runs.create_run({**values, "due_at": self._runtime.patience_end(at), "redrives": 0})
        if created:
            self._runtime.hint(self._runtime.message(values["id"]))
        return self._handle(values, created)

    def run_inline(
        self,
        name: str,
        data: Mapping[str, Any] | None = None,
        *,
        owner: Any = None,
        idempotency_key: str | None = None,
        trigger: str = "code",
        wire: Mapping[str, Any] | None = None,
    ) -> WorkflowRunHandle:
        """Carry a run out in this process, to its end. Answers also when it failed; see `start_workflow` for what it
        raises."""
        values = self._new_run(name, data, owner, idempotency_key, trigger, wire, inline=True)
        at, token = values["created_at"], new_token()
        until = self._runtime.lease_end(at)
        inside = {"pass_token": token, "pass_until": until, "due_at": until, "last_worker": self._runtime.worker}
        created = self._runtime.runs.create_run({**values, **inside})
        if created:
            drive(self._runtime, values["id"], token=token, inline=True)
        return self._handle(values, created)

    def run_to_completion(self, name: str, data: Mapping[str, Any] | None = None, **options: Any) -> Json:
        """Carry a run out in this process and answer with its output; raises `WorkflowRunFailedError` and its like."""
        handle = self.run_inline(name, data, **options)
        return output_of(wait_for_end(handle.get, ceiling=1.0))

    def orchestrate_workflow(self, run_id: str) -> None:
        """Carry a stored run on as far as it goes (what an orchestrator message asks for).

        A terminal run is left as it is; so is one that another worker is inside of. Raises `WorkflowRunNotFoundError`,
        `PikkuMissingMetaError`, and `WorkflowDispatchException` if a step could not be dispatched (it stays pending).
        """
        if not drive(self._runtime, run_id) and self._runtime.read_run(run_id) is None:
            raise WorkflowRunNotFoundError(run_id)

    run_workflow_job = orchestrate_workflow

    def execute_workflow_step(self, run_id: str, step_name: str, rpc_name: str | None = None) -> None:
        """Claim and carry out a queued step, and the run after it if that was what it waited for (contract services.md
        §1.6).

        What cannot be claimed is left alone. `rpc_name`, if given, must be the row's own:
        `WorkflowStepFunctionMismatchError`.
        """
        execute_step(self._runtime, run_id, step_name, rpc_name)

    def get_handle(self, run_id: str) -> WorkflowRunHandle:
        """A handle on a stored run; it is read when the handle is asked."""
        return WorkflowRunHandle(self, run_id, created=False)

    def resume_workflow(self, run_id: str) -> bool:
        """Look at a run again, now; `False` for one that is terminal or unknown. Steps whose messages may be lost are
        sent again."""
        if not self._runtime.runs.wake(run_id, at=self._runtime.now()):
            return False
        waiting = [StepStatus.PENDING, StepStatus.SCHEDULED]
        steps = self._runtime.steps.filter(run_id=run_id, status__in=waiting, queue__isnull=False)
        messages = [
            self._runtime.message(run_id, step_name, queue=queue)
            for step_name, queue in steps.values_list("step_name", "queue")
        ]
        self._runtime.hint(*messages, self._runtime.message(run_id))
        return True

    def cancel_workflow(self, run_id: str, reason: str | None = None) -> bool:
        """Cancel a live run: the step that runs may end, none begins after it. `False` if it had ended already."""
        error = coded_error(WORKFLOW_CANCELLED, reason or "Workflow was cancelled")
        if not self._set_status(run_id, RunStatus.CANCELLED, None, error):
            return False
        self._runtime.steps.settle_idle(run_id)
        return True

    def retry_run(self, run_id: str) -> WorkflowRunHandle:
        """Try again what failed.

        Of a live run, every step that waits for its retry gets it now, and the handle is the same run's. A failed or
        cancelled run never changes again, so a new run takes over the results of the steps that succeeded and goes on
        from there; its `wire.retryOf` names the old one. Raises `WorkflowRunNotFoundError`, and `WorkflowError` for a
        completed run.
        """
        run = self._runtime.read_run(run_id)
        if run is None:
            raise WorkflowRunNotFoundError(run_id)
        if run.status == RunStatus.COMPLETED:
            raise WorkflowError(f"Run {run_id} is completed; there is nothing to try again")
        if run.is_terminal:
            new = copy_for_retry(self._runtime, run, run_id=new_id())
            self._runtime.hint(self._runtime.message(new))
            return WorkflowRunHandle(self, new)
        at = self._runtime.now()
        waiting = self._runtime.steps.filter(run_id=run_id, status=StepStatus.FAILED, due_at__isnull=False)
        for step_id, step_name, queue in list(waiting.values_list("id", "step_name", "queue")):
            if self._runtime.steps.hurry(step_id, at=at) and queue is not None:
                self._runtime.hint(self._runtime.message(run_id, step_name, queue=queue))
        self.resume_workflow(run_id)
        return WorkflowRunHandle(self, run_id, created=False)

    def relay(self, *, limit: int = 100) -> list[str]:
        """One round of the relay: due sleeps, retries, undispatched steps, expired leases, stalled runs, in batches of
        `limit`, until nothing is due. Safe from any number of processes. Answers with the ids of the runs it drove
        on."""
        driven: dict[str, None] = {}
        for look in (relay_steps, relay_runs):
            # Whatever is seen to is no longer due, so this ends; the bound is for rows that cannot be moved.
            for _ in range(_MOST_BATCHES):
                batch = look(self._runtime, limit=limit)
                driven.update(dict.fromkeys(batch.driven))
                if batch.seen < limit:
                    break
        return list(driven)

    def relay_undispatched_steps(self, *, limit: int = 100) -> list[str]:
        """The relay's half that looks at steps; one batch."""
        return relay_steps(self._runtime, limit=limit).driven

    def recover_stalled_runs(self, *, limit: int = 100) -> list[str]:
        """The relay's half that looks at runs; one batch."""
        return relay_runs(self._runtime, limit=limit).driven

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
    ) -> str:
        """Store a run without driving it; answers with its id. The workflow need not be registered."""
        at = self._runtime.now()
        plain_wire = None if wire is None else to_json_object(wire, root="$wire")
        values = {
            "id": new_id(),
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

    def update_run_status(
        self, run_id: str, status: str, output: Any = None, error: BaseException | Mapping[str, Any] | None = None
    ) -> bool:
        """Set a live run's status; a terminal one is never overwritten, an unknown id is a silent no-op."""
        return self._set_status(run_id, RunStatus(status), to_json(output, root="$output"), _error_json(error))

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
        plain = to_json_object({key: value}, root="$state")[key]
        return self._runtime.runs.merge_state(run_id, key, plain, at=self._runtime.now())

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
    ) -> StepState:
        """Store a pending step, attempt 1. A second one of that name raises `IntegrityError`, and so does an unknown
        run."""
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
        )
        self._runtime.steps.add(step, at=at, due_at=self._runtime.patience_end(at))
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
        claim = self._runtime.claim()
        begun = step.has_attempts_left and self._runtime.steps.begin_retry(
            step_id,
            seen_attempt=step.attempt_count,
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
        return bool(
            versions.filter(pk=WorkflowVersion.id_of(name, graph_hash)).update(status=VersionStatus(status).value)
        )

    def get_workflow_version(self, name: str, graph_hash: str) -> Version | None:
        """A stored version, or `None`."""
        return reads.version(self._runtime.using, name, graph_hash)

    # -- helpers -------------------------------------------------------------------------------------------------------

    def _new_run(
        self,
        name: str,
        data: Mapping[str, Any] | None,
        owner: Any,
        idempotency_key: str | None,
        trigger: str,
        wire: Mapping[str, Any] | None,
        *,
        inline: bool,
    ) -> dict[str, Any]:
        definition = registry.workflow(name)
        plain = to_json_object({} if data is None else data, root="$input")
        definition.check(plain)
        owner_id = _owner_id(owner)
        plain_wire = {
            "type": to_text(trigger, root="$trigger"),
            **({} if wire is None else to_json_object(wire, root="$wire")),
        }
        if owner_id is not None:
            plain_wire["pikkuUserId"] = owner_id
        at = self._runtime.now()
        self._store_version(definition)
        return {
            "id": new_id() if idempotency_key is None else _keyed_id(name, idempotency_key),
            "workflow": name,
            "status": RunStatus.RUNNING.value,
            "input": plain,
            "state": {},
            "inline": inline,
            "graph_hash": definition.graph_hash,
            "wire": plain_wire,
            "owner_id": owner_id,
            "idempotency_key": idempotency_key,
            "created_at": at,
            "updated_at": at,
        }

    def _store_version(self, definition: WorkflowDefinition[Any]) -> None:
        # Once per process and database: the definition of a process never changes.
        key = (self._runtime.using, definition.name, definition.graph_hash)
        if key not in _stored_versions:
            self.upsert_workflow_version(definition.name, definition.graph_hash, definition.graph, SOURCE)
            transaction.on_commit(lambda: _stored_versions.add(key), using=self._runtime.using)

    def _handle(self, values: Mapping[str, Any], created: bool) -> WorkflowRunHandle:
        handle = WorkflowRunHandle(self, values["id"], created=created)
        if not created and handle.get().input != values["input"]:
            logger.warning(
                "Idempotency key %r of workflow %s was used before with other data; the first run %s stands",
                values["idempotency_key"],
                values["workflow"],
                values["id"],
            )
        return handle

    def _set_status(self, run_id: str, status: RunStatus, output: Json, error: Json) -> bool:
        at = self._runtime.now()
        due_at = self._runtime.stalled_end(at) if status is RunStatus.RUNNING else None
        return self._runtime.runs.set_status(run_id, status, at=at, output=output, error=error, due_at=due_at)


def _keyed_id(name: str, idempotency_key: str) -> str:
    """The run's id is made from the key, so its primary key is what makes the key unique, on every database."""
    return derived_id("idempotency", name, to_text(idempotency_key, root="$idempotency_key"))


def _owner_id(owner: Any) -> str | None:
    if owner is None or owner == "":
        return None
    primary_key = getattr(owner, "pk", owner)
    if primary_key is None:
        raise WorkflowInputError(f"The owner {owner!r} has no primary key; save the user first, or pass an id as text")
    return to_text(str(primary_key), root="$owner")


def _error_json(error: BaseException | Mapping[str, Any] | None) -> dict[str, Json] | None:
    if error is None:
        return None
    return describe_error(error) if isinstance(error, BaseException) else to_json_object(error, root="$error")
