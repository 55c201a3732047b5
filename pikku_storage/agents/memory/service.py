"""Working memory and history of one agent."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from pikku_storage.agents import inputs
from pikku_storage.agents.memory.merging import merge
from pikku_storage.agents.memory.prompt import memory_prompt
from pikku_storage.agents.memory.tags import Parsed, parse
from pikku_storage.agents.memory.trimming import Measure, characters, trim
from pikku_storage.agents.records import Message
from pikku_storage.agents.service import AgentStorageService
from pikku_storage.agents.statuses import MemoryScope
from pikku_storage.agents.storages import storage_of
from pikku_storage.async_twins import AsyncTwins
from pikku_storage.db import engine
from pikku_storage.exceptions import PayloadError, WorkingMemoryBusyError
from pikku_storage.json import Json, to_json_object
from pikku_storage.schemas import AnswerInvalidError, SchemaSource, schema_of

logger = logging.getLogger(__name__)

TRIES = 100
"""How often an update begins anew, because somebody else's came between its read and its write."""
PAUSE = 0.02
"""The most seconds that it waits before it does."""
ASSISTANT = "assistant"


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What a model is given: the part of its system prompt that is about its memory, and the messages so far."""

    system: str | None = None
    messages: tuple[Message, ...] = ()


class AgentMemory(AsyncTwins):
    """What one agent remembers and has said. Every method has an async twin.

    `scope` says whose the working memory is: the `"resource"`'s, over all its threads, or each `"thread"`'s. `schema`
    is what it must look like: a dataclass, a pydantic model, a Django form or a JSON Schema; nothing else gets into it.
    `using` is the alias of a database; see `storage_of` for what it is without. An agent without storage remembers
    nothing, and nothing fails.

    Knows nothing of owners: take the ids from `AgentAccess` or from your own check.
    """

    def __init__(
        self,
        agent_name: str,
        *,
        scope: Literal["resource", "thread"] = "resource",
        schema: SchemaSource | None = None,
        using: str | None = None,
    ) -> None:
        self.agent_name = agent_name
        self.scope: Literal["resource", "thread"] = scope
        self.schema = None if schema is None else schema_of(schema)
        self.using = using
        inputs.one_of(scope, MemoryScope.values, name="scope")

    @property
    def storage(self) -> AgentStorageService | None:
        """Where all of it is kept."""
        return storage_of(self.agent_name, self.using)

    def get(self, memory_id: str) -> dict[str, Json]:
        """What is remembered of a resource or thread; `{}` for nothing."""
        storage = self.storage
        return {} if storage is None else storage.get_working_memory(memory_id, self.scope) or {}

    def prompt(self, memory_id: str) -> str:
        """The part of a system prompt that explains the memory and shows what is in it."""
        return memory_prompt(self.get(memory_id), None if self.schema is None else self.schema.fields)

    def context(
        self,
        thread_id: str,
        resource_id: str,
        *,
        last_n: int = 50,
        budget: int | None = None,
        measure: Measure = characters,
    ) -> Context:
        """What the model is given before the next message (contract AM-04): the memory, and the last messages of the
        thread, as many as the `budget` allows (see `trim`). Empty without storage."""
        storage = self.storage
        if storage is None:
            return Context()
        messages = storage.get_messages(thread_id, last_n=last_n)
        if budget is not None:
            messages = trim(messages, budget, measure=measure)
        return Context(system=self.prompt(self._memory_id(thread_id, resource_id)), messages=tuple(messages))

    def save(self, thread_id: str, resource_id: str, messages: Iterable[Message | Mapping[str, Any]]) -> list[Message]:
        """Save messages, and do what the assistant's say about the memory; answers with them as a user may see them
        (contract AM-05, AM-06).

        The tags are taken out of what the assistant says, and of nothing that somebody else does; tool calls stay. The
        memory is changed first: a call that failed halfway may be made again with the same messages, and does nothing
        twice. Without storage the messages come back as they are. Raises as `AgentStorageService.save_messages` does.
        """
        batch = inputs.messages(messages)
        storage = self.storage
        if storage is None:
            return batch
        seen: list[Message] = []
        memory_id = self._memory_id(thread_id, resource_id)
        for message in batch:
            content, changes = _without_tags(message)
            seen.append(replace(message, content=content))
            for change in changes:
                self.update(memory_id, change)
        storage.save_messages(thread_id, seen)
        return seen

    def update(self, memory_id: str, changes: Mapping[str, Json]) -> dict[str, Json] | None:
        """Merge changes into the memory and store it (contract AM-02, AM-06); answers with what is remembered then.

        What does not fit the schema, or cannot be stored, changes nothing: there is a warning in the log, and the
        answer is `None`, as without storage. Updates at the same moment are all kept. Raises `WorkingMemoryBusyError`
        if others' came between every time.
        """
        storage = self.storage
        if storage is None:
            return None
        for attempt in range(TRIES):
            seen = storage.read_working_memory(memory_id, self.scope)
            before = {} if seen is None else seen.data
            try:
                merged = self._checked(merge(before, to_json_object(changes, root="$changes")))
            except (AnswerInvalidError, PayloadError) as error:
                # The text of what is wrong may hold somebody's words; where it is wrong does not.
                logger.warning("The memory of agent %s was not changed: %s", self.agent_name, _places(error))
                return None
            if merged == before or storage.swap_working_memory(memory_id, self.scope, merged, seen=seen):
                return merged
            if attempt:
                engine(storage.using).clock.sleep(random.uniform(0, PAUSE))  # noqa: S311 - keeps racers apart
        raise WorkingMemoryBusyError(memory_id)

    def _checked(self, memory: dict[str, Json]) -> dict[str, Json]:
        if self.schema is None:
            return to_json_object(memory, root="$memory")
        return to_json_object(self.schema.validate(memory), root="$memory")

    def _memory_id(self, thread_id: str, resource_id: str) -> str:
        return thread_id if self.scope == "thread" else resource_id


def _without_tags(message: Message) -> tuple[Json, list[dict[str, Json]]]:
    """The content of a message without the tags in its text, and what they say."""
    if message.role != ASSISTANT:
        return message.content, []
    if isinstance(message.content, str):
        parsed = parse(message.content)
        return parsed.text, list(parsed.changes)
    if not isinstance(message.content, list):
        return message.content, []
    parts = [(part, _text_of(part)) for part in message.content]
    content = [part if parsed is None else {**part, "text": parsed.text} for part, parsed in parts]
    return content, [change for _, parsed in parts if parsed is not None for change in parsed.changes]


def _text_of(part: Json) -> Parsed | None:
    is_text = isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)
    return parse(part["text"]) if is_text else None


def _places(error: AnswerInvalidError | PayloadError) -> str:
    if isinstance(error, PayloadError):
        return str(error)
    found = {".".join(str(part) for part in problem["path"]) or "(all)" for problem in error.problems}
    return f"does not fit the schema at {', '.join(sorted(found))}"
