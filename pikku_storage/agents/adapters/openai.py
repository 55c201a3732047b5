"""Histories in the message format of OpenAI's chat completions. Needs no library.

What is read is what was appended, message by message, with one rule: results follow the message with their calls, in
the order of the calls, whenever they came. The last result of a call counts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from pikku_storage.agents.adapters.history import (
    Calls,
    Format,
    ThreadHistory,
    call_id,
    original_id,
    plain_message,
    text_of,
)
from pikku_storage.agents.records import Message, ToolCall, ToolResult
from pikku_storage.agents.statuses import TOOL
from pikku_storage.exceptions import AgentInputError, PayloadError
from pikku_storage.ids import new_id
from pikku_storage.json import Json, to_json

FORMAT = Format("openai")


class OpenAIHistory(ThreadHistory):
    """A thread as the `messages` of a chat completion."""

    def append(self, messages: Iterable[Any], *, key: str | None = None) -> list[Message]:
        """Add messages: mappings, or the objects of the `openai` library. Answers with what was stored, with the ids
        that approvals of its tool calls go by.

        A batch with a `key` is written once, however often it is sent. Raises what `save_messages` raises, and
        `AgentInputError` for a result of a call that nobody asked for.
        """
        given = [plain_message(message) for message in messages]
        return self._write(from_openai(given, calls=self._calls(given, _answered), ids=self._ids(key)))

    def messages(self, *, last_n: int | None = None) -> list[dict[str, Any]]:
        """The messages, the oldest first: all, or the `last_n` and their results."""
        return to_openai(self._read(last_n))


def from_openai(
    messages: Iterable[Any], *, calls: Calls | None = None, ids: Iterator[str] | None = None
) -> list[Message]:
    """Our messages. `calls` are those made before, which these may answer; `ids` are for the messages."""
    calls = Calls() if calls is None else calls
    found = []
    for each in messages:
        native = plain_message(each)
        own_id = new_id() if ids is None else next(ids)
        if native["role"] == TOOL:
            found.append(Message(id=own_id, role=TOOL, tool_results=(_result(native, calls),)))
            continue
        message = Message(
            id=own_id,
            role=native["role"],
            content=native.get("content"),
            tool_calls=tuple(_call(call, own_id) for call in native.get("tool_calls") or ()),
        )
        calls.add(message)
        found.append(message if _native(message) == native else FORMAT.attach(message, native))
    return found


def to_openai(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """The messages of the format."""
    return [
        native for message in messages for native in (_results(message) if message.role == TOOL else [_native(message)])
    ]


def _native(message: Message) -> dict[str, Any]:
    whole = FORMAT.attached(message.content)
    if whole is not None:
        return dict(whole)
    native: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        native["tool_calls"] = [
            {
                "id": original_id(message.id, call.id),
                "type": "function",
                "function": {"name": call.name, "arguments": _arguments(call.args)},
            }
            for call in message.tool_calls
        ]
    return native


def _results(message: Message) -> list[dict[str, Any]]:
    return [
        {
            "role": TOOL,
            "tool_call_id": original_id(message.id, result.id),
            **FORMAT.whole_result(result.result),
        }
        for result in message.tool_results
    ]


def _result(native: dict[str, Any], calls: Calls) -> ToolResult:
    our_id, name = calls.find(text_of(native, "tool_call_id"))
    told = {name: value for name, value in native.items() if name not in {"role", "tool_call_id"}}
    return ToolResult(id=our_id, name=name, result=FORMAT.result(told, told.get("content")))


def _call(native: Any, message_id: str) -> ToolCall:
    """`{id, type, function: {name, arguments}}`, or `{id, type, custom: {name, input}}`."""
    original = text_of(native, "id")
    asked = native.get("function") or native.get("custom")
    text = asked.get("arguments", asked.get("input", "")) if isinstance(asked, dict) else None
    if not isinstance(text, str):
        raise AgentInputError(f"The arguments of the tool call {original} must be a text")
    return ToolCall(id=call_id(message_id, original), name=text_of(asked, "name"), args=_args(text))


def _args(text: str) -> Json:
    """The JSON object that the text holds, or the text itself: models write what they like."""
    try:
        args = json.loads(text, parse_float=_float)
        return to_json(args) if isinstance(args, dict) else text
    except (ValueError, RecursionError, PayloadError):
        return text


def _float(digits: str) -> float:
    if (value := float(digits)) == 0 and digits.startswith("-"):
        raise ValueError("PostgreSQL knows no negative zero")
    return value


def _arguments(args: Json) -> str:
    """As OpenAI writes them, but for the order of the keys, which jsonb does not keep."""
    return (
        args if isinstance(args, str) else json.dumps(args, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    )


def _answered(messages: Iterable[dict[str, Any]]) -> Iterator[str]:
    """The calls from before that these answer."""
    asked = set()
    for message in messages:
        if message["role"] == TOOL and message.get("tool_call_id") not in asked:
            yield text_of(message, "tool_call_id")
        asked |= {call.get("id") for call in message.get("tool_calls") or () if isinstance(call, dict)}
