"""One request to another service."""

from __future__ import annotations

import json
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import quote, urlsplit

from pikku_storage.conf import settings
from pikku_storage.exceptions import RemoteCallError
from pikku_storage.json import Json

SCHEMES = {"http": HTTPConnection, "https": HTTPSConnection}
PATH = "/remote/rpc/"
CONNECT_SECONDS = 5
_OK = range(200, 300)


def scheme_of(endpoint: str) -> str | None:
    """The scheme of an address that has a host; `None` for what is no address."""
    try:
        address = urlsplit(endpoint)
    except ValueError:
        return None
    return address.scheme if address.hostname else None


class NotReachedError(Exception):
    """There was no connection, so nothing was sent."""


def post(endpoint: str, func: str, body: bytes, headers: dict[str, str]) -> Json:
    """What the function answers. Raises `NotReachedError`, and `RemoteCallError`. Redirects are not followed."""
    address = urlsplit(endpoint)
    timeout = settings.REMOTE_TIMEOUT / 1000
    try:
        connection = SCHEMES[address.scheme](
            address.hostname or "", address.port, timeout=min(timeout, CONNECT_SECONDS)
        )
        connection.connect()
    except (OSError, ValueError, HTTPException) as error:
        raise NotReachedError(f"{type(error).__name__}: {error}") from error
    try:
        connection.sock.settimeout(timeout)
        connection.request("POST", f"{address.path.rstrip('/')}{PATH}{quote(func, safe='')}", body, headers)
        with connection.getresponse() as response:
            answer = response.read(settings.MAX_PAYLOAD_BYTES + 1)
    except (OSError, HTTPException) as error:
        raise RemoteCallError(func, type(error).__name__) from error
    finally:
        connection.close()
    if response.status not in _OK:
        raise RemoteCallError(func, str(response.status), status=response.status)
    return _value(func, answer, response.status)


def _value(func: str, answer: bytes, status: int) -> Json:
    if len(answer) > settings.MAX_PAYLOAD_BYTES:
        raise RemoteCallError(func, "the answer is larger than MAX_PAYLOAD_BYTES allows", status=status)
    try:
        return json.loads(answer) if answer else None
    except (ValueError, RecursionError):
        pass
    # Out here, because the parser's error holds the whole text.
    raise RemoteCallError(func, "the answer is no JSON", status=status)
