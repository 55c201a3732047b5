"""Many writers of the same thread, and many people at the same approval."""

from functools import partial
from typing import Any

import pytest

from pikku_storage.agents.models import AgentMessage, AgentRun, AgentThread, AgentToolCall
from pikku_storage.agents.runs import AgentRunService
from pikku_storage.agents.service import AgentStorageService
from pikku_storage.exceptions import ThreadNotFoundError
from tests.races.approver import approve_all
from tests.races.together import answers_of_processes, in_threads, together

CALLS = 20
THREADS = 8
PROCESSES = 3

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def storage() -> AgentStorageService:
    return AgentStorageService()


@pytest.fixture
def waiting(storage: AgentStorageService) -> list[str]:
    """Calls that wait for somebody."""
    ids = [f"call {number}" for number in range(CALLS)]
    storage.create_thread("ada", thread_id="t")
    calls = [{"id": call_id, "name": "refund", "args": {}} for call_id in ids]
    storage.save_messages("t", [{"id": "m", "role": "assistant", "toolCalls": calls}])
    storage.create_run(
        agent_name="x", thread_id="t", resource_id="ada", pending_approvals=[{"toolCallId": each} for each in ids]
    )
    return ids


def assert_one_each(storage: AgentStorageService, ids: list[str], won: dict[str, list[str]]) -> None:
    """Each call was decided by the one who was told so (fault P10)."""
    assert sorted(call_id for calls in won.values() for call_id in calls) == sorted(ids)
    (run,) = storage.get_runs_by_thread("t")
    decided = {each.tool_call_id: each.resolved_by for each in AgentRunService().get_run_approvals(run.run_id)}
    assert decided == {call_id: name for name, calls in won.items() for call_id in calls}


@pytest.mark.contract("AS-16")
def test_of_threads_that_approve_one_wins(storage: AgentStorageService, waiting: list[str]) -> None:
    names = [f"thread {number}" for number in range(THREADS)]
    won = together(*[partial(approve_all, name, list(waiting)) for name in names])
    assert_one_each(storage, waiting, dict(zip(names, won, strict=True)))


def test_of_processes_that_approve_one_wins(
    storage: AgentStorageService, waiting: list[str], process_env: dict[str, str]
) -> None:
    names = [f"process {number}" for number in range(PROCESSES)]
    won = answers_of_processes("tests.races.approver", [[name, *waiting] for name in names], process_env)
    assert_one_each(storage, waiting, dict(zip(names, won, strict=True)))


def test_the_same_batch_from_many_is_there_once(storage: AgentStorageService) -> None:
    storage.create_thread("ada", thread_id="t")
    call = {"id": "call", "name": "add", "args": {}}
    batch: list[Any] = [
        {"id": "a", "role": "user", "content": "add"},
        {"id": "b", "role": "assistant", "toolCalls": [call]},
    ]
    in_threads(lambda index: storage.save_messages("t", batch))
    assert [(message.id, len(message.tool_calls)) for message in storage.get_messages("t")] == [("a", 0), ("b", 1)]


def test_of_many_writers_none_is_lost_and_each_keeps_its_order(storage: AgentStorageService) -> None:
    storage.create_thread("ada", thread_id="t")

    def write(writer: int) -> None:
        for number in range(5):
            storage.save_messages("t", [{"role": "user", "content": [writer, number, part]} for part in range(2)])

    in_threads(write, THREADS)
    found = [message.content for message in storage.get_messages("t")]
    for writer in range(THREADS):
        own = [content for content in found if content[0] == writer]
        assert own == [[writer, number, part] for number in range(5) for part in range(2)]


def test_a_thread_that_is_deleted_while_others_write_leaves_nothing(storage: AgentStorageService) -> None:
    for round_ in range(5):
        name = f"t{round_}"
        storage.create_thread("ada", thread_id=name)

        def write(writer: int, name: str = name) -> None:
            call = {"id": f"{name} {writer}", "name": "add", "args": {}}
            try:
                for number in range(4):
                    storage.save_messages(name, [{"role": "user", "content": number}])
                storage.save_messages(name, [{"role": "assistant", "toolCalls": [call]}])
                storage.create_run(agent_name="x", thread_id=name, resource_id="ada")
            except ThreadNotFoundError:
                return

        delete = partial(storage.delete_thread, name)
        together(*[partial(write, writer) for writer in range(4)], delete, delete)
        storage.delete_thread(name)
    left: list[Any] = [AgentThread, AgentMessage, AgentToolCall, AgentRun]
    assert {model.__name__: model.everyones.count() for model in left if model.everyones.exists()} == {}


def test_a_memory_that_many_save_is_one_of_theirs(storage: AgentStorageService) -> None:
    in_threads(lambda n: storage.save_working_memory("ada", "resource", {"by": n, "again": n}), THREADS)
    memory = storage.get_working_memory("ada", "resource")
    assert memory is not None
    assert memory["by"] == memory["again"]
