"""One POST, which ends: to an address that was checked, within a time, and with an answer that is not too long.

urllib3 is used for what it documents and the standard library has not: a connection to one address that speaks TLS in
another name (`server_hostname`), and the escaping of URLs. No proxy, redirect, cookie or retry of its own takes part.
"""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from http.client import HTTPException
from typing import TypeAlias

from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError
from urllib3.response import BaseHTTPResponse
from urllib3.util import Url, parse_url

from pikku_storage.exceptions import WebhookTransportError
from pikku_storage.webhooks.addresses import allowed_addresses

CAPTURED = 2_000
"""Characters of an answer that are kept (contract services.md §0)."""
LARGEST_READ = 4 * CAPTURED
"""Bytes of an answer that are read: as many characters of UTF-8 take no more."""

_FAILURES = (OSError, HTTPException, HTTPError)
_PORTS = {"http": 80, "https": 443}
Connection: TypeAlias = HTTPConnection


@dataclass(frozen=True, slots=True)
class Answer:
    """What the receiver said: its status, and the beginning of its body."""

    status: int
    body: str


def post(url: str, body: bytes, headers: Mapping[str, str], *, timeout: float) -> Answer:
    """POST the body; all of it takes at most `timeout` seconds from the first connection on.

    Raises `WebhookBlockedError` before anything is sent, and `WebhookTransportError` if there is no answer.
    """
    try:
        target = parse_url(url)
    except HTTPError as error:
        raise WebhookTransportError(f"the URL cannot be read: {type(error).__name__}") from None
    host, port = str(target.host).strip("[]"), target.port or _PORTS[str(target.scheme)]
    try:
        addresses = allowed_addresses(host, port)
    except (OSError, UnicodeError) as error:
        raise WebhookTransportError(f"the name {host} cannot be looked up: {error}") from None
    with _Deadline(timeout) as deadline:
        connection = _connected(target, host, port, addresses, deadline)
        try:
            given = {**headers, "Host": target.netloc or host}
            return _exchanged(connection, target.request_uri, body, given)
        except _FAILURES as error:
            raise deadline.explained(error) from None
        finally:
            connection.close()


def _exchanged(connection: Connection, path: str, body: bytes, headers: Mapping[str, str]) -> Answer:
    connection.request("POST", path, body=body, headers=headers, preload_content=False, decode_content=False)
    response = connection.getresponse()
    try:
        # What else is said with a success, nobody reads.
        return Answer(response.status, "" if response.status // 100 == 2 else _beginning(response))
    finally:
        response.close()


def _beginning(response: BaseHTTPResponse) -> str:
    read = b""
    # An answer that breaks off says something, too.
    with suppress(*_FAILURES):
        while len(read) < LARGEST_READ and (some := response.read1(LARGEST_READ - len(read))):
            read += some
    return read.decode(errors="replace").replace("\x00", "")[:CAPTURED]


def _connected(target: Url, host: str, port: int, addresses: list[str], deadline: _Deadline) -> Connection:
    """A connection to the first of the addresses that takes one."""
    last: Exception = OSError("it has no address")
    for address in addresses:
        connection: Connection
        if target.scheme == "https":
            connection = HTTPSConnection(
                address, port, timeout=deadline.left(), server_hostname=host, ssl_context=_tls()
            )
        else:
            connection = HTTPConnection(address, port, timeout=deadline.left())
        deadline.guards(connection)
        try:
            connection.connect()
        except _FAILURES as error:
            connection.close()
            last = error
        else:
            deadline.guards_socket(connection.sock)
            return connection
    raise deadline.explained(last)


@lru_cache(maxsize=1)
def _tls() -> ssl.SSLContext:
    """Certificates are checked against those that this machine trusts (`SSL_CERT_FILE` names others)."""
    return ssl.create_default_context()


class _Deadline:
    """Cuts the connection when the time is over: the timeout of a socket begins anew with each byte that arrives."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._ends = time.monotonic() + seconds
        self._connection: Connection | None = None
        self._socket: socket.socket | None = None
        self._timer = threading.Timer(seconds, self._cut)
        self._timer.daemon = True

    def __enter__(self) -> _Deadline:
        self._timer.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._timer.cancel()

    def guards(self, connection: Connection) -> None:
        """From now on it is this one that is cut."""
        self._connection = connection

    def guards_socket(self, connected: socket.socket | None) -> None:
        """It has this socket, also after it has forgotten it: an answer may go on when its connection is given up."""
        self._socket = connected

    def left(self) -> float:
        """Seconds that are left, for the timeout of a socket."""
        return max(0.001, self._ends - time.monotonic())

    def explained(self, error: Exception) -> WebhookTransportError:
        """What the attempt says of it."""
        if time.monotonic() >= self._ends or isinstance(error, TimeoutError):
            return WebhookTransportError(f"no answer within {self._seconds * 1000:.0f} ms")
        return WebhookTransportError(f"{type(error).__name__}: {error}")

    def _cut(self) -> None:
        sock = self._socket or (None if self._connection is None else self._connection.sock)
        if sock is not None:
            with suppress(OSError):
                # Of the plain socket: to take leave in TLS would wait for the other side.
                socket.socket.shutdown(sock, socket.SHUT_RDWR)
