"""Agents that are built on other libraries keep their history here."""

from __future__ import annotations

import asyncio
import json
import operator
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, TypedDict

import pytest
from asgiref.sync import async_to_sync
from django.db import connections
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessagesTypeAdapter
from pydantic_ai.models.test import TestModel

from pikku_storage.agents.access import AgentAccess
from pikku_storage.agents.adapters.anthropic import AnthropicHistory
from pikku_storage.agents.adapters.langgraph import PikkuSaver
from pikku_storage.agents.adapters.openai import OpenAIHistory
from pikku_storage.agents.adapters.pydantic_ai import PydanticAIHistory
from pikku_storage.agents.models import AgentCheckpoint, AgentCheckpointWrite
from pikku_storage.agents.service import AgentStorageService
from pikku_storage.exceptions import AgentInputError, ForbiddenError, MessageConflictError
from tests.conformance.support import DATABASE

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def storage() -> AgentStorageService:
    return AgentStorageService()


@pytest.fixture
def ada() -> AgentAccess:
    return AgentAccess("ada")


# -- histories ---------------------------------------------------------------------------------------------------------


def asks(call_id: str, arguments: str) -> dict[str, Any]:
    function = {"name": "look_up", "arguments": arguments}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": call_id, "type": "function", "function": function}],
    }


def tells(call_id: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def test_openai_history_comes_back_as_it_was(ada: AgentAccess) -> None:
    history = OpenAIHistory(ada, ada.create_thread().id)
    # The same id again: it is unique in its message only. Keys in an order that jsonb does not keep, and no JSON.
    turns = [
        [{"role": "user", "content": "Where is A1?"}],
        [asks("call_1", '{"z":1,"a":{"c":2,"b":1.0}}')],
        [tells("call_1", "shipped"), {"role": "user", "content": [{"type": "text", "text": "And A2?"}], "name": "Ada"}],
        [asks("call_1", '{"order":')],
        [tells("call_1", "no such order"), {"role": "assistant", "content": "I do not find it."}],
    ]
    for turn in turns:
        history.append(turn)
    assert history.messages() == [message for turn in turns for message in turn]
    assert history.messages(last_n=2) == [asks("call_1", '{"order":'), *turns[-1]]


def test_anthropic_history_comes_back_as_it_was(storage: AgentStorageService) -> None:
    history = AnthropicHistory(storage, storage.create_thread("ada").id)
    thinking = {"type": "thinking", "thinking": "hm", "signature": "s"}
    use = {"type": "tool_use", "id": "toolu_1", "name": "look_up", "input": {"zeta": 1, "a": {"c": 2, "b": 1}}}
    results = [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "broken", "is_error": True}]
    turns: list[dict[str, Any]] = [
        {"role": "user", "content": "Where is A1?"},
        {"role": "assistant", "content": [thinking, use]},
        {"role": "user", "content": results},
        {"role": "assistant", "content": [{"type": "text", "text": "Again"}, use]},
        {"role": "user", "content": [*results, {"type": "text", "text": "Stop"}]},
    ]
    for turn in turns:
        history.append([turn])
    back = history.messages()
    assert back == turns
    assert json.dumps(back[1]["content"]) == json.dumps(turns[1]["content"])
    assert history.messages(last_n=1) == [{"role": "user", "content": [{"type": "text", "text": "Stop"}]}]


def test_the_calls_are_ours_to_approve(ada: AgentAccess) -> None:
    thread = ada.create_thread().id
    (message,) = OpenAIHistory(ada, thread).append([asks("call_1", '{"order":"A1"}')])
    (call,) = message.tool_calls
    asked = [{"toolCallId": call.id, "type": "tool-call"}]
    run = ada.create_run(agent_name="support", thread_id=thread, status="suspended", pending_approvals=asked)
    (approval,) = ada.list_pending_approvals()
    assert (approval.tool_call_id, approval.tool_name, approval.args) == (call.id, "look_up", {"order": "A1"})
    assert ada.resolve_approval(call.id, "approved")
    assert ada.get_run(run).pending_approvals is None


def test_a_batch_with_a_key_is_written_once(ada: AgentAccess) -> None:
    one, two = (OpenAIHistory(ada, ada.create_thread().id) for _ in range(2))
    batch = [{"role": "user", "content": "hello"}, asks("call_1", "{}"), tells("call_1", "x")]
    for history in (one, one, two):
        history.append(batch, key="turn-1")
    assert one.messages() == two.messages() == batch
    with pytest.raises(MessageConflictError):
        one.append([{"role": "user", "content": "another"}], key="turn-1")


