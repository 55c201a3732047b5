"""The indexes that the hot reads need."""

from datetime import UTC, datetime
from typing import Any

import pytest
from django.apps import apps
from django.core.checks import Tags, run_checks
from django.core.management import call_command
from django.db import models
from django.db.migrations.loader import MigrationLoader

from pikku_storage.conf import APP_LABELS
from pikku_storage.db.migrating import Migration
from pikku_storage.workflows.models import (
    WorkflowRun,
    WorkflowSchedule,
    WorkflowSlot,
    WorkflowStep,
    WorkflowStepHistory,
    WorkflowVersion,
)
from tests.conformance.support import about_sql, connection

pytestmark = pytest.mark.django_db

AT = datetime(2026, 3, 2, tzinfo=UTC)


def _indexes(model: type[models.Model]) -> list[list[str]]:
    """The columns of each index of the model's table, as the database tells."""
    with connection.cursor() as cursor:
        constraints = connection.introspection.get_constraints(cursor, model._meta.db_table)
    return [list(found["columns"]) for found in constraints.values() if found["index"] or found["unique"]]


def _begins(model: type[models.Model], *fields: str) -> bool:
    """Whether an index begins with the columns of these fields."""
    columns = [model._meta.get_field(name).column for name in fields]  # type: ignore[union-attr]
    return any(index[: len(columns)] == columns for index in _indexes(model))


@pytest.mark.contract("KW-01")
def test_history_is_indexed_by_step() -> None:
    assert _begins(WorkflowStepHistory, "step")


@pytest.mark.contract("KW-02")
def test_that_index_also_covers_the_time_of_creation() -> None:
    assert _begins(WorkflowStepHistory, "step", "created_at")


@pytest.mark.contract("KW-03")
@pytest.mark.parametrize("column", ["status", "workflow", "owner_id"])
def test_runs_are_indexed_for_each_filter_of_their_list_in_keyset_order(column: str) -> None:
    assert _begins(WorkflowRun, column, "created_at", "id")


def test_the_unfiltered_list_of_runs_has_an_index_too() -> None:
    assert _begins(WorkflowRun, "created_at", "id")


@pytest.mark.contract("KW-04")
def test_steps_are_indexed_by_run_and_status() -> None:
    assert _begins(WorkflowStep, "run", "status")


def test_a_step_is_found_by_run_and_name() -> None:
    assert _begins(WorkflowStep, "run", "step_name")


@pytest.mark.contract("KW-05")
def test_versions_are_indexed_for_lookup() -> None:
    assert _begins(WorkflowVersion, "workflow_name", "graph_hash")
    assert _begins(WorkflowVersion, "source", "status")


@pytest.mark.parametrize(
    ("model", "column"),
    [(WorkflowRun, "due_at"), (WorkflowStep, "due_at"), (WorkflowSchedule, "next_fire_at")],
)
def test_what_is_due_is_indexed(model: type[models.Model], column: str) -> None:
    assert _begins(model, column)


@about_sql
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("model", [WorkflowRun, WorkflowStep])
def test_the_relay_finds_what_is_due_by_that_index(model: type[models.Model]) -> None:
    run_ids = [f"run {number:04}" for number in range(1000)]
    times: dict[str, Any] = {"created_at": AT, "updated_at": AT}
    due = [AT if number < 50 else None for number in range(1000)]
    WorkflowRun.objects.bulk_create(
        WorkflowRun(pk=run_id, workflow="orders", due_at=due_at, **times)
        for run_id, due_at in zip(run_ids, due, strict=True)
    )
    WorkflowStep.objects.bulk_create(
        WorkflowStep(pk=run_id, run_id=run_id, step_name="pack", due_at=due_at, **times)
        for run_id, due_at in zip(run_ids, due, strict=True)
    )
    assert _is_found_by_index(model._default_manager.filter(due_at__lte=AT), "due_at")


@about_sql
@pytest.mark.django_db(transaction=True)
def test_the_relay_finds_schedules_that_are_due_by_an_index() -> None:
    WorkflowSchedule.objects.bulk_create(
        WorkflowSchedule(
            pk=f"schedule {number:04}",
            name=f"schedule {number:04}",
            workflow="orders",
            input={},
            next_fire_at=AT if number < 50 else None,
            created_at=AT,
            updated_at=AT,
        )
        for number in range(1000)
    )
    due = WorkflowSchedule.objects.filter(next_fire_at__lte=AT, undeclared=False)
    assert _is_found_by_index(due, "next_fire_at")


def _is_found_by_index(rows: models.QuerySet[Any], column: str) -> bool:
    model = rows.model
    with connection.cursor() as cursor:
        cursor.execute(f"{'ANALYZE TABLE' if connection.vendor == 'mysql' else 'ANALYZE'} {model._meta.db_table}")
        if cursor.description:
            cursor.fetchall()
    plan = rows.order_by(column)[:100].explain()
    return any(index.fields == [column] and index.name in plan for index in model._meta.indexes)


def test_whoever_is_next_in_a_line_is_found_by_an_index() -> None:
    assert _begins(WorkflowRun, "line", "line_place")
    assert _begins(WorkflowSlot, "scope")
    assert _begins(WorkflowSlot, "run")


def test_no_database_is_warned_about_them() -> None:
    app = apps.get_app_config("pikku_workflows")
    assert run_checks(app_configs=[app], tags=[Tags.models], databases=["default"]) == []


@pytest.mark.parametrize("model", [WorkflowRun, WorkflowStep])
def test_only_what_is_due_takes_space_where_the_database_can(model: type[models.Model]) -> None:
    (index,) = [index for index in model._meta.indexes if index.fields == ["due_at"]]
    text = str(index.create_sql(model, connection.schema_editor(collect_sql=True)))

    assert ("IS NOT NULL" in text) == connection.features.supports_partial_indexes, text


@pytest.mark.contract("KW-06")
def test_setting_up_twice_does_not_fail() -> None:
    call_command("migrate", verbosity=0)
    call_command("migrate", verbosity=0)

    assert "workflow_runs" in connection.introspection.table_names()


def test_the_migrations_are_ours() -> None:
    """`makemigrations` writes Django's own base class, which would make collections on MongoDB."""
    loader = MigrationLoader(None, ignore_no_migrations=True)
    written = [each for (label, _), each in loader.disk_migrations.items() if label.startswith(APP_LABELS)]
    assert len(written) >= len([app for app in apps.get_app_configs() if app.label.startswith(APP_LABELS)])
    assert [str(each) for each in written if not isinstance(each, Migration)] == []


def test_the_migrations_are_complete() -> None:
    call_command("makemigrations", "pikku_workflows", check=True, dry_run=True, verbosity=0)
