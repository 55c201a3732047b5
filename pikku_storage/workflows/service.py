"""The public operations of workflows (contract services.md §1)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from django.db import transaction

from pikku_storage.exceptions import (
    WorkflowError,
    WorkflowRunNotFoundError,
)
from pikku_storage.ids import derived_id, new_id, new_token
from pikku_storage.json import Json, to_json_object, to_text
from pikku_storage.workflows.controls import WorkflowControls, owner_id_of
from pikku_storage.workflows.definitions import WorkflowDefinition
from pikku_storage.workflows.engine import admission
from pikku_storage.workflows.engine.passes import drive
from pikku_storage.workflows.engine.queued import execute_step
from pikku_storage.workflows.engine.relay import BATCH, relay_runs, relay_steps
from pikku_storage.workflows.engine.retries import copy_for_retry
from pikku_storage.workflows.errors import WORKFLOW_CANCELLED, coded_error
from pikku_storage.workflows.handle import WorkflowRunHandle, output_of, wait_for_end
from pikku_storage.workflows.limits import Deadline, not_after
from pikku_storage.workflows.models import WorkflowRun, WorkflowStep
from pikku_storage.workflows.records import Run
from pikku_storage.workflows.registry import registry
from pikku_storage.workflows.statuses import RunStatus, StepStatus
from pikku_storage.workflows.storage import WorkflowStorage

logger = logging.getLogger(__name__)

SOURCE = "complex"
"""The contract's name for a version that is a function's body."""

_MOST_BATCHES = 1_000

_stored_versions: set[tuple[str, str, str]] = set()


class WorkflowService(WorkflowControls, WorkflowStorage):
    """Starts and drives workflows; the row operations come from `WorkflowStorage`."""

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
        priority: int | None = None,
        deadline: Deadline | None = None,
    ) -> WorkflowRunHandle:
        """Store a run and hand it to the workers; with `inline`, or without a dispatcher, carry it out here.

        With `inline`, a run that fails raises `WorkflowRunFailedError`, whose `run_id` names it. Raises
        `WorkflowNotFoundError`, `WorkflowInputError` and `PayloadError` before anything is stored.
        """
        if inline or self._runtime.is_inline:
            handle = self.run_inline(
                name,
                data,
                owner=owner,
                idempotency_key=idempotency_key,
                trigger=trigger,
                wire=wire,
                priority=priority,
                deadline=deadline,
            )
            if inline:
                output_of(handle.get())
            return handle
        values = self._new_run(
            name, data, owner, idempotency_key, trigger, wire, inline=False, priority=priority, deadline=deadline
        )
        due_at = not_after(self._runtime.patience_end(values["created_at"]), values["deadline_at"])
        created = self._runtime.runs.create_run({**values, "due_at": due_at, "redrives": 0})
        if created:
            self._runtime.hint(self._runtime.message(values["id"], priority=values["priority"]))
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
        priority: int | None = None,
        deadline: Deadline | None = None,
    ) -> WorkflowRunHandle:
        """Carry a run out in this process, to its end. Answers also when it failed; see `start_workflow` for what it
        raises."""
        values = self._new_run(
            name, data, owner, idempotency_key, trigger, wire, inline=True, priority=priority, deadline=deadline
        )
        at, token = values["created_at"], new_token()
        until = self._runtime.lease_end(at)
        inside = {"pass_token": token, "pass_until": until, "due_at": until, "last_worker": self._runtime.worker}
        created = self._runtime.runs.create_run({**values, **inside})
        if created:
            drive(self._runtime, values["id"], token=token, new=Run.new(values), inline=True)
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
        run = self._runtime.read_run(run_id)
        if run is not None:
            admission.leave_for_good(self._runtime, run, run_id)
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
            # One retry of one run, however often it is asked for.
            new = derived_id("retry", run_id)
            created = copy_for_retry(self._runtime, run, run_id=new)
            if created:
                self._runtime.hint(self._runtime.message(new))
            return WorkflowRunHandle(self, new, created=created)
        at = self._runtime.now()
        waiting = self._runtime.steps.filter(run_id=run_id, status=StepStatus.FAILED, due_at__isnull=False)
        for step_id, step_name, queue in list(waiting.values_list("id", "step_name", "queue")):
            if self._runtime.steps.hurry(step_id, at=at) and queue is not None:
                self._runtime.hint(self._runtime.message(run_id, step_name, queue=queue))
        self.resume_workflow(run_id)
        return WorkflowRunHandle(self, run_id, created=False)

    def relay(self, *, limit: int = BATCH) -> list[str]:
        """One round of the relay: due sleeps, retries, undispatched steps, expired leases, stalled runs, in batches of
        `limit`, until nothing is due. Safe from any number of processes. Answers with the ids of the runs it drove
        on."""
        self._runtime.engine.recover(WorkflowStep, WorkflowRun)
        driven: dict[str, None] = {}
        for look in (relay_steps, relay_runs):
            # Whatever is seen to is no longer due, so this ends; the bound is for rows that cannot be moved.
            for _ in range(_MOST_BATCHES):
                batch = look(self._runtime, limit=limit)
                driven.update(dict.fromkeys(batch.driven))
                if batch.seen < limit:
                    break
        admission.sweep(self._runtime)
        return list(driven)

    def relay_undispatched_steps(self, *, limit: int = BATCH) -> list[str]:
        """The relay's half that looks at steps; one batch."""
        return relay_steps(self._runtime, limit=limit).driven

    def recover_stalled_runs(self, *, limit: int = BATCH) -> list[str]:
        """The relay's half that looks at runs; one batch."""
        return relay_runs(self._runtime, limit=limit).driven

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
        priority: int | None,
        deadline: Deadline | None,
    ) -> dict[str, Any]:
        definition = registry.workflow(name)
        plain = to_json_object({} if data is None else data, root="$input")
        definition.check(plain)
        owner_id = owner_id_of(owner)
        plain_wire = {
            "type": to_text(trigger, root="$trigger"),
            **({} if wire is None else to_json_object(wire, root="$wire")),
        }
        if owner_id is not None:
            plain_wire["pikkuUserId"] = owner_id
        at = self._runtime.now()
        controlled = definition.flow_control(plain, at=at, priority=priority, deadline=deadline)
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
            **controlled,
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


def _keyed_id(name: str, idempotency_key: str) -> str:
    """The run's id is made from the key, so its primary key is what makes the key unique, on every database."""
    return derived_id("idempotency", name, to_text(idempotency_key, root="$idempotency_key"))
