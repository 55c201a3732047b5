"""Races beside claims: the same key started twice, outcomes against the relay, state keys, and passes that meet."""

from datetime import timedelta
from typing import TypeVar

import pytest
from pytest_django.fixtures import Settings

from pikku_storage.db.clock import travel
from pikku_storage.workflows import function, workflow
from pikku_storage.workflows.flow import Flow
from pikku_storage.workflows.invariants import find_violations
from pikku_storage.workflows.models import WorkflowRun
from pikku_storage.workflows.service import WorkflowService
from tests.races.together import in_threads

THREADS = 12
T = TypeVar("T")

pytestmark = pytest.mark.django_db(transaction=True)


@function(name="races.noop", retries=0)
def noop() -> str:
    return "done"


@workflow(name="races.simple")
def simple(flow: Flow, number: int) -> str:
    return flow.do("only", noop)


class Nowhere:
    """A dispatcher whose messages are all lost."""

    def send(self, messages: object) -> None:
        """Lose them."""


@pytest.fixture
def no_messages(settings: Settings) -> None:
    settings.PIKKU_STORAGE = {"DISPATCHER": "tests.races.test_starts.Nowhere"}


@pytest.mark.usefixtures("no_messages")
def test_one_key_is_one_run_however_many_start_it() -> None:
    handles = in_threads(lambda index: simple.start({"number": 1}, idempotency_key="order-1"))
    assert len({handle.id for handle in handles}) == 1
    assert sum(handle.created for handle in handles) == 1
    assert WorkflowRun.objects.count() == 1


@pytest.mark.usefixtures("no_messages")
def test_many_orchestrators_run_each_step_once() -> None:
    handle = simple.start({"number": 1})
    in_threads(lambda index: WorkflowService(worker=f"w{index}").orchestrate_workflow(handle.id))
    assert handle.status == "completed"
    assert [step.attempt_count for step in handle.steps()] == [1]
    assert list(find_violations()) == []


@pytest.mark.contract("KW-15")
def test_concurrent_state_keys_all_survive() -> None:
    service = WorkflowService()
    run_id = service.create_run("state", {})
    in_threads(lambda index: [service.update_run_state(run_id, f"k{index}.{n}", n) for n in range(10)])
    assert service.get_run_state(run_id) == {f"k{index}.{n}": n for index in range(THREADS) for n in range(10)}


def test_an_outcome_and_a_reclaim_cannot_both_count() -> None:
    service = WorkflowService()
    run_id = service.create_run("race", {})
    for index in range(20):
        service.insert_step_state(run_id, f"s{index}", "f", {}, retries=1, retry_delay="1h")
    claimed = [service.claim_step(run_id, f"s{index}") for index in range(20)]

    def finish(_: int) -> list[bool]:
        return [
            service.set_step_result(step.step_id, "mine", attempt=1, claim_token=step.claim_token)
            for step in claimed
            if step is not None
        ]

    with travel(timedelta(minutes=2)):
        results = in_threads(lambda index: finish(index) if index % 2 else service.relay(limit=20), threads=4)
        steps = service.list_step_states(run_id)
    wins = [result for index, result in enumerate(results) if index % 2]
    for number, step in enumerate(steps):
        written = sum(bool(win[number]) for win in wins)
        assert (step.status, written) in {("succeeded", 1), ("failed", 0)}
        assert step.error is None or step.error["code"] == "WORKER_LOST"
    assert list(find_violations(run_ids=[run_id])) == []
