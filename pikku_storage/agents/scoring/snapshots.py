"""What a grade keeps of the conversation that it is about (contract SR-06)."""

from __future__ import annotations

import json
from collections.abc import Sequence

from pikku_storage.agents.memory.trimming import characters, trim
from pikku_storage.agents.records import Message
from pikku_storage.agents.scoring.scorers import WHOLE, Snapshot
from pikku_storage.conf import settings
from pikku_storage.json import Json

_MOST_BYTES = 6
"""Of a character in JSON."""


def snapshot_of(messages: Sequence[Message], how: Snapshot) -> Json:
    """`None`, or `{messages, dropped}`: the last messages, and how many before them did not fit. `"whole"` has all of
    them that can be stored; a number is the most characters of all texts together."""
    if how is None:
        return None
    # A grade must not be lost because too much is to be kept with it. Half is left for names and punctuation.
    most = settings.MAX_PAYLOAD_BYTES // _MOST_BYTES // 2
    budget = most if how == WHOLE else min(int(how), most)
    kept = trim(messages, budget)
    if sum(map(characters, kept)) > budget:
        share = budget // max(sum(1 + len(message.tool_results) for message in kept), 1)
        shown = [_shown(message, share) for message in kept]
    else:
        shown = [_shown(message) for message in kept]
    return {"messages": shown, "dropped": len(messages) - len(kept)}


def _shown(message: Message, longest: int | None = None) -> dict[str, Json]:
    """A message as JSON; or with its texts cut, and of its calls the names only."""
    shown: dict[str, Json] = {"role": message.role}
    if message.content is not None:
        is_text = isinstance(message.content, str)
        text = message.content if is_text else json.dumps(message.content, ensure_ascii=False)
        shown["content"] = message.content if longest is None else text[:longest]
    if message.tool_calls:
        shown["toolCalls"] = [
            {"name": call.name, **({"args": call.args} if longest is None else {})} for call in message.tool_calls
        ]
    if message.tool_results:
        shown["toolResults"] = [
            {"name": result.name, "result": result.result[:longest]} for result in message.tool_results
        ]
    return shown
