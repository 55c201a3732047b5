"""Fitting a history into what a model takes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import replace

from pikku_storage.agents.records import Message
from pikku_storage.agents.statuses import TOOL

Measure = Callable[[Message], int]


def characters(message: Message) -> int:
    """How long a message is, with its calls and results."""
    content = message.content if isinstance(message.content, str) else _length_text(message.content)
    calls = "".join(call.name + _length_text(call.args) for call in message.tool_calls)
    return len(content) + len(calls) + sum(len(result.result) for result in message.tool_results)


def trim(messages: Iterable[Message], budget: int, *, measure: Measure = characters) -> list[Message]:
    """The newest messages that fit into the budget together, the oldest first (contract AM-07).

    The budget is in characters, or in what `measure` counts. A message with tool calls and the messages with their
    results stay or go together; results whose call is not there are dropped, since no model takes them. The latest
    stays even if it is too long on its own.
    """
    kept: list[list[Message]] = []
    left = budget
    for group in reversed(_groups(messages)):
        left -= sum(measure(message) for message in group)
        if kept and left < 0:
            break
        kept.append(group)
    return [message for group in reversed(kept) for message in group]


def _groups(messages: Iterable[Message]) -> list[list[Message]]:
    """What stays or goes together, in order."""
    groups: list[list[Message]] = []
    asked_in: dict[str, list[Message]] = {}
    for message in messages:
        if message.role != TOOL:
            groups.append([message])
            asked_in.update((call.id, groups[-1]) for call in message.tool_calls)
            continue
        results = tuple(result for result in message.tool_results if result.id in asked_in)
        if results:
            asked_in[results[0].id].append(replace(message, tool_results=results))
    return groups


def _length_text(value: object) -> str:
    return "" if value is None else json.dumps(value, ensure_ascii=False)
