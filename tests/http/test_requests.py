"""Requests that are not as they must be are told so, and do nothing."""

import json
from typing import Any

import pytest
from django.urls import reverse
from pytest_django import Settings

from pikku_storage.exceptions import ForbiddenError, PikkuError
from pikku_storage.workflows.http import errors
from pikku_storage.workflows.models import WorkflowRun
from tests.docs.markdown import DOCS, codes_in, table_rows
from tests.http.callers import Caller

pytestmark = pytest.mark.django_db(transaction=True)


def refusal(response: Any, status: int, name: str) -> str:
    """The message of a refusal that is as it must be."""
    error = response.json()["error"]
    assert (response.status_code, error["name"]) == (status, name), error
    assert response["Content-Type"] == "application/json"
    assert response["Cache-Control"] == "no-store"
    assert not WorkflowRun.objects.exists()
    message: str = error["message"]
    return message


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"{", "not JSON"),
        (b"\xff", "not JSON"),
        (b'{"data": NaN}', "NaN is not JSON"),
        (b"1" * 5_000, "not JSON"),
        (b'{"data":' + b"[" * 100_000, "nested too deeply"),
        (b"[]", "must be an object, not list"),
        (b"null", "must be an object, not NoneType"),
        (b'{"number": 1}', "unexpected key 'number'"),
    ],
)
def test_a_body_that_is_no_object_of_json(ada: Caller, content: bytes, says: str) -> None:
    response = ada.post_raw("http.doubled", "start", content=content)
    message = refusal(response, 400, "MalformedRequestError")
    assert says in message
    assert len(message) < 300


@pytest.mark.parametrize(
    ("data", "name", "more"),
    [
        ({"nummer": 1}, "WorkflowInputError", {}),
        ([1], "PayloadError", {"path": "$input", "code": "NOT_SERIALIZABLE"}),
        ({"number": "a\x00b"}, "PayloadError", {"path": "$input.number", "code": "NOT_SERIALIZABLE"}),
        ({"number": 1 << 70}, "PayloadError", {"path": "$input.number", "code": "NOT_SERIALIZABLE"}),
    ],
)
def test_data_that_the_workflow_cannot_take(ada: Caller, data: Any, name: str, more: dict[str, str]) -> None:
    response = ada.post("http.doubled", "start", body={"data": data})
    refusal(response, 422, name)
    assert response.json()["error"].items() >= more.items()


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "application/xml", ""])
def test_a_body_that_is_called_something_else(ada: Caller, content_type: str) -> None:
    response = ada.post_raw("http.doubled", "start", content=b'{"data": {}}', content_type=content_type)
    refusal(response, 415, "UnsupportedMediaTypeError")


def test_json_may_name_its_encoding(ada: Caller) -> None:
    content = json.dumps({"data": {"number": 2}}).encode()
    response = ada.post_raw("http.doubled", "start", content=content, content_type="application/json; charset=utf-8")
    assert response.status_code == 200


def test_a_body_that_is_too_large(ada: Caller, settings: Settings) -> None:
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 100
    refusal(ada.post("http.doubled", "start", body={"data": {"number": "x" * 100}}), 413, "BodyTooLargeError")


def test_a_payload_that_is_too_large(ada: Caller, settings: Settings) -> None:
    settings.PIKKU_STORAGE = {**settings.PIKKU_STORAGE, "MAX_PAYLOAD_BYTES": 100}
    refusal(ada.post("http.doubled", "start", body={"data": {"number": "x" * 100}}), 422, "PayloadError")


@pytest.mark.parametrize("method", ["get", "head", "post", "put", "patch", "delete", "options"])
@pytest.mark.parametrize("name", ["start", "run", "approve", "status", "stream", "stream-full"])
def test_each_address_takes_one_method(ada: Caller, name: str, method: str) -> None:
    allowed = "POST" if name in ("start", "run", "approve") else "GET"
    if method.upper() == allowed:
        return
    options = {"name": "http.doubled", **({} if name in ("start", "run") else {"run_id": "some"})}
    response = getattr(ada.client, method)(reverse(f"pikku_workflows:{name}", kwargs=options))
    assert (response.status_code, response["Allow"]) == (405, allowed)
    if method != "head":
        refusal(response, 405, "MethodNotAllowedError")


def test_who_is_not_signed_in_gets_a_challenge() -> None:
    response = Caller().post("http.doubled", "start")
    refusal(response, 401, "NotAuthenticatedError")
    # None that makes a browser ask for a password.
    assert response["WWW-Authenticate"] == "Session"


def test_what_an_authenticator_says_is_passed_on() -> None:
    response = Caller(token="revoked").post("http.doubled", "start")
    assert refusal(response, 403, "ForbiddenError") == "This token was revoked"


def test_no_other_origin_is_let_in(ada: Caller) -> None:
    response = ada.get("http.doubled", "status", "some", Origin="https://elsewhere.example")
    assert not [name for name in response.headers if name.lower().startswith("access-control-")]


def test_a_fault_of_the_server_is_no_answer(ada: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: Any) -> Any:
        raise PikkuError("a secret of ours")

    monkeypatch.setattr("pikku_storage.workflows.http.views.own_run", broken)
    with pytest.raises(PikkuError):
        ada.get("http.doubled", "status", "some")


def test_every_error_is_documented() -> None:
    rows = table_rows(DOCS / "reference" / "http.md", "Errors")
    documented = {codes_in(row[0])[0]: row[1] for row in rows}
    of_requests: list[type[PikkuError]] = [*errors.HttpError.__subclasses__(), ForbiddenError]
    assert documented == {cls.__name__: str(cls.http_status) for cls in of_requests}
