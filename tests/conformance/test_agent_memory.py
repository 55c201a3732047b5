"""The memory of an agent: where it is kept, what a model is given, and what becomes of what it says."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.apps import apps
from django.db import connections
from pytest_django import Settings

from pikku_storage.agents.memory import service as memory_service
from pikku_storage.agents.memory.service import AgentMemory, Context
from pikku_storage.agents.service import AgentStorageService
from pikku_storage.agents.storages import storage_of
from pikku_storage.exceptions import InvalidSchemaError, ThreadNotFoundError, WorkingMemoryBusyError
from tests.conformance.support import DATABASE, MIRROR, mirrored, needs_transactions

pytestmark = mirrored
KEEPS = '<working_memory>{"city": "Rome", "tags": ["a"]}</working_memory>'


@dataclass
class Profile:
    city: str | None = None
    tags: list[str] = field(default_factory=list)


@pytest.fixture
def storage() -> AgentStorageService:
    return AgentStorageService()


@pytest.fixture
def thread(storage: AgentStorageService) -> str:
    return storage.create_thread("ada").id


@pytest.fixture
def homeless(settings: Settings) -> AgentMemory:
    """Of an agent that keeps nothing."""
    settings.PIKKU_STORAGE = {"AGENT_DATABASES": {"echo": None}}
    return AgentMemory("echo")


@pytest.fixture
def archive(settings: Settings) -> Iterator[str]:
    """Another database, for the agent of that name."""
    settings.PIKKU_STORAGE = {**settings.PIKKU_STORAGE, "AGENT_DATABASES": {"archivist": MIRROR}}
    models = [model for model in apps.get_app_config("pikku_agents").get_models() if not model._meta.proxy]
    with connections[MIRROR].schema_editor() as editor:
        for model in models:
            editor.create_model(model)
    yield MIRROR
    with connections[MIRROR].schema_editor() as editor:
        for model in reversed(models):
            editor.delete_model(model)


@pytest.mark.contract("AM-01")
def test_the_storage_that_is_named_comes_first_and_then_the_default(settings: Settings) -> None:
    settings.PIKKU_STORAGE = {"AGENT_DATABASES": {"archivist": MIRROR, "echo": None}}
    found = [storage_of(*given) for given in [("archivist",), ("helper",), ("archivist", DATABASE), ("echo",)]]
    assert [each and each.using for each in found] == [MIRROR, DATABASE, DATABASE, None]
    settings.PIKKU_STORAGE = {"AGENT_DATABASES": {"archivist": "nowhere"}}
    with pytest.raises(ValueError, match="nowhere"):
        storage_of("archivist")


@needs_transactions
@pytest.mark.contract("AM-01")
def test_an_agent_keeps_its_things_in_its_database(archive: str, storage: AgentStorageService) -> None:
    there = AgentStorageService(archive)
    thread_id = there.create_thread("ada").id
    memory = AgentMemory("archivist")
    memory.save(thread_id, "ada", [{"role": "assistant", "content": f"Hello {KEEPS}"}])
    assert memory.get("ada") == there.get_working_memory("ada", "resource") == {"city": "Rome", "tags": ["a"]}
    assert [message.content for message in there.get_messages(thread_id)] == ["Hello"]
    assert storage.get_working_memory("ada", "resource") is None
    assert storage.get_threads("ada") == []


@pytest.mark.contract("AM-04")
def test_the_context_has_the_memory_and_the_messages(storage: AgentStorageService, thread: str) -> None:
    said = [{"role": "user", "content": f"message {number}"} for number in range(5)]
    storage.save_messages(thread, said)
    storage.save_working_memory("ada", "resource", {"city": "Rome"})
    memory = AgentMemory("helper", schema=Profile)
    context = memory.context(thread, "ada", last_n=3)
    assert [message.content for message in context.messages] == ["message 2", "message 3", "message 4"]
    assert '"city": "Rome"' in (context.system or "")
    assert "* tags (list[str])" in (context.system or "")
    assert [message.content for message in memory.context(thread, "ada", budget=20).messages] == said_last(said, 2)
    assert "(empty)" in (AgentMemory("helper", scope="thread").context(thread, "ada").system or "")


def said_last(said: list[dict[str, str]], count: int) -> list[str]:
    return [message["content"] for message in said[-count:]]


@pytest.mark.contract("AM-04", "AM-05")
def test_without_storage_there_is_no_context_and_texts_stay_as_they_are(homeless: AgentMemory) -> None:
    assert homeless.context("t", "ada") == Context(system=None, messages=())
    (message,) = homeless.save("t", "ada", [{"role": "assistant", "content": f"Hello {KEEPS}"}])
    assert message.content == f"Hello {KEEPS}"
    assert homeless.update("ada", {"city": "Rome"}) is None
    assert homeless.get("ada") == {}


@pytest.mark.contract("AM-05")
def test_saving_keeps_tool_calls_and_takes_the_tags_out(storage: AgentStorageService, thread: str) -> None:
    call = {"id": "c1", "name": "find", "args": {"q": KEEPS}}
    parts = [{"type": "text", "text": f"One {KEEPS}"}, {"type": "image", "url": "x"}]
    batch: list[dict[str, Any]] = [
        {"id": "m1", "role": "user", "content": f"I say {KEEPS}"},
        {"id": "m2", "role": "assistant", "content": f"Looking {KEEPS}", "toolCalls": [call]},
        {"id": "m3", "role": "tool", "toolResults": [{"id": "c1", "name": "find", "result": KEEPS}]},
        {"id": "m4", "role": "assistant", "content": parts},
    ]
    memory = AgentMemory("helper", scope="thread")
    for _ in range(2):
        seen = memory.save(thread, "ada", batch)
    stored = {message.id: message for message in storage.get_messages(thread)}
    assert {message.id: message.content for message in seen} | {"m3": None} == {
        "m1": f"I say {KEEPS}",
        "m2": "Looking",
        "m3": None,
        "m4": [{"type": "text", "text": "One"}, {"type": "image", "url": "x"}],
    }
    assert [stored[each].content for each in ("m1", "m2")] == [f"I say {KEEPS}", "Looking"]
    assert [(each.id, each.args) for each in stored["m2"].tool_calls] == [("c1", {"q": KEEPS})]
    assert stored["tool-results-m2"].tool_results[0].result == KEEPS
    assert memory.get(thread) == {"city": "Rome", "tags": ["a"]}


def test_what_a_user_says_is_no_memory(thread: str) -> None:
    AgentMemory("helper").save(thread, "ada", [{"role": "user", "content": KEEPS}])
    assert AgentMemory("helper").get("ada") == {}


@pytest.mark.contract("AM-06")
def test_what_the_model_says_is_merged_checked_and_stored(thread: str, storage: AgentStorageService) -> None:
    memory = AgentMemory("helper", schema=Profile)
    storage.save_working_memory("ada", "resource", {"city": "Rome", "tags": ["a", "b"]})
    said = '<working_memory>{"tags": ["c"]}</working_memory> Noted. <working_memory>{"city": null}</working_memory>'
    assert [each.content for each in memory.save(thread, "ada", [{"role": "assistant", "content": said}])] == ["Noted."]
    assert storage.get_working_memory("ada", "resource") == {"city": None, "tags": ["c"]}


@pytest.mark.contract("AM-06")
@pytest.mark.parametrize(
    ("schema", "changes"),
    [
        (Profile, {"city": 7}),
        (Profile, {"admin": True}),
        ({"type": "object", "properties": {"city": {"type": "string"}}}, {"city": []}),
        (None, {"city": "a\x00b"}),
        (None, {"city": float("nan")}),
    ],
)
def test_what_is_wrong_is_warned_about_and_skipped(
    schema: Any, changes: dict[str, Any], caplog: pytest.LogCaptureFixture, storage: AgentStorageService
) -> None:
    storage.save_working_memory("ada", "resource", {"city": "Rome"})
    with caplog.at_level(logging.WARNING):
        assert AgentMemory("helper", schema=schema).update("ada", changes) is None
    assert "helper" in caplog.text
    assert storage.get_working_memory("ada", "resource") == {"city": "Rome"}


def test_an_update_that_meets_another_one_begins_anew(
    storage: AgentStorageService, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory, real = AgentMemory("helper"), AgentStorageService.read_working_memory
    others = iter(["first", "second"])

    def read(self: AgentStorageService, memory_id: str, scope: Any) -> Any:
        seen = real(self, memory_id, scope)
        for key in others:
            AgentStorageService().save_working_memory(memory_id, scope, {key: True, **(seen.data if seen else {})})
            break
        return seen

    monkeypatch.setattr(AgentStorageService, "read_working_memory", read)
    assert memory.update("ada", {"mine": 1}) == {"first": True, "second": True, "mine": 1}

    monkeypatch.setattr(memory_service, "TRIES", 3)
    others = iter("abcdef")
    with pytest.raises(WorkingMemoryBusyError):
        memory.update("ada", {"mine": 2})


def test_what_changes_nothing_writes_nothing(storage: AgentStorageService) -> None:
    memory = AgentMemory("helper")
    memory.update("ada", {"city": "Rome"})
    before = storage.read_working_memory("ada", "resource")
    assert memory.update("ada", {"city": "Rome", "gone": None}) == {"city": "Rome"}
    assert storage.read_working_memory("ada", "resource") == before


def test_what_cannot_work_is_said_at_once(thread: str) -> None:
    with pytest.raises(InvalidSchemaError):
        AgentMemory("helper", schema=int)
    with pytest.raises(ValueError, match="scope"):
        AgentMemory("helper", scope="planet")  # type: ignore[arg-type]
    with pytest.raises(ThreadNotFoundError):
        AgentMemory("helper").save("nowhere", "ada", [{"role": "user", "content": "hello"}])


def test_memory_has_async_twins() -> None:
    memory = AgentMemory("helper")
    assert async_to_sync(memory.aupdate)("ada", {"city": "Rome"}) == {"city": "Rome"}
