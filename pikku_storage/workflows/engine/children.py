"""Sub-workflows: steps that are done by a run of their own (contract services.md §1.6, §1.9).

The step notes the id of its child run before there is that run, and the id is derived from the step and the attempt. So
whoever comes after a crash can tell what is missing, and making the child twice makes one. Nobody holds the step
meanwhile: it is running, without a claim, and its due time is when the relay asks how the child fares.

That due time is also what ends a child whose parent has ended: a step of an ended run that still awaits a child is due,
until the child has ended as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from pikku_storage.exceptions import WorkflowDepthError, WorkflowInputError
from pikku_storage.json import Json
from pikku_storage.workflows.definitions import BaseWorkflow
from pikku_storage.workflows.engine import admission
from pikku_storage.workflows.engine.attempts import settle_attempt, what_follows
from pikku_storage.workflows.engine.backoff import delay_of
from pikku_storage.workflows.engine.calls import Outcome
from pikku_storage.workflows.engine.open_gates import close_gates
from pikku_storage.workflows.engine.runtime import Runtime
from pikku_storage.workflows.engine.versions import store_version
from pikku_storage.workflows.errors import WORKFLOW_CANCELLED, coded_error
from pikku_storage.workflows.limits import not_after
from pikku_storage.workflows.records import Run, StepState
from pikku_storage.workflows.registry import registry
from pikku_storage.workflows.statuses import RunStatus, StepStatus

DEEPEST = 32
"""How many sub-workflows may be within one another. A worker that carries a child on in its parent's pass uses some
twenty frames of the stack for each."""


# -- beginning ---------------------------------------------------------------------------------------------------------


def check_call(
    runtime: Runtime, parent: Run, definition: BaseWorkflow, data: Mapping[str, Json], *, has_timeout: bool = False
) -> None:
    """Raise `WorkflowInputError` or `WorkflowDepthError` unless the run may call the workflow that way."""
    if has_timeout:
        raise WorkflowInputError(f"{definition.name!r} is a workflow; only a function's step has a timeout")
    definition.check(data)
    definition.flow_control(data, at=runtime.now())
    if _depth_of(parent) >= DEEPEST:
        raise WorkflowDepthError(definition.name, DEEPEST)


def begin(
    runtime: Runtime, parent: Run, step: StepState, *, inside: Mapping[str, Any], inline: bool = False
) -> StepState | None:
    """Begin the next attempt of a stored step of `parent`, whose function is a workflow: the step as it then awaits its
    child, which nobody is inside of, or `None` if somebody else was faster.

    Only where the conditions on the parent in `inside` hold. Raises `WorkflowNotFoundError`.
    """
    at = max(runtime.now(), step.next_at)
    handed = runtime.steps.hand_over(step, at=at, due_at=runtime.patience_end(at), inside=inside)
    if handed is not None:
        start(runtime, parent, [handed], inline=inline)
    return handed


def start(runtime: Runtime, parent: Run, steps: Sequence[StepState], *, inline: bool) -> None:
    """Make the child runs that these steps of `parent` await, those that are not there yet. Nobody is inside them.

    Raises `WorkflowNotFoundError`.
    """
    definitions = [registry.workflow(str(step.rpc_name)) for step in steps]
    for definition in definitions:
        store_version(runtime, definition)
    at = runtime.now()
    due_at = runtime.patience_end(at)
    runtime.runs.create_runs(
        [
            {
                **_child_of(parent, step, at),
                "status": RunStatus.RUNNING.value,
                "inline": inline,
                "graph_hash": definition.graph_hash,
                "due_at": not_after(due_at, controlled["deadline_at"]),
                "redrives": 0,
                **controlled,
            }
            for step, definition in zip(steps, definitions, strict=True)
            for controlled in [_flow_control(parent, definition, step.data or {}, at)]
        ]
    )


def _flow_control(parent: Run, definition: BaseWorkflow, data: Mapping[str, Json], at: datetime) -> dict[str, Any]:
    """A child has its workflow's limits. It is as urgent as its parent if it does not say itself, and must end with
    it."""
    controlled = definition.flow_control(data, at=at)
    if controlled["priority"] is None:
        controlled["priority"] = parent.priority
    if parent.must_end_at is not None:
        controlled["deadline_at"] = not_after(parent.must_end_at, controlled["deadline_at"])
    return controlled


def _child_of(parent: Run, step: StepState, at: datetime) -> dict[str, Any]:
    """What is the same in a child however it begins."""
    wire: dict[str, Json] = {
        "type": "workflow",
        "id": step.rpc_name,
        "parentRunId": parent.id,
        "parentStepId": step.step_id,
        "depth": _depth_of(parent) + 1,
    }
    if parent.owner_id is not None:
        wire["pikkuUserId"] = parent.owner_id
    return {
        "id": step.child_run_id,
        "workflow": step.rpc_name,
        "input": step.data,
        "state": {},
        "wire": wire,
        "owner_id": parent.owner_id,
        "parent_run_id": parent.id,
        "created_at": at,
        "updated_at": at,
    }


def _depth_of(run: Run) -> int:
    depth = run.wire.get("depth")
    return depth if isinstance(depth, int) else 0


# -- ending ------------------------------------------------------------------------------------------------------------


def outcome_of(child: Run) -> Outcome:
    """What a child that has ended means to the step that awaits it. Its stack stays with the child.

    Somebody who cancels a child does not want another one, so that is final.
    """
    if child.status == RunStatus.COMPLETED:
        return Outcome(result=child.output)
    if child.status == RunStatus.CANCELLED:
        return Outcome(error=coded_error(WORKFLOW_CANCELLED, "Sub-workflow was cancelled"), is_final=True)
    told = child.error or {}
    error: dict[str, Json] = {name: told[name] for name in ("name", "code") if name in told}
    return Outcome(error={**error, "message": told.get("message") or "Sub-workflow failed"})


def report(runtime: Runtime, child: Run) -> StepState | None:
    """Settle the step that awaits this run, which has ended, and wake its run. The step as it is then, or `None` if no
    step does await it (any more)."""
    step_id = child.wire.get("parentStepId")
    if child.parent_run_id is None or not isinstance(step_id, str):
        return None
    step = runtime.read_step_by_id(step_id)
    if step is None or not step.awaits_child or step.child_run_id != child.id:
        return None
    return settle_attempt(runtime, step, outcome_of(child), token=None, wakes=step.group is None)


def tell_parent(runtime: Runtime, child: Run) -> str | None:
    """`report`, and what follows: the id of the parent if it can go on now."""
    step = report(runtime, child)
    return None if step is None else what_follows(runtime, step, priority=child.priority)


def notify_parent(runtime: Runtime, child: Run) -> bool:
    """`tell_parent`, and leave it to a worker to carry the parent on; whether it can go on now."""
    parent_id = tell_parent(runtime, child)
    if parent_id is not None:
        runtime.hint(runtime.message(parent_id, priority=child.priority))
    return parent_id is not None


# -- looking after -----------------------------------------------------------------------------------------------------


def statuses_of(runtime: Runtime, steps: Sequence[StepState]) -> dict[str, str]:
    """The statuses of the children that these steps await, by the child's id; of those there are."""
    ids = [str(step.child_run_id) for step in steps]
    return dict(runtime.runs.filter(pk__in=ids).values_list("id", "status"))


