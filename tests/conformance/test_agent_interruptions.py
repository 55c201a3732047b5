"""A database that fails under an operation of agents: asked again, it is done once and wholly."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from pikku_storage.agents.models import (
    AgentMessage,
    AgentRun,
    AgentRunScore,
    AgentThread,
    AgentToolCall,
    AgentWorkingMemory,
)
from pikku_storage.agents.service import AgentStorageService
from pikku_storage.db import mongodb
from tests.conformance.failing import WAYS, Way, failing
from tests.conformance.support import connection

pytestmark = pytest.mark.django_db(transaction=True)

ways = pytest.mark.parametrize("way", WAYS)


@pytest.fixture
def storage(monkeypatch: pytest.MonkeyPatch) -> AgentStorageService:
    """What a crash cut short is finished at once, and not after five seconds."""
    if connection.vendor == "mongodb":
        monkeypatch.setattr(mongodb, "GRACE", timedelta(0))
    return AgentStorageService()


def batch(name: str) -> list[dict[str, Any]]:
    """A whole turn: a question, two calls with one result, an answer."""
    calls = [{"id": f"{name} call {n}", "name": "add", "args": {"n": n}} for n in range(2)]
    return [
        {"id": f"{name} 1", "role": "user", "content": "add"},
        {"id": f"{name} 2", "role": "assistant", "toolCalls": calls},
        {"id": f"{name} 3", "role": "tool", "toolResults": [{"id": f"{name} call 0", "name": "add", "result": "1"}]},
        {"id": f"{name} 4", "role": "assistant", "content": "done"},
    ]


def told(storage: AgentStorageService, thread: str) -> list[Any]:
    return [
        (message.role, message.content, [call.name for call in message.tool_calls], len(message.tool_results))
        for message in storage.get_messages(thread)
    ]


WHOLE = [
    ("user", "add", [], 0),
    ("assistant", None, ["add", "add"], 0),
    ("tool", None, [], 1),
    ("assistant", "done", [], 0),
]


def sweep(way: Way, begin: Callable[[str], None], act: Callable[[str], Any], after: Callable[[str], None]) -> None:
    """Fail at the first statement of an act, then at the second, and so on; each time anew, under another name."""
    for number in itertools.count(1):
        name = f"{way} {number}"
        begin(name)
        with failing(number, way) as failure:
            act(name)
        after(name)
        if failure.reached is None:
            assert number > 2
            return


@ways
def test_a_batch_of_messages_is_all_or_nothing_and_sent_again_it_is_there_once(
    storage: AgentStorageService, way: Way
) -> None:
    def begin(name: str) -> None:
        storage.create_thread("ada", thread_id=name)

    def after(name: str) -> None:
        if connection.features.supports_transactions:
            assert told(storage, name) in ([], WHOLE)
        storage.save_messages(name, batch(name))
        assert told(storage, name) == WHOLE
        # And what was left for later changes nothing any more.
        storage.recover()
        assert told(storage, name) == WHOLE

    sweep(way, begin, lambda name: storage.save_messages(name, batch(name)), after)


@pytest.mark.skipif(connection.vendor != "mongodb", reason="where a transaction undoes what was cut off")
def test_what_was_cut_off_is_finished_without_sending_it_again(storage: AgentStorageService) -> None:
    """Once the thread has been told, the batch arrives whatever happens."""
    finished = 0
    for number in itertools.count(1):
        name = f"cut {number}"
        storage.create_thread("ada", thread_id=name)
        with failing(number, "down") as failure:
            storage.save_messages(name, batch(name))
        if failure.reached is None:
            break
        partly = told(storage, name)
        storage.recover()
        assert told(storage, name) in ([], WHOLE)
        finished += partly != told(storage, name)
    assert finished >= 2


@ways
def test_a_deletion_is_finished_by_asking_again(storage: AgentStorageService, way: Way) -> None:
    def begin(name: str) -> None:
        storage.create_thread("ada", thread_id=name)
        storage.save_messages(name, batch(name))
        run_id = storage.create_run(agent_name="support", thread_id=name, resource_id="ada")
        storage.save_score(run_id, "polite", 1)
        storage.save_working_memory(name, "thread", {"a": 1})

    def after(name: str) -> None:
        storage.delete_thread(name)
        left: list[Any] = [AgentThread, AgentMessage, AgentToolCall, AgentRun, AgentRunScore]
        assert {model.__name__: model.everyones.count() for model in left if model.everyones.exists()} == {}
        assert not AgentWorkingMemory.objects.exists()

    sweep(way, begin, storage.delete_thread, after)


@ways
def test_a_run_that_is_told_again_waits_for_what_it_says(storage: AgentStorageService, way: Way) -> None:
    runs: dict[str, str] = {}

    def begin(name: str) -> None:
        storage.create_thread("ada", thread_id=name)
        storage.save_messages(name, batch(name))
        runs[name] = storage.create_run(
            agent_name="support",
            thread_id=name,
            resource_id="ada",
            pending_approvals=[{"toolCallId": f"{name} call 0"}],
        )

    def act(name: str) -> None:
        storage.update_run(
            runs[name],
            status="suspended",
            suspend_reason="approval",
            pending_approvals=[{"toolCallId": f"{name} call 1"}],
        )

    def after(name: str) -> None:
        run = storage.get_run(runs[name])
        assert run is not None
        # A run that says it waits has something to wait for.
        assert run.status == "running" or run.pending_approvals
        act(name)
        run = storage.get_run(runs[name])
        assert run is not None
        assert [approval.tool_call_id for approval in run.pending_approvals or ()] == [f"{name} call 1"]
        assert run.status == "suspended"

    sweep(way, begin, act, after)
