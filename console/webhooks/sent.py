"""What of a webhook's URL and headers may be shown. Pure functions."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from pikku_storage.json import Json

_SECRET = re.compile(r"auth|token|secret|cookie|signature|password|credential|key|session", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Header:
    """A header; `value` is `None` if it is not shown."""

    name: str
    value: str | None


def host_of(url: str) -> str:
    """The host of a URL, with its port; of a text that is none, nothing."""
    try:
        return urlsplit(url).netloc.rpartition("@")[2]
    except ValueError:
        return ""


def shown_url(url: str) -> str:
    """The URL without what often lets one in: the user and the values of its query."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    query = re.sub(r"=[^&]*", "=…", parts.query)
    return parts._replace(netloc=host_of(url), query=query).geturl()


def shown_headers(headers: Any, signature: str) -> list[Header]:
    """The headers by name. The values of the one that signs, and of those whose name sounds like a secret, are not
    shown."""
    if not isinstance(headers, Mapping):
        return []
    return [
        Header(str(name), None if name.lower() == signature.lower() or _SECRET.search(name) else str(value))
        for name, value in sorted(headers.items())
    ]


def body_of(text: str) -> Json:
    """The body as JSON, or as it is."""
    try:
        body: Json = json.loads(text)
    except ValueError:
        return text
    return body
