"""Texts that a database may take for the same, and that are not."""

from datetime import UTC, datetime

import pytest

from pikku_storage.workflows import workflow
from pikku_storage.workflows.flow import Flow
from pikku_storage.workflows.models import WorkflowRun
from pikku_storage.workflows.runs import WorkflowRunService
from pikku_storage.workflows.service import WorkflowService

AT = datetime(2026, 3, 2, tzinfo=UTC)
pytestmark = pytest.mark.django_db

# Case, a trailing space, an accent, the same accent as a character of its own, a wide form, an invisible character.
LIKE_ONE_ANOTHER = ["pack", "Pack", "PACK", "pack ", "pack  ", " pack", "päck", "pa\u0308ck", "\uff50ack", "pa\u200bck"]


def test_steps_whose_names_differ_are_different_steps(service: WorkflowService) -> None:
    run_id = service.create_run("orders", {})
    ids = {name: service.insert_step_state(run_id, name, "f", {"name": name}).step_id for name in LIKE_ONE_ANOTHER}

    assert len(set(ids.values())) == len(LIKE_ONE_ANOTHER)
    for name in LIKE_ONE_ANOTHER:
        step = service.get_step_state(run_id, name)
        assert (step.step_id, step.step_name, step.data) == (ids[name], name, {"name": name})


def test_a_key_is_the_same_only_if_every_character_is() -> None:
    @workflow(name="exact.orders")
    def orders(flow: Flow) -> None: ...

    handles = [orders.start(idempotency_key=key) for key in LIKE_ONE_ANOTHER]

    assert len({handle.id for handle in handles}) == len(LIKE_ONE_ANOTHER)
    assert [orders.start(idempotency_key=key).id for key in LIKE_ONE_ANOTHER] == [handle.id for handle in handles]


def test_runs_are_listed_by_exactly_that_workflow_and_owner(service: WorkflowService, runs: WorkflowRunService) -> None:
    for name in LIKE_ONE_ANOTHER:
        service.create_run(name, {"name": name})

    assert sorted(runs.get_distinct_workflow_names()) == sorted(LIKE_ONE_ANOTHER)
    for name in LIKE_ONE_ANOTHER:
        assert [run.input for run in runs.list_runs(workflow_name=name)] == [{"name": name}]


def test_ids_may_differ_in_case_only(service: WorkflowService) -> None:
    for run_id in LIKE_ONE_ANOTHER:
        WorkflowRun.objects.create(pk=run_id, workflow="orders", created_at=AT, updated_at=AT)
        assert service.update_run_state(run_id, "mine", run_id)

    assert [service.get_run_state(run_id) for run_id in LIKE_ONE_ANOTHER] == [
        {"mine": name} for name in LIKE_ONE_ANOTHER
    ]


def test_keys_of_the_state_that_look_alike_are_kept_apart(service: WorkflowService) -> None:
    run_id = service.create_run("orders", {})
    for round_ in range(2):
        for number, key in enumerate(LIKE_ONE_ANOTHER):
            service.update_run_state(run_id, key, [round_, number])

    assert service.get_run_state(run_id) == {key: [1, number] for number, key in enumerate(LIKE_ONE_ANOTHER)}
