"""Never more runs inside than a limit says, whoever races: threads that share a broker, processes that carry runs out
inline, and processes that are killed."""

import queue
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connections
from pytest_django.fixtures import Settings

from pikku_storage.db.clock import travel
from pikku_storage.workflows.dispatch import Message
from pikku_storage.workflows.engine import rules
from pikku_storage.workflows.handle import WorkflowRunHandle
from pikku_storage.workflows.invariants import find_violations
from pikku_storage.workflows.models import WorkflowRun, WorkflowSlot
from pikku_storage.workflows.service import WorkflowService
from tests.races.limited import LIMIT, PER_KEY
from tests.races.together import answers_of_processes, processes

THREADS = 16
PROCESSES = 8
RUNS = 48

pytestmark = pytest.mark.django_db(transaction=True)

broker: "queue.Queue[Message | None]" = queue.Queue()


class Shared:
    """A dispatcher whose messages go to the threads of the test, at once."""

    def send(self, messages: Iterable[Message]) -> None:
        """Put them into the broker."""
        for message in messages:
            broker.put(message)


@pytest.fixture(autouse=True)
def shared_broker(settings: Settings) -> Iterator[None]:
    settings.PIKKU_STORAGE = {"DISPATCHER": "tests.races.test_limits.Shared"}
    for alias in connections:
        rules.forget(alias)
    yield
    while not broker.empty():
        broker.get_nowait()


def work() -> None:
    """What a worker does, until it is told to go."""
    try:
        while (message := broker.get()) is not None:
            try:
                WorkflowService().orchestrate_workflow(message.run_id)
            finally:
                broker.task_done()
        broker.task_done()
    finally:
        connections.close_all()


def carry_out(start: Callable[[], list[WorkflowRunHandle]], meanwhile: Callable[[], None] = lambda: None) -> list[Any]:
    """Start runs, and let the threads work until no message is left; the runs as they are then."""
    runs = start()
    workers = [threading.Thread(target=work) for _ in range(THREADS)]
    for worker in workers:
        worker.start()
    meanwhile()
    broker.join()
    for _ in workers:
        broker.put(None)
    for worker in workers:
        worker.join(60)
    return [run.get() for run in runs]


def started(name: str, count: int = RUNS) -> list[WorkflowRunHandle]:
    service = WorkflowService()
    return [service.start_workflow(name, {"key": "abc"[number % 3]}) for number in range(count)]


@pytest.mark.parametrize("name", ["limits.all", "limits.keyed"])
def test_threads_are_never_more_inside_than_the_limit_and_no_run_is_left_behind(name: str) -> None:
    """There is no relay: what ends calls what waits."""
    runs = carry_out(lambda: started(name))

    assert Counter(run.status for run in runs) == {"completed": RUNS}
    assert max(run.output[0] for run in runs) <= LIMIT
    if name == "limits.keyed":
        assert max(run.output[1] for run in runs) <= PER_KEY
    assert WorkflowSlot.objects.count() == 0
    assert list(find_violations()) == []


def test_threads_that_come_back_from_a_sleep_are_never_more_inside_either() -> None:
    runs = carry_out(lambda: started("limits.napping"))
    handles = [WorkflowService().get_handle(run.id) for run in runs]
    while any(run.status == "running" for run in runs):
        # The relay ends the sleeps; the threads go on.
        WorkflowService().relay()
        runs = carry_out(lambda: handles)

    assert Counter(run.status for run in runs) == {"completed": RUNS}
    assert max(run.output[0] for run in runs) <= LIMIT
    assert WorkflowSlot.objects.count() == 0


def test_a_limit_that_changes_all_the_time_is_never_exceeded_beyond_its_largest_value() -> None:
    service = WorkflowService()

    def change() -> None:
        for limit in (1, 2, 3, 1, 3, 2):
            service.set_limits("limits.all", concurrency=limit)

    runs = carry_out(lambda: started("limits.all"), meanwhile=change)

    assert Counter(run.status for run in runs) == {"completed": RUNS}
    assert max(run.output[0] for run in runs) <= LIMIT


def test_of_many_that_begin_at_once_as_many_do_as_the_rate_says() -> None:
    runs = carry_out(lambda: started("limits.rated", 20))

    assert Counter(run.status for run in runs) == {"completed": 5, "running": 15}
    assert {run.waits_for["kind"] for run in runs if run.status == "running"} == {"rate_limit"}


def test_processes_are_never_more_inside_than_the_limit(process_env: dict[str, str]) -> None:
    answers = answers_of_processes("tests.races.limited", [["limits.keyed", "4"]] * PROCESSES, process_env)
    outputs = [output for answer in answers for output in answer]

    assert len(outputs) == PROCESSES * 4
    assert max(output[0] for output in outputs) <= LIMIT
    assert max(output[1] for output in outputs) <= PER_KEY
    assert WorkflowSlot.objects.count() == 0


def test_killed_holders_free_their_slots(process_env: dict[str, str]) -> None:
    with processes("tests.races.limited", [["limits.hanging", "1"]] * LIMIT, process_env) as begun:
        for process in begun:
            assert process.stdout is not None
            assert process.stdout.readline() == "hanging\n"
        waiting = WorkflowService().start_workflow("limits.hanging", {"key": "b"})
        WorkflowService().orchestrate_workflow(waiting.id)
        assert (waiting.waits_for or {})["kind"] == "concurrency"
        for process in begun:
            process.send_signal(signal.SIGKILL)
            process.wait()

    killed = list(WorkflowRun.objects.exclude(pk=waiting.id).values_list("pk", flat=True))
    assert sorted(WorkflowSlot.objects.values_list("run_id", flat=True)) == sorted(killed)
    for minutes in (2, 4, 6):
        with travel(timedelta(minutes=minutes)):
            WorkflowService().relay()
            ended = carry_out(lambda: [WorkflowService().get_handle(run_id) for run_id in killed])
    assert {run.status for run in ended} == {"completed"}
    assert set(WorkflowSlot.objects.values_list("run_id", flat=True)) <= {waiting.id}
    assert waiting.get().admitted_at is not None