def look_after(runtime: Runtime, step: StepState, now: datetime, *, has_ended: bool) -> bool:
    """What the relay does for a due step that awaits a child; whether that drove its run on. `has_ended`: the run
    has."""
    if has_ended:
        wind_up(runtime, step.run_id)
        return False
    child = runtime.read_run(str(step.child_run_id))
    if child is not None and child.is_terminal:
        # Whoever ended it did not come to say so.
        return notify_parent(runtime, child)
    redrives = (step.redrives or 0) + 1
    due_at = now + delay_of(redrives - 1) if child is None else runtime.stalled_end(now)
    won = runtime.steps.postpone(step.step_id, seen=step.due_at, due_at=due_at, redrives=redrives)
    if not won or child is not None:
        return False
    # A worker knows the workflow, and makes what is missing.
    runtime.hint(runtime.message(step.run_id, step.step_name, queue=step.queue))
    return True


# -- the way down ------------------------------------------------------------------------------------------------------


def undo(runtime: Runtime, steps: Iterable[StepState], because: Json) -> None:
    """Ask for the children that these steps await to be undone and cancelled, as their parent is to be. One that is
    still to be made is asked by the pass that looks again."""
    for step in steps:
        child_id = str(step.child_run_id)
        if step.awaits_child and runtime.runs.request_cancel(child_id, because, at=runtime.now()):
            runtime.hint(runtime.message(child_id))


def wind_up(runtime: Runtime, run_id: str) -> None:
    """See to what is still due in a run that has ended: its live children are cancelled, and theirs.

    Where this is cut short the relay goes on: a step that awaits a child stays due until the child has ended, and once
    it has, the child's own steps are.
    """
    ended = [run_id]
    while ended:
        run_id = ended.pop()
        due = runtime.steps.filter(run_id=run_id, due_at__isnull=False).values(*StepState.COLUMNS)
        steps = [StepState.from_row(row) for row in due]
        if any(step.status != StepStatus.RUNNING for step in steps):
            runtime.steps.settle_idle(run_id)
        awaiting = [step for step in steps if step.awaits_child]
        parent = runtime.read_run(run_id) if awaiting else None
        if parent is None:
            continue
        for step in awaiting:
            _cancel_child(runtime, parent, step)
            ended.append(str(step.child_run_id))


def see_off(runtime: Runtime, run_id: str) -> None:
    """What follows after a run was ended from outside: nobody is waited for at its gates, its children end, its slots
    become free, its parent is told."""
    close_gates(runtime, run_id)
    wind_up(runtime, run_id)
    run = runtime.read_run(run_id)
    if run is not None:
        admission.leave_for_good(runtime, run, run_id)
        notify_parent(runtime, run)


def _cancel_child(runtime: Runtime, parent: Run, step: StepState) -> None:
    at = runtime.now()
    error = coded_error(WORKFLOW_CANCELLED, _because(parent))
    child_id = str(step.child_run_id)

    def cancel() -> bool:
        return runtime.set_status(child_id, RunStatus.CANCELLED, error=error)

    cancelled = {"status": RunStatus.CANCELLED.value, "error": error, "inline": parent.inline}
    # A child that is not there may be in the making; the same id lets one of the two be.
    if not cancel() and not runtime.runs.create_run({**_child_of(parent, step, at), **cancelled}):
        cancel()
    child = runtime.read_run(child_id)
    if child is not None:
        admission.leave_for_good(runtime, child, child_id)
        outcome = replace(outcome_of(child), is_final=True)
        settle_attempt(runtime, step, outcome, token=None, wakes=False)


def _because(parent: Run) -> str:
    if parent.status == RunStatus.CANCELLED:
        return f"The parent run {parent.id} was cancelled: {(parent.error or {}).get('message')}"
    return f"The parent run {parent.id} has ended: it is {parent.status}"
