"""What tests are made of.

`RunFactory` and `StepFactory` go through the service, as the engine does. The `…RowFactory` ones write plain rows, for
tests of the read side that need a certain past: times, statuses, attempts.
"""

# The declarations of factory_boy have no types.
# mypy: allow-untyped-calls

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from factory.base import Factory
from factory.declarations import LazyAttribute, LazyFunction, SelfAttribute, Sequence, SubFactory
from factory.django import DjangoModelFactory

from pikku_storage.workflows.models import (
    WorkflowAnswer,
    WorkflowRun,
    WorkflowStep,
    WorkflowStepHistory,
    WorkflowVersion,
)
from pikku_storage.workflows.records import Run, StepState
from pikku_storage.workflows.service import WorkflowService
from pikku_storage.workflows.statuses import RunStatus, StepStatus

A_MONDAY = datetime(2026, 3, 2, 9, tzinfo=UTC)


class RunFactory(Factory[Run]):
    """A stored run that nobody drives; answers with the service's record."""

    class Meta:
        model = Run

    name = "orders"
    data: Any = LazyFunction(dict)

    @classmethod
    def _create(cls, model_class: type[Run], *args: Any, **kwargs: Any) -> Run:
        service = WorkflowService()
        run = service.get_run(service.create_run(**kwargs))
        assert run is not None
        return run


class StepFactory(Factory[StepState]):
    """A pending step of a stored run; answers with the service's record."""

    class Meta:
        model = StepState

    run_id = LazyFunction(lambda: RunFactory.create().id)
    step_name = Sequence(lambda number: f"step {number}")
    rpc_name: str | None = "work"
    data: Any = LazyFunction(dict)

    @classmethod
    def _create(cls, model_class: type[StepState], *args: Any, **kwargs: Any) -> StepState:
        return WorkflowService().insert_step_state(**kwargs)


class RunRowFactory(DjangoModelFactory[WorkflowRun]):
    """A row of `workflow_runs`; each one a minute later than the one before."""

    class Meta:
        model = WorkflowRun

    workflow = "orders"
    status = RunStatus.RUNNING.value
    input: Any = LazyFunction(dict)
    created_at = Sequence(lambda number: A_MONDAY + timedelta(minutes=number))
    updated_at = SelfAttribute("created_at")


class StepRowFactory(DjangoModelFactory[WorkflowStep]):
    """A row of `workflow_step`."""

    class Meta:
        model = WorkflowStep

    run = SubFactory(RunRowFactory)
    step_name = Sequence(lambda number: f"step {number}")
    status = StepStatus.PENDING.value
    current_attempt = 1
    created_at = SelfAttribute("run.created_at")
    updated_at = SelfAttribute("created_at")


class AttemptRowFactory(DjangoModelFactory[WorkflowStepHistory]):
    """A row of `workflow_step_history`."""

    class Meta:
        model = WorkflowStepHistory

    step = SubFactory(StepRowFactory)
    attempt = 1
    id = LazyAttribute(lambda row: WorkflowStepHistory.id_of(row.step.id, row.attempt))
    status = StepStatus.PENDING.value
    created_at = SelfAttribute("step.created_at")


class AnswerRowFactory(DjangoModelFactory[WorkflowAnswer]):
    """A row of `workflow_answers`."""

    class Meta:
        model = WorkflowAnswer

    run_id = LazyFunction(lambda: RunRowFactory.create().pk)
    step_name = "__workflow_approval:release"
    ordinal = 0
    id = LazyAttribute(lambda row: WorkflowAnswer.id_of(row.run_id, row.step_name, row.ordinal))
    created_at = A_MONDAY


class VersionRowFactory(DjangoModelFactory[WorkflowVersion]):
    """A row of `workflow_versions`."""

    class Meta:
        model = WorkflowVersion

    workflow_name = "orders"
    graph_hash = Sequence(lambda number: f"{number:032x}")
    id = LazyAttribute(lambda row: WorkflowVersion.id_of(row.workflow_name, row.graph_hash))
    graph: Any = LazyFunction(dict)
    source = "complex"
    created_at = A_MONDAY
