"""Saving a batch of messages: one act on SQL, and one that can be done again anywhere (contract services.md §4).

What of a batch is there already is recognised by its ids. So a batch that is sent again, because nobody knows whether
it arrived, writes what is missing and nothing twice.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any

from django.db import IntegrityError

from pikku_storage.agents.models import AgentMessage, AgentThread, AgentToolCall
from pikku_storage.agents.records import Message
from pikku_storage.agents.statuses import TOOL
from pikku_storage.db.fields import cut
from pikku_storage.db.operations import Operation
from pikku_storage.exceptions import MessageConflictError, ThreadNotFoundError
from pikku_storage.ids import new_id

logger = logging.getLogger(__name__)

_TRIES = 5


def save(using: str, thread_id: str, messages: Sequence[Message]) -> None:
    """Write these messages. Raises `ThreadNotFoundError` and `MessageConflictError`; then nothing was written."""
    for attempt in range(_TRIES):
        try:
            _write(using, thread_id, messages)
            return
        except IntegrityError:
            # Somebody writes the same ids at this moment: what they wrote is recognised the next time.
            if attempt == _TRIES - 1:
                raise


def _write(using: str, thread_id: str, messages: Sequence[Message]) -> None:
    threads = AgentThread.everyones.using(using)
    rows, calls = AgentMessage.everyones.using(using), AgentToolCall.everyones.using(using)
    at = threads.engine.now()
    stored = [message for message in messages if message.role != TOOL]
    results = {result.id: result.result for message in messages for result in message.tool_results}
    known_messages = _known_messages(using, thread_id, stored)
    known_calls = _known_calls(using, thread_id, stored, results)
    new_messages = [
        {
            "id": message.id,
            "role": message.role,
            "content": message.content,
            "created_at": at if message.created_at is None else cut(message.created_at),
            # Made here and not before, so that the order is that of the batch.
            "place": new_id(),
        }
        for message in stored
        if message.id not in known_messages
    ]
    new_calls = [
        {
            "id": call.id,
            "message_id": message.id,
            "tool_name": call.name,
            "args": call.args,
            "result": results.get(call.id),
            "place": place,
        }
        for message in stored
        for place, call in enumerate(message.tool_calls)
        if call.id not in known_calls
    ]
    new_ids = {call["id"] for call in new_calls}
    writes: list[Operation] = [
        *rows.adding({"thread_id": thread_id}, new_messages),
        *calls.adding({"thread_id": thread_id, "created_at": at}, new_calls),
        *(
            calls.setting_result(thread_id, call_id, result)
            for call_id, result in results.items()
            if call_id in known_calls and known_calls[call_id] != result
        ),
    ]
    if not threads.write(thread_id, *writes, at=at):
        raise ThreadNotFoundError(thread_id)
    for call_id in results.keys() - known_calls.keys() - new_ids:
        logger.warning("Thread %s has no tool call %s; its result was not kept", thread_id, call_id)


def _known_messages(using: str, thread_id: str, messages: Iterable[Message]) -> set[str]:
    """The ids of those that are there already. Raises `MessageConflictError` if one is another message."""
    by_id = {message.id: message for message in messages}
    found = AgentMessage.everyones.using(using).filter(pk__in=list(by_id)).order_by()
    known = set()
    for row in found.values("id", "thread_id", "role", "content"):
        sent = by_id[row["id"]]
        if (row["thread_id"], row["role"], row["content"]) != (thread_id, sent.role, sent.content):
            raise MessageConflictError("message", row["id"])
        known.add(row["id"])
    return known


def _known_calls(
    using: str, thread_id: str, messages: Iterable[Message], results: dict[str, Any]
) -> dict[str, str | None]:
    """The ids of the calls of this thread that are there already, with the result of each. Raises
    `MessageConflictError` if one that is to be added is another call."""
    sent = {call.id: (message.id, call) for message in messages for call in message.tool_calls}
    ids = list({*sent, *results})
    if not ids:
        return {}
    known = {}
    found = AgentToolCall.everyones.using(using).filter(pk__in=ids).order_by()
    for row in found.values("id", "thread_id", "message_id", "tool_name", "args", "result"):
        if row["id"] in sent:
            message_id, call = sent[row["id"]]
            there = (row["thread_id"], row["message_id"], row["tool_name"], row["args"])
            if there != (thread_id, message_id, call.name, call.args):
                raise MessageConflictError("tool call", row["id"])
        if row["thread_id"] == thread_id:
            known[row["id"]] = row["result"]
    return known
