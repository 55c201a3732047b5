"""A receiver of webhooks: an HTTP server in a thread, on a port of its own, that answers as it is told."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

DRIP = 0.03
"""Seconds between two bytes of an answer that never ends."""


@dataclass(frozen=True, slots=True)
class Request:
    """What came in."""

    path: str
    headers: dict[str, str]
    body: bytes


@dataclass(slots=True)
class Receiver:
    """`answers` are what the next requests get, the last one again and again: a status; or `hang`, `drip`, `slow`,
    `huge`, `redirect`, `garbage` or `broken`."""

    port: int = 0
    answers: list[Any] = field(default_factory=lambda: [200])
    requests: list[Request] = field(default_factory=list)
    arrived: threading.Event = field(default_factory=threading.Event)
    closing: threading.Event = field(default_factory=threading.Event)
    sent: int = 0
    """Bytes of a huge answer that somebody took."""

    @property
    def url(self) -> str:
        """Where to send."""
        return f"http://127.0.0.1:{self.port}/hooks"

    def answer(self) -> Any:
        """What the next request gets."""
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@contextmanager
def receiving(tls: ssl.SSLContext | None = None) -> Iterator[Receiver]:
    """A receiver that is up inside the block."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            receiver.requests.append(Request(self.path, dict(self.headers), self.rfile.read(length)))
            receiver.arrived.set()
            try:
                self._answer(receiver.answer())
            except OSError:
                # It was cut off, as it should be.
                self.close_connection = True

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

        def _answer(self, what: Any) -> None:
            if what == "hang":
                receiver.closing.wait(30)
            elif what == "garbage":
                self.wfile.write(b"\x00\xff not HTTP\r\n\r\n")
                self.close_connection = True
            elif what == "drip":
                for byte in b"HTTP/1.1 200 OK\r\nX-Long: " + b"x" * 10_000:
                    self.wfile.write(bytes([byte]))
                    time.sleep(DRIP)
            elif what == "slow":
                self._begin(500)
                for _ in range(10_000):
                    self.wfile.write(b"x")
                    time.sleep(DRIP)
            elif what == "huge":
                self._begin(500)
                for _ in range(2_000):
                    receiver.sent += self.wfile.write(b"\xc3\xa4" * 5_000)
            elif what == "broken":
                self._begin(500, length=1_000)
                self.wfile.write(b"half")
                self.close_connection = True
            elif what == "redirect":
                self._begin(302, location=f"http://127.0.0.1:{receiver.port}/elsewhere")
            else:
                self._begin(what, length=4)
                self.wfile.write(b"done")

        def _begin(self, status: int, *, length: int | None = None, location: str | None = None) -> None:
            self.send_response(status)
            if location is not None:
                self.send_header("Location", location)
            if length is not None:
                self.send_header("Content-Length", str(length))
            self.end_headers()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    receiver.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        receiver.closing.set()
        server.shutdown()
        server.server_close()
        thread.join()
