"""`POST /remote/rpc/<function>`: who is let in, what is answered, and that nothing else is served."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from asgiref.sync import async_to_sync
from django.core.exceptions import PermissionDenied
from django.db import connections
from django.test import AsyncClient, Client
from django.urls import include, path
from pytest_django import Settings

from pikku_storage.access.acting import current_user_id
from pikku_storage.access.permissions import Call, Gate, verify_access
from pikku_storage.crypto.remote import authorization
from pikku_storage.deployments.serving import remote_functions
from pikku_storage.deployments.sessions import current_session
from pikku_storage.exceptions import WeakKeyMaterialError
from pikku_storage.workflows import function
from pikku_storage.workflows.registry import registry
from tests.unit.test_remote_envelope import JWT, SECRET

pytestmark = pytest.mark.django_db
urlpatterns = [path("api/", include("pikku_storage.deployments.urls"))]
SESSION = {"userId": "ada", "scopes": ["shop:orders"]}
Answer = Any


@pytest.fixture(autouse=True)
def _functions(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    settings.ROOT_URLCONF = __name__
    settings.PIKKU_STORAGE = {"DISPATCHER": None, "REMOTE_SECRET": SECRET, "JWT_SECRETS": JWT}
    monkeypatch.setattr(registry, "functions", {})

    @function(remote=True)
    def rates(currency: str, days: int = 1) -> list[Any]:
        verify_access(Gate(scopes=["shop:orders"]), Call(session=current_session()))
        return [currency, days, current_user_id(), current_session()]

    @function(remote=True, name="rates/of day %41")
    async def arates(currency: str) -> list[Any]:
        await asyncio.sleep(0)
        return [currency, current_user_id(), current_session()]

    @function
    def hidden() -> None:
        raise AssertionError

    @function(remote=True)
    def failing(how: str) -> Any:
        if how == "denied":
            raise PermissionDenied
        return object() if how == "not JSON" else 1 / 0

    yield
    assert current_user_id() is None
    assert current_session() is None


def kept() -> Client:
    return Client(enforce_csrf_checks=True)


def call(name: str, body: Any, *, func: str | None = None, session: Any = SESSION, **options: Any) -> Answer:
    headers = {"Authorization": authorization(SECRET, JWT, func or name, session), **options.pop("headers", {})}
    given = {"content_type": "application/json", "headers": {k: v for k, v in headers.items() if v}, **options}
    return kept().post(f"/api/remote/rpc/{quote(name, safe='')}", body, **given)


@pytest.mark.contract("RM-18", "RM-19", "RM-23", "RM-26", "RM-27", "RM-30")
def test_a_function_is_called_with_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    for connection in connections.all():
        monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)
    answer = call("rates", {"data": {"currency": "chf", "days": 2}})
    assert (answer.status_code, answer.json()) == (200, ["chf", 2, "ada", SESSION])
    assert answer["Cache-Control"] == "no-store"
    assert call("rates/of day %41", {"data": {"currency": "chf"}}).json() == ["chf", "ada", SESSION]
    headers: Any = {"authorization": authorization(SECRET, JWT, "rates", SESSION)}
    body = {"data": {"currency": "chf"}}
    assert kept().post("/api/remote/rpc/rates", body, "application/json", headers=headers).status_code == 200
    for session in (None, {"userId": 7}, {"userId": ""}):
        assert call("rates/of day %41", {"data": {"currency": "x"}}, session=session).json()[:2] == ["x", None]


def test_under_asgi_too() -> None:
    async def scenario() -> list[Any]:
        answers = []
        for name in ("rates", "rates/of day %41"):
            headers: Any = {"Authorization": authorization(SECRET, JWT, name, SESSION)}
            answers.append(
                await AsyncClient(enforce_csrf_checks=True).post(
                    f"/api/remote/rpc/{quote(name, safe='')}",
                    {"data": {"currency": "chf"}},
                    content_type="application/json",
                    headers=headers,
                )
            )
        return [answer.json() for answer in answers]

    assert async_to_sync(scenario)() == [["chf", 1, "ada", SESSION], ["chf", "ada", SESSION]]


@pytest.mark.contract("RM-12", "RM-20", "RM-21", "RM-22")
def test_who_proves_nothing_is_told_nothing(settings: Settings) -> None:
    answers = [
        call("rates", b"{", headers={"Authorization": None}),
        call("unknown", {}, headers={"Authorization": None}),
        call("rates", {}, func="hidden"),
        kept().post("/api/REMOTE/Rpc/rates", {}, headers={"Authorization": authorization(SECRET, JWT, "other")}),  # type: ignore[dict-item]
        kept().post("/api/remote/rpc/rates", {}),
    ]
    settings.PIKKU_STORAGE = {"JWT_SECRETS": JWT}
    answers += [call("rates", {}), kept().post("/api/Remote/RPC/rates")]
    for answer in answers:
        expected = (401, {"error": {"name": "UnauthorizedError", "message": "Unauthorized"}}, "Bearer")
        assert (answer.status_code, answer.json(), answer["WWW-Authenticate"]) == expected
    settings.PIKKU_STORAGE = {"REMOTE_SECRET": "short", "JWT_SECRETS": JWT}
    with pytest.raises(WeakKeyMaterialError):
        call("rates", {})


@pytest.mark.parametrize(
    ("arguments", "status", "name"),
    [
        (("unknown", {}), 404, "RPCNotFoundError"),
        (("hidden", {}), 404, "RPCNotFoundError"),
        (("rates", {}), 422, "WorkflowInputError"),
        (("rates", {"data": {"currency": "x", "more": 1}}), 422, "WorkflowInputError"),
        (("rates", {"data": [1]}), 422, "PayloadError"),
        (("rates", {"data": {"currency": "\x00"}}), 422, "PayloadError"),
        (("rates", {"more": 1}), 400, "MalformedRequestError"),
        (("rates", b"{"), 400, "MalformedRequestError"),
        (("failing", {"data": {"how": "denied"}}), 403, "ForbiddenError"),
        (("failing", {"data": {"how": "not JSON"}}), 422, "PayloadError"),
    ],
    ids=str,
)
def test_what_is_wrong_is_said_to_who_may_call(arguments: Any, status: int, name: str) -> None:
    answer = call(*arguments)
    assert (answer.status_code, answer.json()["error"]["name"]) == (status, name)


def test_limits_methods_scopes_and_faults(settings: Settings) -> None:
    assert call("rates", {"data": {"currency": "x"}}, session={"userId": "eve"}).status_code == 403
    assert call("rates", b"a=1", content_type="text/plain").status_code == 415
    assert kept().get("/api/remote/rpc/rates").status_code == 405
    with pytest.raises(ZeroDivisionError):
        call("failing", {"data": {"how": ""}})
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 100
    assert call("rates", {"data": {"currency": "x" * 100}}).status_code == 413
    settings.PIKKU_STORAGE = {**settings.PIKKU_STORAGE, "MAX_PAYLOAD_BYTES": 20}
    assert call("rates", {"data": {"currency": "x" * 30}}).status_code == 422


def test_only_what_says_so_is_remote() -> None:
    assert remote_functions() == ["failing", "rates", "rates/of day %41"]
