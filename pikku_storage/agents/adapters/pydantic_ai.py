"""Histories of Pydantic AI (`pip install "django-pikku-storage[pydantic-ai]"`).

Each `ModelMessage` is a message here. What its library made of it is kept whole, but for the texts, which are shown as
text. Calls of tools and their results are kept as such beside it, for approvals and for whoever looks at the thread.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter

from pikku_storage.agents.adapters.history import Calls, Format, ThreadHistory, call_id, text_part
from pikku_storage.agents.records import Message, ToolCall, ToolResult
from pikku_storage.agents.statuses import TOOL
from pikku_storage.exceptions import AgentInputError
from pikku_storage.ids import new_id

FORMAT = Format("pydantic-ai")
_SHOWN = frozenset({"system-prompt", "user-prompt", "text"})
_ANSWERS = frozenset({"tool-return", "retry-prompt"})
_PROMPT = "user-prompt"


class PydanticAIHistory(ThreadHistory):
    """A thread as the message history of an agent."""

    def save(self, messages: Sequence[ModelMessage], *, key: str | None = None) -> list[Message]:
        """Add messages, such as `result.new_messages()`. Answers with what was stored, with the ids that approvals of
        its tool calls go by.

        A batch with a `key` is written once, however often it is sent. Raises what `save_messages` raises.
        """
        calls = self._calls(_dumped(messages), _answered)
        return self._write(from_pydantic_ai(messages, calls=calls, ids=self._ids(key)))

    def load(self, *, last_n: int | None = None) -> list[ModelMessage]:
        """The history, the oldest message first: all of it, or what of the `last_n` messages begins with a prompt of
        the user. Raises `AgentInputError` for a message that something else wrote."""
        found = to_pydantic_ai(self._read(last_n))
        if last_n is None:
            return found
        prompts = (
            place for place, message in enumerate(found) if any(part.part_kind == _PROMPT for part in message.parts)
        )
        return found[next(prompts, len(found)) :]


def from_pydantic_ai(
    messages: Sequence[ModelMessage], *, calls: Calls | None = None, ids: Iterator[str] | None = None
) -> list[Message]:
    """Our messages. `calls` are those made before, which these may answer; `ids` are for the messages."""
    calls = Calls() if calls is None else calls
    found: list[Message] = []
    for whole in _dumped(messages):
        own_id = new_id() if ids is None else next(ids)
        # Before the calls of this message: they cannot be answered in it.
        results = tuple(_results(whole, calls))
        if results:
            found.append(Message(id=own_id, role=TOOL, tool_results=results))
        message = Message(
            id=own_id,
            role="assistant" if whole["kind"] == "response" else "user",
            content=[text_part(part.pop("content")) for part in whole["parts"] if _is_shown(part)],
            tool_calls=tuple(_call(part, own_id) for part in whole["parts"] if part["part_kind"] == "tool-call"),
        )
        calls.add(message)
        found.append(FORMAT.attach(message, whole))
    return found


def to_pydantic_ai(messages: Iterable[Message]) -> list[ModelMessage]:
    """The messages of Pydantic AI."""
    whole = [_whole(message) for message in messages if message.role != TOOL]
    return ModelMessagesTypeAdapter.validate_json(json.dumps(whole))


def _dumped(messages: Sequence[ModelMessage]) -> list[dict[str, Any]]:
    dumped: list[dict[str, Any]] = json.loads(ModelMessagesTypeAdapter.dump_json(list(messages)))
    return dumped


def _whole(message: Message) -> dict[str, Any]:
    whole = FORMAT.attached(message.content)
    if whole is None:
        raise AgentInputError(f"The message {message.id} was not written by the adapter of Pydantic AI")
    texts = iter(message.content[:-1])
    parts = [
        {**part, "content": next(texts)["text"]} if part["part_kind"] in _SHOWN and "content" not in part else part
        for part in whole["parts"]
    ]
    return {**whole, "parts": parts}


def _is_shown(part: dict[str, Any]) -> bool:
    return part["part_kind"] in _SHOWN and isinstance(part.get("content"), str)


def _call(part: dict[str, Any], message_id: str) -> ToolCall:
    return ToolCall(id=call_id(message_id, part["tool_call_id"]), name=part["tool_name"], args=_args(part["args"]))


def _args(args: Any) -> Any:
    """The arguments as an object: some providers send the JSON of it."""
    if not isinstance(args, str):
        return args or {}
    try:
        found = json.loads(args)
    except ValueError:
        return args
    return found if isinstance(found, dict) else args


def _results(whole: dict[str, Any], calls: Calls) -> Iterator[ToolResult]:
    for part in _answering(whole):
        # Others are kept with their message all the same.
        if part["tool_call_id"] in calls.originals:
            our_id, name = calls.find(part["tool_call_id"])
            content = part["content"]
            text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
            yield ToolResult(id=our_id, name=name, result=text)


def _answered(messages: Iterable[dict[str, Any]]) -> Iterator[str]:
    """The calls from before that these answer."""
    asked = set()
    for whole in messages:
        yield from (part["tool_call_id"] for part in _answering(whole) if part["tool_call_id"] not in asked)
        asked |= {part["tool_call_id"] for part in whole["parts"] if part["part_kind"] == "tool-call"}


def _answering(whole: dict[str, Any]) -> list[dict[str, Any]]:
    """The parts that answer calls; what a model is told to do again without a call answers none."""
    return [part for part in whole["parts"] if part["part_kind"] in _ANSWERS and part.get("tool_name")]
