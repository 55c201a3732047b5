"""What a model says about its memory, in tags within its text: `<working_memory>{"city": "Rome"}</working_memory>`."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass

from pikku_storage.json import Json

logger = logging.getLogger(__name__)

OPEN, CLOSE = "<working_memory>", "</working_memory>"
_FENCE = "```"


@dataclass(frozen=True, slots=True)
class Parsed:
    """A text without its tags, and what they said: JSON objects, in their order."""

    text: str
    changes: tuple[dict[str, Json], ...] = ()


def parse(text: str) -> Parsed:
    """Take the tags out of a text (contract AM-05, AM-08). One whose content is no JSON object is taken out all the
    same, with a warning. What was cut off within the JSON of a tag ends where the tag begins."""
    kept: list[str] = []
    changes: list[dict[str, Json]] = []
    rest = text
    # Not a regular expression: one that looks for the end of each of many open tags takes the square of the time.
    while (begin := rest.find(OPEN)) >= 0:
        content = rest[begin + len(OPEN) :]
        end = content.find(CLOSE)
        if end < 0 and not content.lstrip().startswith(("{", _FENCE)):
            break
        kept.append(rest[:begin])
        rest = "" if end < 0 else content[end + len(CLOSE) :]
        said = None if end < 0 else _object(content[:end])
        if said is None:
            logger.warning("A model said something about its working memory that is no JSON object; it is ignored")
        else:
            changes.append(said)
    if not kept:
        return Parsed(text)
    return Parsed("".join([*kept, rest]).strip(), tuple(changes))


def _object(text: str) -> dict[str, Json] | None:
    text = text.strip()
    if text.startswith(_FENCE):
        text = text.strip("`").removeprefix("json")
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return said if isinstance(said, dict) else None
