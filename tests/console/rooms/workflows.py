"""Runs, steps, attempts, versions, schedules and controls."""

from __future__ import annotations

from django.contrib.auth.models import User

from console.gate import WORKFLOWS
from pikku_storage.workflows.gates import APPROVAL_RPC, gate_name
from pikku_storage.workflows.models import WorkflowSchedule, WorkflowVersion
from pikku_storage.workflows.service import WorkflowService
from tests.console.rooms import Room, Rows
from tests.console.stories import Try, failed_order, now


def _make(user: User) -> dict[str, Rows]:
    story = failed_order(now(), owner_id=str(user.pk))
    story.step(gate_name(APPROVAL_RPC, "release"), [Try(24, 24)], function=APPROVAL_RPC, data={"reason": "release"})
    run_id = story.tell()
    service = WorkflowService()
    service.upsert_workflow_version("w", "h", {}, "complex")
    service.pause_workflow("fulfil_order")
    # A workflow that this process does not know: its input is not checked.
    WorkflowSchedule.objects.create(
        id=WorkflowSchedule.id_of("nightly"),
        name="nightly",
        workflow="sweep",
        cron="0 3 * * *",
        timezone="UTC",
        input={},
        created_at=now(),
        updated_at=now(),
    )
    return {
        "workflowrun": Rows(run_id),
        "workflowstep": Rows(story.steps[0].pk),
        "gate": Rows(story.steps[-1].pk),
        "workflowstephistory": Rows(story.attempts[0].pk),
        "workflowversion": Rows(WorkflowVersion.objects.get().pk),
        "workflowschedule": Rows(WorkflowSchedule.objects.get().pk),
        "workflowcontrol": Rows("fulfil_order"),
    }


_RUN = "pikku_workflows_workflowrun"

ROOM = Room(
    area=WORKFLOWS,
    make=_make,
    needs={
        f"{_RUN}_operation": "manage",
        f"{_RUN}_answer": "manage",
        "pikku_workflows_workflowschedule_add": "manage",
        "pikku_workflows_workflowschedule_delete": "manage",
        "pikku_workflows_workflowcontrol_add": "manage",
    },
    params={
        f"{_RUN}_payload": {"part": "input"},
        f"{_RUN}_step": {"step_id": "workflowstep"},
        f"{_RUN}_step_payload": {"step_id": "workflowstep", "part": "output"},
        f"{_RUN}_operation": {"operation": "retry"},
        f"{_RUN}_answer": {"step_id": "gate"},
    },
)
