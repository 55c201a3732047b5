"""What a message says, whichever provider's format its parts have. Pure.

A part that is not known is shown as JSON. What is attached, such as an image, is named and never loaded: the page
fetches nothing from elsewhere.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from django.utils.translation import gettext, pgettext

from pikku_storage.json import Json

Kind = Literal["text", "reasoning", "file", "json"]

_TEXTS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
_REASONING = {"reasoning": "text", "thinking": "thinking"}
_FILES = frozenset(
    {
        "image",
        "image_url",
        "input_image",
        "file",
        "input_file",
        "document",
        "audio",
        "input_audio",
        "image-url",
        "document-url",
        "audio-url",
        "video-url",
        "binary",
    }
)
_TYPES = ("mediaType", "media_type", "mimeType", "mime_type", "format")
_NAMES = ("filename", "name", "title")
_PLACES = ("url", "image", "image_url", "file_url", "data", "file_data", "file_id", "fileId", "id")
_NESTED = ("source", "image_url", "file", "input_audio", "audio")
_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+)?[^,]*,")
_OPEN_TEXT = re.compile(
    r'\{\s*"type":\s*"(text|input_text|output_text|reasoning|thinking)",\s*"(?:text|thinking)":\s*"'
)
_OPEN_FILE = re.compile(r'\{\s*"type":\s*"([a-z_-]+)"')
_OPEN_MEDIA_TYPE = re.compile(r'"(?:data:|(?:mediaType|media_type|mimeType|mime_type)":\s*")([\w.+-]+/[\w.+-]+)')
_LINKS = ("https://", "http://")


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part as it is shown: a text, what the model thought, something attached (a `label`, and a `url` if it lies
    somewhere on the web), or any other JSON as text, with what it is as `label`."""

    kind: Kind
    text: str = ""
    label: str = ""
    url: str = ""


def parts_of(content: Json) -> list[Part]:
    """The parts of a message's content."""
    if content is None or content == "" or content == []:
        return []
    return [_part(each) for each in content] if isinstance(content, list) else [_part(content)]


def parts_of_beginning(text: str) -> list[Part]:
    """The parts of content of whose JSON this is the beginning: the last one may be cut anywhere."""
    if text.startswith('"'):
        return [Part(kind="text", text=_open_text(text[1:]))]
    if not text.startswith("["):
        return [Part(kind="json", text=text)]
    parts, decoder, place = [], json.JSONDecoder(), 1
    while True:
        place += len(text[place:]) - len(text[place:].lstrip(", \n\t\r"))
        try:
            value, place = decoder.raw_decode(text, place)
        except ValueError:
            break
        parts.append(_part(value))
    rest = text[place:]
    if match := _OPEN_TEXT.match(rest):
        kind: Kind = "reasoning" if match[1] in _REASONING else "text"
        parts.append(Part(kind=kind, text=_open_text(rest[match.end() :])))
    elif (match := _OPEN_FILE.match(rest)) and match[1] in _FILES:
        media_type = _OPEN_MEDIA_TYPE.search(rest)
        parts.append(Part(kind="file", label=media_type[1] if media_type else match[1], text="…"))
    elif rest not in {"", "]"}:
        parts.append(Part(kind="json", text=rest))
    return parts


def _part(value: Json) -> Part:
    if isinstance(value, str):
        return Part(kind="text", text=value)
    if not isinstance(value, dict):
        return _json(value)
    kind = value.get("type") or value.get("kind")
    if kind in _TEXTS and isinstance(text := value.get(_TEXTS[kind]), str):
        return Part(kind="text", text=text, label=pgettext("of a model", "refusal") if kind == "refusal" else "")
    if kind in _REASONING:
        thought = _thought(value, _REASONING[kind])
        return _json(value, str(kind)) if thought is None else Part(kind="reasoning", text=thought)
    if kind == "redacted_thinking":
        return Part(kind="reasoning", label=gettext("The provider keeps it to itself."))
    if kind in _FILES:
        return _file(value, str(kind))
    if value.keys() == {"type", "message"}:
        # What an adapter keeps beside what is shown, since our columns do not hold it.
        return _json(value["message"], gettext("as in the format %(name)s") % {"name": kind})
    return _json(value, kind if isinstance(kind, str) else "")


def _thought(value: Mapping[str, Any], name: str) -> str | None:
    for text in (value.get(name), value.get("text"), value.get("reasoning")):
        if isinstance(text, str):
            return text
    summary = value.get("summary")
    if isinstance(summary, list):
        return "\n\n".join(str(each.get("text", "")) for each in summary if isinstance(each, dict))
    return None


def _file(value: Mapping[str, Any], kind: str) -> Part:
    found = [value, *(inner for name in _NESTED if isinstance(inner := value.get(name), dict))]
    media_type, name, place = (_first(found, names) for names in (_TYPES, _NAMES, _PLACES))
    if place.startswith(_LINKS):
        return Part(kind="file", label=name or media_type or kind, text=place, url=place)
    if match := _DATA_URL.match(place):
        media_type, place = media_type or match[1] or "", place[match.end() :]
    label = " · ".join(filter(None, (name, media_type))) or kind
    # Data is base64, an id of a stored file is short.
    if len(place) > 200:
        return Part(kind="file", label=label, text=gettext("%(n)d kB") % {"n": max(1, len(place) * 3 // 4096)})
    return Part(kind="file", label=label, text=place)


def _first(mappings: list[Mapping[str, Any]], names: tuple[str, ...]) -> str:
    for name in names:
        for mapping in mappings:
            if isinstance(text := mapping.get(name), str) and text:
                return text
    return ""


def _json(value: Json, label: str = "") -> Part:
    return Part(kind="json", text=json.dumps(value, ensure_ascii=False, indent=2), label=label)


def _open_text(escaped: str) -> str:
    """The text of a JSON string that may end within an escape, and after which nothing follows."""
    for left_out in range(min(7, len(escaped) + 1)):
        try:
            return str(json.loads(f'"{escaped[: len(escaped) - left_out]}"', strict=False))
        except ValueError:
            continue
    return escaped