def test_a_history_keeps_to_its_session(ada: AgentAccess) -> None:
    history = OpenAIHistory(AgentAccess("eve"), ada.create_thread().id)
    for reach in (history.messages, lambda: history.append([{"role": "user", "content": "hello"}])):
        with pytest.raises(ForbiddenError):
            reach()


def test_a_result_that_answers_no_call_is_refused(ada: AgentAccess) -> None:
    history = OpenAIHistory(ada, ada.create_thread().id)
    with pytest.raises(AgentInputError, match="call_9"):
        history.append([{"role": "user", "content": "hello"}, tells("call_9", "x")])
    assert history.messages() == []


def test_histories_have_async_twins(ada: AgentAccess) -> None:
    async def talk() -> Any:
        history = OpenAIHistory(ada, (await ada.acreate_thread()).id)
        await history.aappend([{"role": "user", "content": "hello"}])
        return await history.amessages()

    assert async_to_sync(talk)() == [{"role": "user", "content": "hello"}]


def test_pydantic_ai_goes_on_where_it_was(ada: AgentAccess) -> None:
    agent = Agent(TestModel(call_tools=["look_up"]))

    @agent.tool_plain
    def look_up(order: str) -> dict[str, Any]:
        return {"order": order, "status": "shipped"}

    # TestModel gives the call of a tool the same id in every run and thread.
    histories = [PydanticAIHistory(ada, ada.create_thread().id) for _ in range(2)]
    for history in histories:
        said: list[Any] = []
        for prompt in ("Where is it?", "And now?"):
            # `run_sync` leaves an event loop behind.
            result = async_to_sync(agent.run)(prompt, message_history=history.load())
            history.save(result.new_messages())
            said += result.new_messages()
        assert history.load() == ModelMessagesTypeAdapter.validate_json(ModelMessagesTypeAdapter.dump_json(said))
        # What is left of a turn whose prompt is not among them is left out.
        assert history.load(last_n=3) == history.load()[4:]
        assert history.load(last_n=1) == []


# -- LangGraph ---------------------------------------------------------------------------------------------------------


def test_the_conformance_of_langgraph(ada: AgentAccess) -> None:
    @checkpointer_test(name="PikkuSaver")
    async def saver() -> AsyncIterator[PikkuSaver]:
        yield PikkuSaver(ada)

    report = async_to_sync(validate)(saver)
    assert {name: result.failures for name, result in report.results.items() if not result.passed} == {}
    assert len(report.results) == 8


def config_of(thread_id: str, namespace: str = "") -> RunnableConfig:
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": namespace}}


class State(TypedDict):
    notes: Annotated[list[str], operator.add]


def graph_with(saver: PikkuSaver) -> Any:
    def propose(state: State) -> State:
        return {"notes": [f"proposed after {len(state['notes'])}"]}

    def ask(state: State) -> State:
        return {"notes": [f"answered {interrupt('Refund?')}"]}

    builder = StateGraph(State)
    builder.add_node("propose", propose)
    builder.add_node("ask", ask)
    builder.add_edge(START, "propose")
    builder.add_edge("propose", "ask")
    builder.add_edge("ask", END)
    return builder.compile(checkpointer=saver)


def test_a_graph_waits_for_a_person_and_goes_on(ada: AgentAccess, storage: AgentStorageService) -> None:
    thread: Any = {"configurable": {"thread_id": "t1"}}
    assert graph_with(PikkuSaver(ada)).invoke({"notes": ["hello"]}, thread)["__interrupt__"][0].value == "Refund?"
    assert storage.get_thread("t1").resource_id == "ada"
    # Somewhere else, by a saver that is told the owner; by the async twins.
    graph = graph_with(PikkuSaver(storage, owner="ada"))
    done = async_to_sync(graph.ainvoke)(Command(resume="yes"), thread)
    assert done == {"notes": ["hello", "proposed after 1", "answered yes"]}
    assert len(list(graph.get_state_history(thread))) == 4
    assert graph.invoke({"notes": ["again"]}, thread)["notes"][-1] == "proposed after 4"


