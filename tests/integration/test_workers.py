"""Workflows on real Celery workers: over each broker, with messages lost and doubled, and workers killed."""

import json
import signal
import time
from collections import Counter

import pytest

from pikku_storage.workflows.invariants import find_violations
from pikku_storage.workflows.service import WorkflowService
from tests.integration.conftest import Workers, eventually
from tests.integration.workflows import traces

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(180)]

DISPATCHERS = "tests.integration.dispatchers"
EVERYTHING = {"first": 2, "spread": [0, 10, 20, 30, 40, 50], "shaky": 2, "both": [2, 20]}
START = "print(everything.start({'number': 1, 'width': 6}).id)"


def wait_for_end(run_id: str, *, seconds: float = 60) -> None:
    service = WorkflowService()

    def has_ended() -> bool:
        run = service.get_run(run_id)
        return run is not None and run.is_terminal

    try:
        eventually(has_ended, seconds=seconds, what=f"run {run_id} ends")
    except AssertionError:
        for line in (service.get_run(run_id), *service.list_step_states(run_id)):
            print(line)  # noqa: T201 - for the report of the failed test
        raise


def assert_completed(run_id: str, output: object) -> None:
    run = WorkflowService().get_run(run_id)
    assert run is not None
    assert (run.status, run.output) == ("completed", output), run.error
    assert [str(violation) for violation in find_violations(run_ids=[run_id])] == []


def test_a_run_is_carried_out_by_workers(workers: Workers) -> None:
    workers.start()
    run_id = workers.ask(START)
    wait_for_end(run_id)
    assert_completed(run_id, EVERYTHING)
    calls = Counter(name for name, _invocation, _attempt in traces())
    assert calls == {"first": 1, "shaky": 3, "left": 1, "right": 1, **{f"spread[{index}]": 1 for index in range(6)}}
    workers_seen = {step.claimed_by for step in WorkflowService().list_step_states(run_id) if step.claimed_by}
    assert workers_seen == {workers.name_of(0)}
    assert WorkflowService().get_run_state(run_id) == {"done": True}


def test_every_message_twice_changes_nothing(workers: Workers) -> None:
    workers.start(dispatcher=f"{DISPATCHERS}.EachTwice")
    ids = [workers.ask(START, dispatcher=f"{DISPATCHERS}.EachTwice") for _ in range(3)]
    for run_id in ids:
        wait_for_end(run_id)
        assert_completed(run_id, EVERYTHING)
    assert len(traces()) == 3 * (6 + 1 + 3 + 2)


def test_lost_messages_cost_time_only(workers: Workers) -> None:
    workers.start(dispatcher=f"{DISPATCHERS}.AThirdLost")
    run_id = workers.ask(START, dispatcher=f"{DISPATCHERS}.AThirdLost")
    wait_for_end(run_id, seconds=150)
    assert_completed(run_id, EVERYTHING)


def test_a_run_whose_broker_was_down_is_dispatched_later(workers: Workers) -> None:
    env = {**workers.env(), "PIKKU_TEST_BROKER_URL": "amqp://guest:guest@127.0.0.1:1//"}
    here, workers.broker = workers.broker, env["PIKKU_TEST_BROKER_URL"]
    run_id = workers.ask(START)
    workers.broker = here
    assert (run := WorkflowService().get_run(run_id)) is not None
    assert run.status == "running"
    workers.start()
    wait_for_end(run_id)
    assert_completed(run_id, EVERYTHING)


@pytest.mark.parametrize("how", ["exit", "hang"])
def test_a_killed_worker_costs_an_attempt(workers: Workers, how: str) -> None:
    worker = workers.start()
    run_id = workers.ask(f"print(survivor.start({{'how': {how!r}}}).id)")
    service = WorkflowService()
    if how == "hang":
        eventually(
            lambda: any(name == "deadly" for name, _invocation, _attempt in traces()),
            seconds=30,
            what="the deadly step runs",
        )
        workers.kill(worker)
        workers.start()
    wait_for_end(run_id)
    assert_completed(run_id, "alive in attempt 2")
    steps = {step.step_name: step for step in service.list_step_states(run_id)}
    assert {name: step.attempt_count for name, step in steps.items()} == {"before": 1, "deadly": 2, "after": 1}
    deadly = [event for event in service.get_run_timeline(run_id) or [] if event.step_name == "deadly"]
    lost = next(event for event in deadly if event.type == "failed")
    assert lost.error is not None
    assert lost.error["code"] == "WORKER_LOST"
    invocations = {invocation for name, invocation, _attempt in traces() if name == "deadly"}
    assert len(invocations) == 1


def test_a_long_step_keeps_its_lease(workers: Workers) -> None:
    workers.start()
    run_id = workers.ask("print(patient.start({'seconds': 8}).id)")
    wait_for_end(run_id)
    assert_completed(run_id, 8)
    assert json.loads(json.dumps([step.attempt_count for step in WorkflowService().list_step_states(run_id)])) == [1]


@pytest.mark.parametrize("how", ["cold shutdown", "soft shutdown"])
def test_a_worker_that_is_stopped_in_a_step_hands_it_back(workers: Workers, how: str) -> None:
    """By SIGQUIT after SIGTERM, or by Celery's soft shutdown. The lease is far too long to be waited for."""
    long_lease = {"PIKKU_TEST_LEASE": "10m"}
    soft = {"REMAP_SIGTERM": "SIGQUIT", "PIKKU_TEST_SOFT_SHUTDOWN": "1"} if how == "soft shutdown" else {}
    leaving = workers.start(env={**long_lease, **soft})
    run_id = workers.ask("print(survivor.start({'how': 'hang'}).id)")
    eventually(lambda: any(name == "deadly" for name, *_ in traces()), seconds=30, what="the deadly step runs")
    workers.start(env=long_lease)

    leaving.send_signal(signal.SIGTERM)
    if how == "cold shutdown":
        time.sleep(0.5)
        leaving.send_signal(signal.SIGQUIT)
    wait_for_end(run_id, seconds=20)

    assert_completed(run_id, "alive in attempt 2")
    deadly = [event for event in WorkflowService().get_run_timeline(run_id) or [] if event.step_name == "deadly"]
    lost = next(event for event in deadly if event.type == "failed")
    assert lost.error is not None
    assert lost.error["code"] == "WORKER_LOST"
    assert "was told to stop" in str(lost.error["message"])
