"""People and programs that send requests, with every CSRF check on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from typing import Any, TypeVar

from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.db import connections
from django.middleware.csrf import get_token
from django.test import Client, RequestFactory

T = TypeVar("T")

ROOT = "/workflows"


def address(*parts: str) -> str:
    """The address below which workflows are."""
    return "/".join((ROOT, *parts))


def in_a_loop(work: Coroutine[Any, Any, T]) -> T:
    """What the work comes to. The thread that sync code of a loop runs in outlives it, and its connections would."""

    async def and_close() -> T:
        try:
            return await work
        finally:
            await sync_to_async(connections.close_all)()

    return asyncio.run(and_close())


class Caller:
    """A browser in which `user` is logged in; nobody without one. It sends the CSRF token unless `csrf` is false, or
    the `token` of a program."""

    def __init__(self, user: User | None = None, *, csrf: bool = True, token: str | None = None) -> None:
        self.user = user
        self.client = Client(enforce_csrf_checks=True)
        if user is not None and token is None:
            self.client.force_login(user)
        self.headers = {} if token is None else {"Authorization": f"Token {token}"}
        if csrf and token is None:
            request = RequestFactory().get("/")
            self.headers["X-CSRFToken"] = get_token(request)
            self.client.cookies["csrftoken"] = request.META["CSRF_COOKIE"]

    @property
    def id(self) -> str:
        """As runs call their owner."""
        assert self.user is not None
        return str(self.user.pk)

    def post(self, *parts: str, body: Any = None, **headers: str) -> Any:
        """Post a JSON body, or none."""
        content = b"" if body is None else json.dumps(body).encode()
        return self.post_raw(*parts, content=content, **headers)

    def post_raw(self, *parts: str, content: bytes, content_type: str = "application/json", **headers: str) -> Any:
        """Post these bytes."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.client.post(
            address(*parts), data=content, content_type=content_type, headers={**self.headers, **named}
        )

    def get(self, *parts: str, **headers: str) -> Any:
        """Get an address."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.client.get(address(*parts), headers={**self.headers, **named})

    def start(self, name: str = "http.doubled", **data: Any) -> str:
        """Start a run; answers with its id."""
        response = self.post(name, "start", body={"data": data})
        assert response.status_code == 200, response.content
        run_id: str = response.json()["runId"]
        return run_id
