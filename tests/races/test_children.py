"""Races between a parent and its children: made, told of and cancelled at the same moment."""

from __future__ import annotations

from datetime import timedelta

import pytest
from pytest_django.fixtures import Settings

from pikku_storage.db.clock import travel
from pikku_storage.workflows import workflow
from pikku_storage.workflows.engine import children
from pikku_storage.workflows.flow import Flow
from pikku_storage.workflows.invariants import find_violations
from pikku_storage.workflows.models import WorkflowRun, WorkflowStep
from pikku_storage.workflows.service import WorkflowService
from tests.races.together import in_threads

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def no_messages(settings: Settings) -> None:
    settings.PIKKU_STORAGE = {"DISPATCHER": "tests.races.test_starts.Nowhere"}


@workflow(name="races.child")
def child(flow: Flow) -> str:
    return flow.do("only", lambda: "done")


@workflow(name="races.parent")
def parent(flow: Flow) -> list[str]:
    return flow.map("child", child, [{}, {}])


def _begun() -> str:
    """A run whose two children are there, and which nobody has looked at yet."""
    handle = parent.start()
    WorkflowService().orchestrate_workflow(handle.id)
    return handle.id


def test_a_child_that_many_make_is_one_run() -> None:
    service = WorkflowService()
    run_id = _begun()
    run = service.get_run(run_id)
    assert run is not None
    steps = service.list_step_states(run_id)
    WorkflowRun.objects.filter(parent_run_id=run_id).delete()

    in_threads(lambda index: children.start(WorkflowService()._runtime, run, steps, inline=False), threads=8)

    assert {each.id for each in service.list_child_runs(run_id)} == {step.child_run_id for step in steps}


def test_many_that_tell_a_parent_settle_its_steps_once() -> None:
    service = WorkflowService()
    run_id = _begun()
    ids = [each.id for each in service.list_child_runs(run_id)]

    in_threads(lambda index: WorkflowService().orchestrate_workflow(ids[index % 2]), threads=8)

    handle = service.get_handle(run_id)
    if not handle.get().is_terminal:
        with travel(timedelta(minutes=1)):
            service.relay()
            service.orchestrate_workflow(run_id)
    assert handle.output == ["done", "done"]
    assert [step.attempt_count for step in handle.steps()] == [1, 1]
    assert list(find_violations()) == []


def test_a_cancellation_meets_the_making_of_children_and_their_work() -> None:
    """Whoever is faster: in the end nothing of it lives."""
    service = WorkflowService()
    for _ in range(5):
        handle = parent.start()

        def act(index: int, run_id: str = handle.id) -> None:
            own = WorkflowService(worker=f"w{index}")
            if index == 0:
                own.cancel_workflow(run_id)
                return
            own.orchestrate_workflow(run_id)
            for each in own.list_child_runs(run_id):
                own.orchestrate_workflow(each.id)

        in_threads(act, threads=3)
    with travel(timedelta(minutes=10)):
        service.relay()
        service.relay()
    assert not WorkflowRun.objects.filter(due_at__isnull=False).exists()
    assert not WorkflowStep.objects.filter(due_at__isnull=False).exists()
    assert not WorkflowRun.objects.filter(status__in=["running", "suspended"]).exists()
    assert list(find_violations()) == []
