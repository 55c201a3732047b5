"""What a caller wants sent, checked before anything is stored."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from pikku_storage.exceptions import WebhookInputError
from pikku_storage.json import to_json
from pikku_storage.webhooks.addresses import check_address, literal

LONGEST_URL = 2_000
_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_CONNECTION = {"host", "content-length", "transfer-encoding", "connection", "expect", "upgrade", "te", "trailer"}
"""Headers that belong to the connection."""


def url_of(given: object) -> str:
    """The URL, if something may be sent there; raises `WebhookInputError` and `WebhookBlockedError`. Only an address is
    judged yet: what a name means is looked up when it is sent."""
    if not isinstance(given, str) or len(given) > LONGEST_URL or re.search(r"[\x00-\x20\x7f\\]", given):
        raise WebhookInputError("The URL is a text of at most 2,000 characters without spaces and backslashes")
    try:
        parts = urlsplit(given)
        host, _ = parts.hostname, parts.port
        name = (host or "").encode("idna").decode()
    except ValueError as error:
        # The text of a URL may hold a password.
        raise WebhookInputError(f"The URL cannot be read: {type(error).__name__}") from None
    if parts.scheme not in {"http", "https"} or not host:
        raise WebhookInputError("The URL begins with https:// or http://, and names a host")
    if "@" in parts.netloc:
        raise WebhookInputError("The URL holds no user and password: they would be stored with it")
    address = literal(host)
    if address is not None:
        check_address(host, address)
    if host.isascii():
        return given
    return parts._replace(netloc=name if parts.port is None else f"{name}:{parts.port}").geturl()


def body_of(data: Any) -> str:
    """The body: compact JSON. Raises `PayloadError`."""
    return json.dumps(to_json(data, root="$data"), ensure_ascii=False, separators=(",", ":"))


def headers_of(given: Mapping[Any, Any] | None) -> dict[str, str]:
    """The headers of the caller's own; raises `WebhookInputError`."""
    headers: dict[str, str] = {}
    for name, value in (given or {}).items():
        if not isinstance(name, str) or not _NAME.fullmatch(name) or name.lower() in _CONNECTION:
            raise WebhookInputError(f"{name!r} cannot be a header of a webhook")
        headers = merged(headers, {name: value_of(value, name)})
    return headers


def merged(headers: Mapping[str, str], others: Mapping[str, str]) -> dict[str, str]:
    """All of them; of one name, in whatever case, the later one."""
    taken = {name.lower() for name in others}
    return {**{name: value for name, value in headers.items() if name.lower() not in taken}, **others}


def value_of(value: object, name: str) -> str:
    """A header's value; raises `WebhookInputError`, which does not quote it."""
    if not isinstance(value, str) or not _VALUE.fullmatch(value):
        raise WebhookInputError(f"The value of {name!r} is a text of one line, which a header can hold")
    return value
