"""Workflows and callers of these tests."""

from __future__ import annotations

from typing import Any, Literal

from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest

from pikku_storage.workflows import function, workflow
from pikku_storage.workflows.flow import Flow


@function(name="http.double", retries=0)
def double(number: int) -> int:
    return 2 * number


@function(name="http.refuse", retries=0)
def refuse() -> None:
    raise ValueError("no, thank you")


@workflow(name="http.doubled", http=True)
def doubled(flow: Flow, number: int = 1) -> int:
    """Everybody who is signed in may start it."""
    result: int = flow.do("double", double, {"number": number})
    return result


@workflow(name="http.guarded", http="auth.add_user")
def guarded(flow: Flow) -> str:
    """Only who may add users may start it."""
    return "done"


@workflow(name="http.failing", http=True)
def failing(flow: Flow) -> None:
    flow.do("refuse", refuse)


@workflow(name="http.released", http=True)
def released(flow: Flow, approvers: Literal["any", "owner", "not-initiator"] = "any", scope: str | None = None) -> Any:
    """It waits for an answer."""
    schema = {"type": "object", "properties": {"amount": {"type": "integer"}}, "required": ["amount"]}
    return flow.approval("release", schema=schema, approvers=approvers, approver_scope=scope).data


@workflow(name="http.hidden")
def hidden(flow: Flow) -> str:
    """It says nothing of HTTP."""
    return "done"


def user_of_token(request: HttpRequest) -> User | None:
    """`Authorization: Token <user name>`, in place of a real token."""
    kind, _, name = request.headers.get("Authorization", "").partition(" ")
    if kind != "Token":
        return None
    if name == "revoked":
        raise PermissionDenied("This token was revoked")
    return User.objects.get(username=name)


TOKENS = "tests.http.served.user_of_token"
