"""The public operations of workflows (contract services.md §1)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from datetime import timedelta
from functools import partial
from typing import Any

from pikku_storage.access.actors import user_id_of
from pikku_storage.durations import Duration, to_milliseconds
from pikku_storage.exceptions import WorkflowInputError, WorkflowRunNotFoundError
from pikku_storage.ids import new_token
from pikku_storage.json import Json, to_json_object, to_text
from pikku_storage.workflows.engine import admission
from pikku_storage.workflows.engine.copies import own_wire
from pikku_storage.workflows.engine.passes import drive
from pikku_storage.workflows.engine.queued import carry_on, execute_step
from pikku_storage.workflows.engine.relay import BATCH, relay_answers, relay_runs, relay_steps, safely
from pikku_storage.workflows.engine.retention import MOST_RUNS, Ended, prune
from pikku_storage.workflows.engine.starting import run_values
from pikku_storage.workflows.engine.versions import store_version
from pikku_storage.workflows.handle import WorkflowRunHandle, output_of, wait_for_end
from pikku_storage.workflows.limits import Deadline, not_after
from pikku_storage.workflows.models import WorkflowRun, WorkflowStep
from pikku_storage.workflows.operations import WorkflowOperations, note_of
from pikku_storage.workflows.querysets import TERMINAL
from pikku_storage.workflows.records import Pruned, Run
from pikku_storage.workflows.registry import registry
from pikku_storage.workflows.schedules.firing import relay_schedules
from pikku_storage.workflows.schedules.synchronising import keep_in_step

logger = logging.getLogger(__name__)

_MOST_BATCHES = 1_000


class WorkflowService(WorkflowOperations):
    """Starts and drives workflows. What operators do comes from `WorkflowOperations`, the row operations from
    `WorkflowStorage`."""

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
        start_node: str | None = None,
        priority: int | None = None,
        deadline: Deadline | None = None,
    ) -> WorkflowRunHandle:
        """Store a run and hand it to the workers; with `inline`, or without a dispatcher, carry it out here.

        A run of a graph begins with all its entry nodes, or with `start_node`, which must be one of them.

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
                start_node=start_node,
                priority=priority,
                deadline=deadline,
            )
            if inline:
                output_of(handle.get())
            return handle
        values = self._new_run(
            name,
            data,
            owner,
            idempotency_key,
            trigger,
            wire,
            start_node,
            inline=False,
            priority=priority,
            deadline=deadline,
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
        start_node: str | None = None,
        priority: int | None = None,
        deadline: Deadline | None = None,
    ) -> WorkflowRunHandle:
        """Carry a run out in this process, to its end. Answers also when it failed; see `start_workflow` for what it
        raises."""
        values = self._new_run(
            name,
            data,
            owner,
            idempotency_key,
            trigger,
            wire,
            start_node,
            inline=True,
            priority=priority,
            deadline=deadline,
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
        if not carry_on(self._runtime, run_id):
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

    def rerun_run(
        self, run_id: str, data: Mapping[str, Any] | None = None, *, reason: str | None = None, by: Any = None
    ) -> WorkflowRunHandle:
        """Start the run's workflow once more, from the beginning: a new run with the same owner and input, or with
        `data`. Its `wire.rerunOf` names the old one.

        Raises `WorkflowRunNotFoundError`, and what `start_workflow` does.
        """
        run = self._existing(run_id)
        values = self._new_run(
            run.workflow,
            run.input if data is None else data,
            run.owner_id,
            None,
            run.wire["type"],
            {**own_wire(run), "rerunOf": run.id, **note_of(reason, by)},
            run.wire.get("startNode"),
            inline=False,
            priority=run.priority,
            deadline=run.deadline_from(self._runtime.now()),
        )
        due_at = not_after(self._runtime.patience_end(values["created_at"]), values["deadline_at"])
        self._runtime.runs.create_run({**values, "origin_run_id": run.id, "due_at": due_at, "redrives": 0})
        self._runtime.hint(self._runtime.message(values["id"], priority=values["priority"]))
        self._audit("rerun", run_id, by, reason=reason, newRunId=values["id"])
        return self._handle(values, True)

    def relay(self, *, limit: int = BATCH, synchronise: bool = True) -> list[str]:
        """One round of the relay: due schedules, sleeps, retries, undispatched steps, expired leases, answers that were
        not judged, stalled runs, in batches of `limit`, until nothing is due. Safe from any number of processes.
        Answers with the ids of the runs it started or drove on. Without `synchronise` it does not look whether the code
        declares other schedules than are stored."""
        self._runtime.engine.recover(WorkflowStep, WorkflowRun)
        if synchronise:
            safely("the declared schedules", partial(keep_in_step, self._runtime))
        driven: dict[str, None] = {}
        for look in (relay_schedules, relay_answers, relay_steps, relay_runs):
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

    # -- retention -----------------------------------------------------------------------------------------------------

    def prune_runs(
        self,
        older_than: Duration,
        *,
        statuses: Collection[str],
        workflow_name: str | None = None,
        batch: int = 500,
        dry_run: bool = False,
        progress: Callable[[Pruned], None] | None = None,
    ) -> Pruned:
        """Delete the runs that ended in one of these statuses longer ago than `older_than`, with all that belongs to
        them, in batches of so many.

        A run that something still needs is kept, for another time. What is cut off at any moment is finished by the
        next call, and several may work at once. With `dry_run` nothing is deleted, only counted. `progress` is told
        after each batch what there was so far. Raises `ValueError` for what makes no sense.
        """
        if isinstance(statuses, str) or not statuses or not set(statuses) <= set(TERMINAL):
            raise ValueError(f"statuses are some of {', '.join(TERMINAL)}, not {statuses!r}")
        if not 0 < batch <= MOST_RUNS:
            raise ValueError(f"A batch is 1 to {MOST_RUNS} runs, not {batch}")
        at = self._runtime.now()
        try:
            by = at - timedelta(milliseconds=to_milliseconds(older_than))
        except OverflowError:
            raise ValueError(f"Nothing is as old as {older_than!r}") from None
        total = Pruned()
        for status in sorted(statuses):
            ended = Ended(status=status, by=by, seen_at=at, workflow=workflow_name)
            for pruned in prune(self._runtime, ended, batch=batch, dry_run=dry_run):
                total += pruned
                if progress is not None:
                    progress(total)
        return total

    # -- helpers -------------------------------------------------------------------------------------------------------

    def _new_run(
        self,
        name: str,
        data: Mapping[str, Any] | None,
        owner: Any,
        idempotency_key: str | None,
        trigger: str,
        wire: Mapping[str, Any] | None,
        start_node: str | None,
        *,
        inline: bool,
        priority: int | None,
        deadline: Deadline | None,
    ) -> dict[str, Any]:
        definition = registry.workflow(name)
        plain = to_json_object({} if data is None else data, root="$input")
        definition.check(plain)
        if start_node is not None and start_node not in definition.entries:
            entries = ", ".join(map(repr, definition.entries)) or "none: it is no graph"
            raise WorkflowInputError(f"A run of {name!r} cannot start at {start_node!r}; its entries are {entries}")
        owner_id = user_id_of(owner)
        plain_wire = {
            "type": to_text(trigger, root="$trigger"),
            **({} if wire is None else to_json_object(wire, root="$wire")),
        }
        if start_node is not None:
            plain_wire["startNode"] = start_node
        key = None if idempotency_key is None else to_text(idempotency_key, root="$idempotency_key")
        at = self._runtime.now()
        controlled = definition.flow_control(plain, at=at, priority=priority, deadline=deadline)
        store_version(self._runtime, definition)
        return run_values(
            name,
            definition,
            plain,
            owner_id=owner_id,
            wire=plain_wire,
            idempotency_key=key,
            inline=inline,
            controlled=controlled,
            at=at,
        )

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
