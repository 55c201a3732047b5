"""Threads and messages (contract services.md §4)."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pikku_storage.agents.records import Message, ToolCall, ToolResult
from pikku_storage.agents.service import AgentStorageService
from pikku_storage.exceptions import (
    AgentInputError,
    MessageConflictError,
    PayloadError,
    ThreadExistsError,
    ThreadNotFoundError,
)

pytestmark = pytest.mark.django_db(transaction=True)
A_TIME = datetime(2026, 3, 2, 9, tzinfo=UTC)


@pytest.fixture
def storage() -> AgentStorageService:
    return AgentStorageService()


@pytest.fixture
def thread(storage: AgentStorageService) -> str:
    return storage.create_thread("ada").id


def said(storage: AgentStorageService, thread_id: str, **options: Any) -> list[Any]:
    """The contents of the messages that are read."""
    return [message.content for message in storage.get_messages(thread_id, **options)]


@pytest.mark.contract("AS-01")
def test_a_thread_reads_back_the_same(storage: AgentStorageService) -> None:
    made = storage.create_thread("ada", title="Lunch", metadata={"lang": "en", "n": [1, None]})
    assert storage.get_thread(made.id) == made
    assert (made.resource_id, made.title, made.metadata) == ("ada", "Lunch", {"lang": "en", "n": [1, None]})
    assert made.created_at == made.updated_at


@pytest.mark.parametrize("thread_id", ["a/b", "%", "_", "🦀 'quoted' \"id\"", "x" * 255, " leading", "ü\\"])
def test_ids_of_any_shape(storage: AgentStorageService, thread_id: str) -> None:
    made = storage.create_thread(thread_id, thread_id=thread_id)
    storage.save_messages(thread_id, [{"id": thread_id, "role": "user", "content": "hello"}])
    assert storage.get_thread(thread_id).id == made.id == thread_id
    assert [message.id for message in storage.get_messages(thread_id)] == [thread_id]
    assert [found.id for found in storage.get_threads(thread_id)] == [thread_id]


@pytest.mark.parametrize("thread_id", ["", "x" * 256, "a\x00b", 7, "\ud800"])
def test_ids_that_cannot_be_stored(storage: AgentStorageService, thread_id: Any) -> None:
    with pytest.raises(PayloadError, match=r"\$thread_id"):
        storage.create_thread("ada", thread_id=thread_id)
    assert storage.get_threads("ada") == []


def test_an_id_that_is_taken(storage: AgentStorageService, thread: str) -> None:
    with pytest.raises(ThreadExistsError, match=thread):
        storage.create_thread("eve", thread_id=thread)
    assert storage.get_thread(thread).resource_id == "ada"


@pytest.mark.contract("AS-02")
def test_threads_of_a_resource_are_of_exactly_that_one(storage: AgentStorageService) -> None:
    own = [storage.create_thread("ada").id for _ in range(3)]
    for other in ("ada:private", "Ada", "ad", "eve"):
        storage.create_thread(other)
    # Times have milliseconds.
    time.sleep(0.002)
    storage.save_messages(own[0], [{"role": "user", "content": "newest"}])
    assert [thread.id for thread in storage.get_threads("ada")] == [own[0], own[2], own[1]]


@pytest.mark.contract("AS-03")
def test_an_unknown_thread_is_an_error(storage: AgentStorageService) -> None:
    with pytest.raises(ThreadNotFoundError, match=r"^Thread not found: nowhere$"):
        storage.get_thread("nowhere")


@pytest.mark.contract("AS-04")
def test_messages_come_back_in_order(storage: AgentStorageService, thread: str) -> None:
    before = storage.get_thread(thread)
    storage.save_messages(thread, [{"id": "b", "role": "user", "content": "one"}])
    storage.save_messages(thread, [Message(id="a", role="assistant", content='two "quoted"')])
    found = storage.get_messages(thread)
    assert [(message.id, message.role, message.content) for message in found] == [
        ("b", "user", "one"),
        ("a", "assistant", 'two "quoted"'),
    ]
    assert storage.get_thread(thread).updated_at > before.updated_at


@pytest.mark.parametrize(
    "content",
    [
        "",
        "null",
        '"quoted"',
        "true",
        "[1]",
        "2026-03-02",
        None,
        [],
        {},
        0,
        False,
        1.5,
        1e20,
        [{"type": "text", "text": "ü"}],
    ],
)
def test_any_json_is_content(storage: AgentStorageService, thread: str, content: Any) -> None:
    storage.save_messages(thread, [{"role": "user", "content": content}])
    (message,) = storage.get_messages(thread)
    assert (message.content, type(message.content)) == (content, type(content))


@pytest.mark.contract("AS-05")
def test_a_tool_call_and_its_result(storage: AgentStorageService, thread: str) -> None:
    call = {"id": "call-1", "name": "weather", "args": {"city": "Bern"}}
    storage.save_messages(thread, [{"id": "m", "role": "assistant", "content": "", "toolCalls": [call]}])
    (asked,) = storage.get_messages(thread)
    assert asked.tool_calls == (ToolCall(id="call-1", name="weather", args={"city": "Bern"}),)

    storage.save_messages(
        thread, [{"id": "t", "role": "tool", "toolResults": [{"id": "call-1", "name": "weather", "result": "rain"}]}]
    )
    asked, told = storage.get_messages(thread)
    assert (asked.id, told.id, told.role) == ("m", "tool-results-m", "tool")
    assert told.tool_results == (ToolResult(id="call-1", name="weather", result="rain"),)
    assert told.created_at == asked.created_at


def test_a_whole_turn_in_one_batch(storage: AgentStorageService, thread: str) -> None:
    calls = [{"id": f"call-{n}", "name": "add", "args": {"n": n}} for n in (2, 1, 3)]
    results = [{"id": "call-1", "name": "add", "result": ""}, {"id": "call-2", "name": "add", "result": {"sum": 3}}]
    storage.save_messages(
        thread,
        [
            {"role": "user", "content": "add"},
            {"id": "m", "role": "assistant", "tool_calls": calls},
            {"role": "tool", "tool_results": results},
            {"role": "assistant", "content": "done"},
        ],
    )
    question, asked, told, answer = storage.get_messages(thread)
    assert (question.content, answer.content) == ("add", "done")
    assert [call.id for call in asked.tool_calls] == ["call-2", "call-1", "call-3"]
    assert [(result.id, result.result) for result in told.tool_results] == [("call-2", '{"sum": 3}'), ("call-1", "")]


@pytest.mark.contract("AS-06")
def test_the_last_messages(storage: AgentStorageService, thread: str) -> None:
    storage.save_messages(thread, [{"role": "user", "content": n} for n in range(5)])
    assert said(storage, thread, last_n=2) == [3, 4]
    assert said(storage, thread, last_n=9) == [0, 1, 2, 3, 4]
    with pytest.raises(AgentInputError):
        storage.get_messages(thread, last_n=0)


def test_pages_neither_skip_nor_repeat_when_times_are_equal(storage: AgentStorageService, thread: str) -> None:
    """Faults of paging by time: whatever the clock's resolution, there are messages of the same moment."""
    for batch in range(4):
        storage.save_messages(
            thread,
            [{"role": "user", "content": batch * 3 + n, "created_at": A_TIME} for n in range(3)],
        )
    storage.save_messages(thread, [{"role": "user", "content": -1, "created_at": A_TIME - timedelta(microseconds=900)}])
    everything = said(storage, thread)
    assert everything == [-1, *range(12)]
    for size in (1, 2, 5):
        pages: list[Any] = []
        cursor = None
        while page := storage.get_messages(thread, last_n=size, cursor=cursor):
            pages = [message.content for message in page] + pages
            cursor = page[0].id
        assert pages == everything