def test_threads_of_others_are_out_of_reach(ada: AgentAccess, storage: AgentStorageService) -> None:
    own, missing = config_of("t1"), config_of("t2")
    saver, other = PikkuSaver(ada), PikkuSaver(AgentAccess("eve"))
    saved = saver.put(own, empty_checkpoint(), {"run_id": "r1"}, {})
    saver.put_writes(saved, [("a", 1)], "task")
    for config in (saved, own, missing):
        assert other.get_tuple(config) is None
        assert list(other.list(config)) == []
    assert [each.config for each in saver.list(None)] == [saved]
    assert list(other.list(None)) == []
    for write in (
        lambda: other.put(own, empty_checkpoint(), {}, {}),
        lambda: other.put_writes(saved, [("b", 2)], "task"),
        lambda: PikkuSaver(storage, owner="eve").put(own, empty_checkpoint(), {}, {}),
    ):
        with pytest.raises(ForbiddenError):
            write()
    other.delete_thread("t1")
    other.delete_for_runs(["r1"])
    other.prune(["t1"])
    other.copy_thread("t1", "t3")
    assert [(each.config, each.pending_writes) for each in saver.list(own)] == [(saved, [("task", "a", 1)])]
    for arguments in ((ada, "ada"), (storage, None)):
        with pytest.raises(TypeError, match="owner"):
            PikkuSaver(arguments[0], owner=arguments[1])


def test_checkpoints_belong_to_their_thread(ada: AgentAccess, storage: AgentStorageService) -> None:
    saver = PikkuSaver(ada)
    first = saver.put(config_of("t1", "inner"), empty_checkpoint(), {}, {})
    last = saver.put(first, empty_checkpoint(), {"run_id": "r1"}, {})
    saver.put_writes(last, [("a", 1)], "task")
    (thread,) = json.loads("".join(storage.export_user("ada")))["threads"]
    assert [(each["namespace"], each["parentId"], len(each["writes"])) for each in thread["checkpoints"]] == [
        ("inner", None, 0),
        ("inner", first["configurable"]["checkpoint_id"], 1),
    ]
    # Long enough to see a change: times have milliseconds.
    assert storage.get_thread("t1").updated_at >= storage.get_thread("t1").created_at
    ada.delete_thread("t1")
    assert not AgentCheckpoint.everyones.using(DATABASE).exists()
    assert not AgentCheckpointWrite.everyones.using(DATABASE).exists()
    assert storage.erase_user("ada").threads == 0


def test_a_last_checkpoint_that_needs_earlier_ones_keeps_them(ada: AgentAccess) -> None:
    saver = PikkuSaver(ada)
    thread = config_of("t1")
    deltas: Any = {"counters_since_delta_snapshot": {"notes": (1, 1)}}
    saver.put(saver.put(thread, empty_checkpoint(), {}, {}), empty_checkpoint(), deltas, {})
    saver.prune(["t1"])
    assert len(list(saver.list(thread))) == 2
    with pytest.raises(ValueError, match="keep_latest or delete"):
        saver.prune(["t1"], strategy="some")


def at_once(count: int, work: Callable[[int], Any]) -> list[Any]:
    def one(number: int) -> Any:
        try:
            return work(number)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(one, range(count)))


def test_writers_at_once(ada: AgentAccess) -> None:
    saver, checkpoint = PikkuSaver(ada), empty_checkpoint()
    thread = config_of("t1")
    # The thread does not exist yet, and all of them save the same checkpoint and the same first place of a task.
    at_once(4, lambda _: saver.put(thread, checkpoint, {}, {}))
    (saved,) = [each.config for each in saver.list(thread)]
    at_once(4, lambda number: saver.put_writes(saved, [("a", number), ("b", number)], "task"))
    found = saver.get_tuple(saved)
    assert found is not None
    assert [write[1] for write in found.pending_writes or ()] == ["a", "b"]


def test_pages_of_checkpoints(ada: AgentAccess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pikku_storage.agents.adapters.langgraph.PAGE", 2)
    saver = PikkuSaver(ada)
    config = config_of("t1")
    for step in range(5):
        config = saver.put(config, empty_checkpoint(), {"step": step, "source": "loop" if step % 2 else "input"}, {})
    thread: Any = {"configurable": {"thread_id": "t1"}}

    async def steps(**options: Any) -> list[Any]:
        return [each.metadata["step"] async for each in saver.alist(thread, **options)]

    for options, expected in (
        ({}, [4, 3, 2, 1, 0]),
        ({"limit": 3}, [4, 3, 2]),
        ({"limit": 0}, []),
        ({"filter": {"source": "loop"}}, [3, 1]),
        ({"filter": {"source": "input"}, "limit": 2}, [4, 2]),
        ({"before": config}, [3, 2, 1, 0]),
    ):
        assert asyncio.run(steps(**options)) == expected, options
