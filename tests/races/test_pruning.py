"""Several delete the same old runs at once, and one of them is killed."""

import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from pikku_storage.workflows.models import WorkflowRun, WorkflowStep, WorkflowStepHistory
from pikku_storage.workflows.service import WorkflowService
from tests.factories import A_MONDAY, AttemptRowFactory, RunRowFactory, StepRowFactory
from tests.races.together import in_threads

ROOT = Path(__file__).parents[2]
RUNS = 40
THREADS = 4

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def old_runs() -> list[str]:
    """Their ids. Each has a step with an attempt."""
    runs = [
        RunRowFactory.create(status="completed", created_at=A_MONDAY + timedelta(minutes=number))
        for number in range(RUNS)
    ]
    for run in runs:
        AttemptRowFactory.create(step=StepRowFactory.create(run=run, status="succeeded"))
    return [run.id for run in runs]


def nothing_is_left() -> bool:
    return not any(model._default_manager.exists() for model in (WorkflowRun, WorkflowStep, WorkflowStepHistory))


def test_of_several_at_once_each_run_is_deleted_by_one(old_runs: list[str]) -> None:
    service = WorkflowService()
    pruned = in_threads(lambda index: service.prune_runs("1d", statuses=["completed"], batch=7), THREADS)

    assert sum(each.deleted for each in pruned) == RUNS
    assert nothing_is_left()


def test_what_a_killed_one_leaves_is_deleted_by_the_next(old_runs: list[str], process_env: dict[str, str]) -> None:
    options = ["--older-than=1d", "--status=completed", "--batch=1", "--verbosity=2"]
    with subprocess.Popen(
        [sys.executable, str(ROOT / "manage.py"), "prune_runs", *options],
        env={**process_env, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "completed: 1 runs deleted so far\n"
        process.kill()

    pruned = WorkflowService().prune_runs("1d", statuses=["completed"])

    assert pruned.kept == 0
    assert pruned.deleted < RUNS
    assert nothing_is_left()
