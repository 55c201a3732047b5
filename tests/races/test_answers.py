"""Many people, one answer: threads and processes that answer the same approvals at the same time, and expiries."""

from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from pytest_django import Settings

from pikku_storage.db import clock
from pikku_storage.workflows import workflow
from pikku_storage.workflows.flow import Flow
from pikku_storage.workflows.handle import WorkflowRunHandle
from pikku_storage.workflows.invariants import find_violations
from pikku_storage.workflows.runs import WorkflowRunService
from pikku_storage.workflows.service import WorkflowService
from tests.races.answerer import Nowhere, answer_all
from tests.races.together import answers_of_processes, together

RUNS = 12
THREADS = 8
PROCESSES = 3
GATE = "__workflow_approval:release"

pytestmark = pytest.mark.django_db(transaction=True)


@workflow(name="races.asked")
def asked(flow: Flow) -> Any:
    answer = flow.approval("release", expiry="1h")
    return answer.data if answer.decided_by == answer.data else "mixed up"


@pytest.fixture(autouse=True)
def _no_messages(settings: Settings) -> None:
    settings.PIKKU_STORAGE = {"DISPATCHER": Nowhere.PATH}


@pytest.fixture
def waiting() -> list[WorkflowRunHandle]:
    """Runs that stand at an approval."""
    runs = [asked.run() for _ in range(RUNS)]
    assert {run.status for run in runs} == {"suspended"}
    return runs


def assert_one_answer_each(runs: list[WorkflowRunHandle], taken: dict[str, list[str]]) -> None:
    """Each run ended with the answer of the one who was told that it was taken."""
    for run in runs:
        WorkflowService().orchestrate_workflow(run.id)
        (winner,) = [name for name, run_ids in taken.items() if run.id in run_ids]
        assert run.output == winner
        assert len(WorkflowRunService().get_run_answers(run.id)) == 1
    assert list(find_violations()) == []


def test_of_threads_that_answer_one_is_taken(waiting: list[WorkflowRunHandle]) -> None:
    run_ids = [run.id for run in waiting]
    names = [f"thread {number}" for number in range(THREADS)]
    taken = together(*[partial(answer_all, name, list(run_ids)) for name in names])
    assert_one_answer_each(waiting, dict(zip(names, taken, strict=True)))


def test_of_processes_that_answer_one_is_taken(waiting: list[WorkflowRunHandle], process_env: dict[str, str]) -> None:
    names = [f"process {number}" for number in range(PROCESSES)]
    run_ids = [run.id for run in waiting]
    taken = answers_of_processes("tests.races.answerer", [[name, *run_ids] for name in names], process_env)
    assert_one_answer_each(waiting, dict(zip(names, taken, strict=True)))


def test_an_answer_and_the_expiry_race_and_one_wins(waiting: list[WorkflowRunHandle]) -> None:
    """The passes judge at a time when the approvals are over; the answers are entered by clocks that are behind."""
    run_ids = [run.id for run in waiting]
    service = WorkflowService()
    answers = service._runtime.answers
    at = service._runtime.now()

    def answer() -> list[str]:
        entry: dict[str, Any] = {
            "decision": "late",
            "decided_by": {"userId": "late", "scopes": []},
            "at": at,
            "due_at": at,
        }
        return [run_id for run_id in run_ids if answers.answer(run_id, GATE, 0, **entry)]

    def expire() -> list[str]:
        for run_id in run_ids:
            service.orchestrate_workflow(run_id)
        return []

    with clock.travel(timedelta(hours=2)):
        entered, _ = together(answer, expire)
        for run in waiting:
            service.orchestrate_workflow(run.id)
    assert {run.id: run.output for run in waiting} == {run.id: "late" if run.id in entered else None for run in waiting}
    assert list(find_violations()) == []