def test_a_cursor_alone_gives_fifty(storage: AgentStorageService, thread: str) -> None:
    storage.save_messages(thread, [{"id": f"m{n}", "role": "user", "content": n} for n in range(53)])
    assert said(storage, thread, cursor="m52") == list(range(2, 52))
    # An unknown cursor, or one of another thread, is ignored: nothing is told of other threads.
    other = storage.create_thread("eve").id
    storage.save_messages(other, [{"id": "foreign", "role": "user", "content": "x", "created_at": A_TIME}])
    assert said(storage, thread, cursor="nothing") == said(storage, thread, cursor="foreign") == list(range(3, 53))


def test_an_empty_batch_does_nothing(storage: AgentStorageService, thread: str) -> None:
    before = storage.get_thread(thread)
    storage.save_messages(thread, [])
    storage.save_messages("nowhere", [])
    assert storage.get_thread(thread) == before


def test_a_thread_that_is_not_there_takes_no_message(storage: AgentStorageService) -> None:
    with pytest.raises(ThreadNotFoundError):
        storage.save_messages("nowhere", [{"id": "m", "role": "user", "content": "hello"}])
    assert storage.get_messages("nowhere") == []
    there = storage.create_thread("ada", thread_id="nowhere").id
    assert storage.get_messages(there) == []


