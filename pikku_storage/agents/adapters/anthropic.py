"""Histories in the format of Anthropic's messages. Needs no library.

What is read is what was appended, message by message. Instructions are no message there (`system`), so they are not
kept in the thread.
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
from pikku_storage.ids import new_id

FORMAT = Format("anthropic")
_CALL, _RESULT = "tool_use", "tool_result"
_REFERENCE = frozenset({"type", "tool_use_id"})
Block = dict[str, Any]


class AnthropicHistory(ThreadHistory):
    """A thread as the `messages` of Anthropic's API."""

    def append(self, messages: Iterable[Any], *, key: str | None = None) -> list[Message]:
        """Add messages: mappings, whose content may be the blocks of the `anthropic` library, or whole responses of it,
        of which role and content are kept. Answers with what was stored, with the ids that approvals of its tool calls
        go by.

        A batch with a `key` is written once, however often it is sent. Raises what `save_messages` raises, and
        `AgentInputError` for a result of a call that nobody asked for.
        """
        given = [_sendable(plain_message(message)) for message in messages]
        return self._write(from_anthropic(given, calls=self._calls(given, _answered), ids=self._ids(key)))

    def messages(self, *, last_n: int | None = None) -> list[dict[str, Any]]:
        """The messages, the oldest first: all, or the `last_n`. A result is left out if its call is not among them."""
        return to_anthropic(self._read(last_n))


def from_anthropic(
    messages: Iterable[Any], *, calls: Calls | None = None, ids: Iterator[str] | None = None
) -> list[Message]:
    """Our messages. `calls` are those made before, which these may answer; `ids` are for the messages."""
    calls = Calls() if calls is None else calls
    found: list[Message] = []
    for each in messages:
        native = _sendable(plain_message(each))
        own_id = new_id() if ids is None else next(ids)
        results = [block for block in _blocks(native) if block.get("type") == _RESULT]
        if results:
            found += _answer(native, results, own_id, calls)
        else:
            found.append(_message(native, own_id))
            calls.add(found[-1])
    return found


def to_anthropic(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """The messages of the format."""
    messages = list(messages)
    # Where a message of the user says itself which results it holds, it does so by our ids.
    placed = {block["tool_use_id"] for message in messages for block in _references(message.content)}
    results: dict[str, Block] = {}
    found = []
    for message in messages:
        if message.role == TOOL:
            told = {result.id: _block(message, result) for result in message.tool_results}
            results |= told
            alone = [block for our_id, block in told.items() if our_id not in placed]
            if alone:
                found.append({"role": "user", "content": alone})
        elif (native := _filled(_native(message), results)) is not None:
            found.append(native)
    return found


# -- messages ----------------------------------------------------------------------------------------------------------


def _sendable(native: dict[str, Any]) -> dict[str, Any]:
    """A message as it can be sent: a response has an id, a model and the like beside."""
    is_response = native.get("type") == "message"
    return {name: native.get(name) for name in ("role", "content")} if is_response else native


def _message(native: dict[str, Any], own_id: str) -> Message:
    asked = [block for block in _blocks(native) if block.get("type") == _CALL]
    content = native.get("content")
    if asked:
        content = [block for block in _blocks(native) if block.get("type") != _CALL] or None
    calls = tuple(
        ToolCall(id=call_id(own_id, text_of(block, "id")), name=text_of(block, "name"), args=block.get("input"))
        for block in asked
    )
    message = Message(id=own_id, role=native["role"], content=content, tool_calls=calls)
    put_together = _native(message)
    inputs = [
        [block.get("input") for block in _blocks(each) if block.get("type") == _CALL] for each in (native, put_together)
    ]
    # As text: the order of keys counts for the provider's cache.
    is_same = put_together == native and json.dumps(inputs[0]) == json.dumps(inputs[1])
    return message if is_same else FORMAT.attach(message, native)


def _native(message: Message) -> dict[str, Any]:
    whole = FORMAT.attached(message.content)
    if whole is not None:
        return dict(whole)
    if not message.tool_calls:
        return {"role": message.role, "content": message.content}
    asked = [
        {
            "type": _CALL,
            "id": original_id(message.id, call.id),
            "name": call.name,
            "input": json.loads(json.dumps(call.args, sort_keys=True)),
        }
        for call in message.tool_calls
    ]
    return {"role": message.role, "content": [*(message.content or ()), *asked]}


# -- results, which the format has in messages of the user -------------------------------------------------------------


def _answer(native: dict[str, Any], results: list[Block], own_id: str, calls: Calls) -> list[Message]:
    """What holds the results; and unless the message is all the results of the last calls, one that says where in it
    they stand."""
    found = [calls.find(text_of(block, "tool_use_id")) for block in results]
    told = tuple(
        ToolResult(id=our_id, name=name, result=_text(block))
        for (our_id, name), block in zip(found, results, strict=True)
    )
    answer = Message(id=own_id, role=TOOL, tool_results=told)
    if native == {"role": "user", "content": results} and [block["tool_use_id"] for block in results] == calls.last:
        return [answer]
    our_ids = iter(found)
    content = [
        {"type": _RESULT, "tool_use_id": next(our_ids)[0]} if block.get("type") == _RESULT else block
        for block in _blocks(native)
    ]
    message = Message(id=own_id, role=native["role"], content=content)
    if native.keys() != {"role", "content"} or FORMAT.attached(content) is not None:
        message = FORMAT.attach(message, {**native, "content": content})
    return [answer, message]


def _filled(native: dict[str, Any], results: dict[str, Block]) -> dict[str, Any] | None:
    """The message with the results where it refers to them; `None` if nothing of it is left."""
    content = native.get("content")
    if not isinstance(content, list) or not any(map(_is_reference, content)):
        return native
    blocks = [results.get(block["tool_use_id"]) if _is_reference(block) else block for block in content]
    content = [block for block in blocks if block is not None]
    return {**native, "content": content} if content else None


def _text(block: Block) -> str:
    told = {name: value for name, value in block.items() if name not in _REFERENCE}
    return FORMAT.result(told, told.get("content"))


def _block(message: Message, result: ToolResult) -> Block:
    original = original_id(message.id, result.id)
    return {"type": _RESULT, "tool_use_id": original, **FORMAT.whole_result(result.result)}


def _references(content: Any) -> list[Block]:
    """The places of results in the content of a message of ours."""
    whole = FORMAT.attached(content)
    blocks = content if whole is None else whole.get("content")
    return [block for block in blocks if _is_reference(block)] if isinstance(blocks, list) else []


def _is_reference(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") == _RESULT and block.keys() == _REFERENCE


def _blocks(native: dict[str, Any]) -> list[Block]:
    content = native.get("content")
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def _answered(messages: Iterable[dict[str, Any]]) -> Iterator[str]:
    """The calls from before that these answer."""
    asked: set[Any] = set()
    for message in messages:
        for block in _blocks(message):
            if block.get("type") == _RESULT and block.get("tool_use_id") not in asked:
                yield text_of(block, "tool_use_id")
            asked |= {block.get("id")} if block.get("type") == _CALL else set()
