"""Workers killed, messages lost and doubled, the broker emptied: it may only cost time.

After each of these every run has settled with the right output, the invariants hold, and every effect that is keyed by
its invocation id happened once (`traces` has a row per call, so a call that the books cannot see would show).
"""

import random
import signal
import time
from collections import Counter

import pytest
import redis

from pikku_storage.workflows.invariants import find_violations
from pikku_storage.workflows.service import WorkflowService
from pikku_storage.workflows.statuses import LIVE_RUN_STATUSES
from tests.integration.conftest import Workers, eventually
from tests.integration.workflows import traces

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(300)]

RUNS = 25
WIDTH = 4
DISPATCHERS = "tests.integration.dispatchers"
START = f"print(' '.join(everything.start({{'number': n, 'width': {WIDTH}}}).id for n in range({RUNS})))"


def output_of(number: int) -> dict[str, object]:
    """What `everything` answers for that number."""
    return {
        "first": number + 1,
        "spread": [index * 10 for index in range(WIDTH)],
        "shaky": number + 1,
        "both": [2, 20],
    }


def unsettled(ids: list[str]) -> int:
    service = WorkflowService()
    return service._runtime.runs.filter(pk__in=ids, status__in=sorted(LIVE_RUN_STATUSES)).count()


def assert_settled_and_balanced(ids: list[str]) -> None:
    """Every run came to its right end, and what was done was done once per attempt."""
    service = WorkflowService()
    for number, run_id in enumerate(ids):
        run = service.get_run(run_id)
        assert run is not None
        story = [
            (event.type, event.step_name, event.attempt_count, event.error)
            for event in service.get_run_timeline(run_id) or []
        ]
        assert (run.status, run.output) == ("completed", output_of(number)), story
    assert [str(violation) for violation in find_violations(run_ids=ids)] == []
    calls = traces()
    assert len(set(calls)) == len(calls)
    succeeded = Counter(step.status for run_id in ids for step in service.list_step_states(run_id))
    assert succeeded == {"succeeded": RUNS * (WIDTH + 5)}


def test_workers_killed_at_random(workers: Workers, chance: random.Random) -> None:
    workers.start()
    ids = workers.ask(START).split()
    for _ in range(4):
        time.sleep(chance.uniform(0.3, 2.0))
        workers.kill(workers.running[-1])
        workers.start()
    eventually(lambda: not unsettled(ids), seconds=200, what="every run settles")
    assert_settled_and_balanced(ids)


def test_workers_told_to_stop(workers: Workers, chance: random.Random) -> None:
    workers.start()
    ids = workers.ask(START).split()
    for _ in range(3):
        time.sleep(chance.uniform(0.3, 2.0))
        leaving = workers.running[-1]
        leaving.send_signal(signal.SIGTERM)
        workers.start()
        leaving.wait(60)
    eventually(lambda: not unsettled(ids), seconds=200, what="every run settles")
    assert_settled_and_balanced(ids)
    attempts = Counter(step.attempt_count for run_id in ids for step in WorkflowService().list_step_states(run_id))
    assert set(attempts) == {1, 3}, "a worker that was asked to stop finished what it had"


@pytest.mark.parametrize("dispatcher", ["EachTwice", "AThirdLost"])
def test_messages_lost_or_doubled(workers: Workers, dispatcher: str) -> None:
    workers.start(dispatcher=f"{DISPATCHERS}.{dispatcher}")
    workers.start(dispatcher=f"{DISPATCHERS}.{dispatcher}", beat=False)
    ids = workers.ask(START, dispatcher=f"{DISPATCHERS}.{dispatcher}").split()
    eventually(lambda: not unsettled(ids), seconds=250, what="every run settles")
    assert_settled_and_balanced(ids)


def test_the_broker_forgets_everything(workers: Workers, chance: random.Random) -> None:
    workers.start()
    ids = workers.ask(START).split()
    client = redis.Redis.from_url(workers.broker)
    for _ in range(3):
        time.sleep(chance.uniform(0.2, 1.5))
        client.delete(workers.queue, "unacked", "unacked_index")
    client.close()
    eventually(lambda: not unsettled(ids), seconds=250, what="every run settles")
    assert_settled_and_balanced(ids)