@pytest.mark.parametrize(
    ("batch", "path"),
    [
        (
            [{"role": "user", "content": "fine"}, {"role": "user", "content": {"a": float("nan")}}],
            r"\$messages\[1\]\.content\.a",
        ),
        ([{"content": "no role"}], r"\$messages\[0\]\.role"),
        ([{"role": "x" * 51}], r"\$messages\[0\]\.role"),
        ([{"role": "user", "id": "a\x00"}], r"\$messages\[0\]\.id"),
        ([{"role": "user", "text": "hello"}], r"\$messages\[0\]: unknown text"),
        (["hello"], r"\$messages\[0\]"),
        ([{"role": "user", "created_at": datetime(2026, 1, 1)}], r"\$messages\[0\]\.created_at"),  # noqa: DTZ001
        ([{"role": "user", "created_at": "yesterday"}], r"\$messages\[0\]\.created_at"),
        ([{"role": "assistant", "tool_calls": [{"name": "x"}]}], r"\$messages\[0\]\.tool_calls\[0\]\.id"),
        ([{"role": "user", "tool_results": [{"id": "x", "result": "y"}]}], r"role 'tool'"),
        ([{"role": "user", "id": "m"}, {"role": "user", "id": "m"}], "stands twice"),
    ],
)
def test_a_batch_with_something_wrong_is_not_written_at_all(
    storage: AgentStorageService, thread: str, batch: list[Any], path: str
) -> None:
    with pytest.raises((AgentInputError, PayloadError), match=path):
        storage.save_messages(thread, batch)
    assert storage.get_messages(thread) == []


def test_a_batch_that_is_sent_again_is_recognised(storage: AgentStorageService, thread: str) -> None:
    call = {"id": "call", "name": "add", "args": {"n": 1}}
    batch: list[Any] = [
        {"id": "a", "role": "user", "content": ["part", {"n": 1}]},
        {"id": "b", "role": "assistant", "toolCalls": [call]},
        {"id": "c", "role": "tool", "toolResults": [{"id": "call", "name": "add", "result": "2"}]},
    ]
    storage.save_messages(thread, batch)
    once = storage.get_messages(thread)
    storage.save_messages(thread, batch)
    storage.save_messages(thread, [*batch, {"id": "d", "role": "assistant", "content": "more"}])
    assert storage.get_messages(thread)[:3] == once
    assert said(storage, thread) == [["part", {"n": 1}], None, None, "more"]


def test_an_id_that_something_else_has_is_refused(storage: AgentStorageService, thread: str) -> None:
    other = storage.create_thread("eve").id
    call = {"id": "call", "name": "add", "args": {}}
    storage.save_messages(other, [{"id": "m", "role": "assistant", "content": "theirs", "toolCalls": [call]}])
    storage.save_messages(thread, [{"id": "own", "role": "user", "content": "mine"}])
    for batch in (
        [{"id": "new", "role": "user", "content": "x"}, {"id": "m", "role": "assistant", "content": "theirs"}],
        [{"id": "own", "role": "user", "content": "changed"}],
        [{"id": "new", "role": "assistant", "toolCalls": [call]}],
    ):
        with pytest.raises(MessageConflictError, match="is taken") as caught:
            storage.save_messages(thread, batch)
        assert "theirs" not in str(caught.value)
        assert other not in str(caught.value)
        assert said(storage, thread) == ["mine"]
    assert said(storage, other) == ["theirs"]


def test_a_result_reaches_calls_of_its_own_thread_only(
    storage: AgentStorageService, thread: str, caplog: pytest.LogCaptureFixture
) -> None:
    other = storage.create_thread("eve").id
    storage.save_messages(
        other, [{"id": "m", "role": "assistant", "toolCalls": [{"id": "call", "name": "add", "args": {}}]}]
    )
    storage.save_messages(thread, [{"role": "tool", "toolResults": [{"id": "call", "name": "add", "result": "2"}]}])
    (asked,) = storage.get_messages(other)
    assert len(asked.tool_calls) == 1
    assert storage.get_messages(thread) == []
    assert "has no tool call call" in caplog.text


@pytest.mark.contract("AS-17")
def test_a_deleted_thread_is_gone_with_all_that_belongs_to_it(storage: AgentStorageService, thread: str) -> None:
    call = {"id": "call", "name": "add", "args": {}}
    storage.save_messages(thread, [{"id": "m", "role": "assistant", "toolCalls": [call]}])
    run_id = storage.create_run(
        agent_name="support", thread_id=thread, resource_id="ada", pending_approvals=[{"toolCallId": "call"}]
    )
    storage.save_score(run_id, "polite", 1)
    storage.save_working_memory(thread, "thread", {"topic": "lunch"})
    storage.save_working_memory("ada", "resource", {"name": "Ada"})
    other = storage.create_thread("ada").id
    storage.save_messages(other, [{"role": "user", "content": "stays"}])

    storage.delete_thread(thread)

    with pytest.raises(ThreadNotFoundError):
        storage.get_thread(thread)
    assert [*storage.get_messages(thread), *storage.get_runs_by_thread(thread), *storage.get_scores(run_id)] == []
    assert storage.get_run(run_id) is None
    assert storage.find_run_by_tool_call_id("call") is None
    assert storage.get_working_memory(thread, "thread") is None
    assert storage.get_working_memory("ada", "resource") == {"name": "Ada"}
    assert said(storage, other) == ["stays"]
    storage.delete_thread(thread)
    # Every id may be used again.
    storage.create_thread("ada", thread_id=thread)
    storage.save_messages(thread, [{"id": "m", "role": "assistant", "toolCalls": [call]}])
