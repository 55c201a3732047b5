"""What a model is told about its memory."""

from __future__ import annotations

import json
from collections.abc import Mapping

from pikku_storage.agents.memory.tags import CLOSE, OPEN
from pikku_storage.json import Json

_TEXT = (
    "You have a working memory, which lasts beyond this conversation. Whenever you learn something that belongs there, "
    "say it anywhere in your answer between {open} and {close}, as one JSON object with only what changes. The user "
    "does not see it.\n\n"
    "* Objects are merged with what is stored, key by key.\n"
    "* null deletes a key.\n"
    "* Arrays are replaced whole: always write the complete new array.\n\n"
    "{fields}The memory now:\n{state}"
)


def memory_prompt(memory: Mapping[str, Json] | None, fields: Mapping[str, str] | None = None) -> str:
    """The part of a system prompt that explains the memory and shows what is in it (contract AM-03). `fields` says what
    belongs there: `{"city": "string: where they live"}`."""
    listed = "".join(f"* {name} ({about})\n" for name, about in (fields or {}).items())
    return _TEXT.format(
        open=OPEN, close=CLOSE, fields=f"Its fields:\n{listed}\n" if listed else "", state=_shown(memory)
    )


def _shown(memory: Mapping[str, Json] | None) -> str:
    if not memory:
        return "(empty)"
    # Somebody's words may be stored in it. They must not look like the end of it, nor like a tag of the model's own.
    return json.dumps(memory, ensure_ascii=False, indent=2).replace("<", "\\u003c")
