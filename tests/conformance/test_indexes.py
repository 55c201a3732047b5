"""The indexes that the hot reads need."""

import pytest
from django.core.management import call_command
from django.db import models

from pikku_storage.workflows.models import WorkflowRun, WorkflowStep, WorkflowStepHistory, WorkflowVersion
from tests.conformance.support import connection

pytestmark = pytest.mark.django_db


def _indexes(model: type[models.Model]) -> list[list[str]]:
    """The columns of each index of the model's table, as the database tells."""
    with connection.cursor() as cursor:
        constraints = connection.introspection.get_constraints(cursor, model._meta.db_table)
    return [list(found["columns"]) for found in constraints.values() if found["index"] or found["unique"]]


def _begins(model: type[models.Model], *columns: str) -> bool:
    """Whether an index begins with these columns."""
    return any(index[: len(columns)] == list(columns) for index in _indexes(model))


@pytest.mark.contract("KW-01")
def test_history_is_indexed_by_step() -> None:
    assert _begins(WorkflowStepHistory, "workflow_step_id")


@pytest.mark.contract("KW-02")
def test_that_index_also_covers_the_time_of_creation() -> None:
    assert _begins(WorkflowStepHistory, "workflow_step_id", "created_at")


@pytest.mark.contract("KW-03")
@pytest.mark.parametrize("column", ["status", "workflow", "owner_id"])
def test_runs_are_indexed_for_each_filter_of_their_list_in_keyset_order(column: str) -> None:
    assert _begins(WorkflowRun, column, "created_at", "workflow_run_id")


def test_the_unfiltered_list_of_runs_has_an_index_too() -> None:
    assert _begins(WorkflowRun, "created_at", "workflow_run_id")


@pytest.mark.contract("KW-04")
def test_steps_are_indexed_by_run_and_status() -> None:
    assert _begins(WorkflowStep, "workflow_run_id", "status")


def test_a_step_is_found_by_run_and_name() -> None:
    assert _begins(WorkflowStep, "workflow_run_id", "step_name")


@pytest.mark.contract("KW-05")
def test_versions_are_indexed_for_lookup() -> None:
    assert _begins(WorkflowVersion, "workflow_name", "graph_hash")
    assert _begins(WorkflowVersion, "source", "status")


@pytest.mark.parametrize("model", [WorkflowRun, WorkflowStep])
def test_what_is_due_is_indexed(model: type[models.Model]) -> None:
    assert _begins(model, "due_at")


@pytest.mark.contract("KW-06")
def test_setting_up_twice_does_not_fail() -> None:
    call_command("migrate", verbosity=0)
    call_command("migrate", verbosity=0)

    assert "workflow_runs" in connection.introspection.table_names()


def test_the_migrations_are_complete() -> None:
    call_command("makemigrations", "pikku_workflows", check=True, dry_run=True, verbosity=0)
