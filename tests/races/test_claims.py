"""Many workers, one winner: threads and processes that claim the same steps at the same time."""

from collections import Counter

import pytest

from pikku_storage.workflows.invariants import find_violations
from pikku_storage.workflows.service import WorkflowService
from tests.races.claimer import claim_all
from tests.races.together import answers_of_processes, in_threads

STEPS = 50
THREADS = 16
PROCESSES = 8

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(params=["pending", "scheduled", "failed"])
def contested(request: pytest.FixtureRequest) -> tuple[str, int]:
    """A run whose steps all wait in one status, and the number that their claimed attempt must have."""
    service = WorkflowService()
    run_id = service.create_run("contested", {})
    for index in range(STEPS):
        step = service.insert_step_state(run_id, f"step {index}", "some_function", {})
        if request.param == "scheduled":
            assert service.set_step_scheduled(step.step_id)
        if request.param == "failed":
            assert service.set_step_running(step.step_id)
            assert service.set_step_error(step.step_id, {"message": "once"})
    return run_id, 2 if request.param == "failed" else 1


def assert_one_winner_each(won: list[list[str]], run_id: str, attempt: int) -> None:
    counts = Counter(name for names in won for name in names)
    steps = WorkflowService().list_step_states(run_id)
    assert counts == Counter({step.step_name: 1 for step in steps})
    assert len(steps) == STEPS
    assert {(step.status, step.attempt_count) for step in steps} == {("running", attempt)}
    assert len({step.claim_token for step in steps}) == STEPS
    assert list(find_violations(run_ids=[run_id])) == []


@pytest.mark.contract("KW-23", "KW-24", "KW-29")
def test_threads_win_each_step_once(contested: tuple[str, int]) -> None:
    run_id, attempt = contested
    names = [step.step_name for step in WorkflowService().list_step_states(run_id)]
    won = in_threads(lambda index: claim_all(run_id, list(names)), THREADS)
    assert_one_winner_each(won, run_id, attempt)


def test_processes_win_each_step_once(contested: tuple[str, int], process_env: dict[str, str]) -> None:
    run_id, attempt = contested
    won = answers_of_processes("tests.races.claimer", [[run_id]] * PROCESSES, process_env)
    assert_one_winner_each(won, run_id, attempt)
