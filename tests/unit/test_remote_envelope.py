"""The proof and the session that a call between services carries."""

import json
import time
from itertools import count
from typing import Any

import jwt as pyjwt
import pytest
from django.core.exceptions import ImproperlyConfigured

from pikku_storage.crypto import jwt, keymaterial
from pikku_storage.crypto.keymaterial import REMOTE_SECRET, REMOTE_SESSION_INFO
from pikku_storage.crypto.remote import authorization, session_of
from pikku_storage.exceptions import UnauthorizedError, WeakKeyMaterialError
from tests.data.vectors import load, vectors

SECRET = "remote-secret-0123456789-0123456789"
JWT = {"new": "jwt-secret-0123456789-0123456789-abc"}
SESSION = {"userId": "ada", "scopes": ["shop:orders"], "name": "Zoë ☕"}


def header(**claims: Any) -> str:
    """What somebody with the secrets could send: `None` takes a claim away."""
    given = pyjwt.decode((authorization(SECRET, JWT, "rates") or "")[7:], options={"verify_signature": False})
    left = {name: value for name, value in {**given, **claims}.items() if value is not None}
    return f"Bearer {pyjwt.encode(left, JWT['new'], headers={'kid': 'new'})}"


@pytest.mark.contract("RM-01", "RM-03", "RM-07", "RM-18", "RM-23", "RM-27", "RM-31")
def test_what_one_side_builds_the_other_side_opens() -> None:
    began = time.monotonic()
    given = authorization(SECRET, JWT, "rates", SESSION)
    assert session_of(SECRET, JWT, "rates", given) == SESSION
    assert time.monotonic() - began < 0.5
    assert session_of("x" * 32, JWT, "rates", authorization("x" * 32, JWT, "rates")) is None
    assert given is not None
    assert "ada" not in given, "it is sealed"
    claims = jwt.decode(JWT, given[7:], audience="pikku-remote")
    assert (claims["fn"], claims["exp"] - claims["iat"]) == ("rates", 300)
    assert session_of(SECRET, JWT, "rates", given.replace("Bearer ", "bearer  ")) == SESSION


def test_nothing_is_signed_without_both_secrets() -> None:
    assert authorization(None, JWT, "rates", SESSION) is None
    assert authorization(SECRET, {}, "rates", SESSION) is None


@pytest.mark.contract("RM-04", "RM-05", "RM-06")
def test_weak_secrets_are_refused_on_both_sides() -> None:
    weak = "x" * 31
    for session in (SESSION, None):
        with pytest.raises(WeakKeyMaterialError, match=f"{REMOTE_SECRET} must be"):
            authorization(weak, JWT, "rates", session)
    for given in (None, header()):
        with pytest.raises(WeakKeyMaterialError):
            session_of(weak, JWT, "rates", given)
    with pytest.raises(WeakKeyMaterialError):
        authorization(SECRET, {"new": weak}, "rates")


@pytest.mark.contract("RM-11")
def test_a_secret_without_those_of_jwts_is_an_error() -> None:
    with pytest.raises(ImproperlyConfigured, match="JWT_SECRETS"):
        session_of(SECRET, {}, "rates", header())


@pytest.mark.contract("RM-02", "RM-12", "RM-13", "RM-14", "RM-15", "RM-16", "RM-17", "RM-20", "RM-28")
@pytest.mark.parametrize(
    "given",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Bearer nonsense",
        "Basic YTpi",
        header().replace("Bearer", "Token"),
        header()[:-2],
        header(aud="somebody-else"),
        header(aud=None),
        header(exp=None),
        header(exp=1),
        header(fn="another"),
        header(fn="Rates"),
        header(fn=["rates"]),
        header(session="nonsense"),
        header(session={"userId": "eve"}),
        header(session=keymaterial.encrypt(REMOTE_SECRET, "y" * 32, REMOTE_SESSION_INFO, {"session": SESSION})),
        header(session=keymaterial.encrypt(REMOTE_SECRET, SECRET, "another use", {"session": SESSION})),
        authorization(SECRET, {"new": "z" * 32}, "rates", SESSION),
        authorization(SECRET, {"unknown": JWT["new"]}, "rates", SESSION),
        authorization("y" * 32, JWT, "rates", SESSION),
    ],
    # Tokens differ from process to process.
    ids=count(),
)
def test_whatever_does_not_hold_is_unauthorized(given: str | None) -> None:
    with pytest.raises(UnauthorizedError) as caught:
        session_of(SECRET, JWT, "rates", given)
    assert str(caught.value) == "Unauthorized"


def test_without_a_secret_nothing_is_let_in() -> None:
    with pytest.raises(UnauthorizedError):
        session_of(None, JWT, "rates", header())


@pytest.mark.contract("RM-24", "RM-30")
def test_a_token_without_function_and_empty_sessions() -> None:
    sealed = keymaterial.encrypt(REMOTE_SECRET, SECRET, REMOTE_SESSION_INFO, {"session": SESSION})
    assert session_of(SECRET, JWT, "anything", header(session=sealed, fn=None)) == SESSION
    nothing: tuple[Any, ...] = (None, {}, {"session": None}, "text", [])
    for empty in nothing:
        sealed = keymaterial.encrypt(REMOTE_SECRET, SECRET, REMOTE_SESSION_INFO, empty)
        assert session_of(SECRET, JWT, "rates", header(session=sealed)) is None


@pytest.mark.parametrize("vector", vectors("remote-session"), ids=lambda vector: vector["name"])
def test_sessions_that_typescript_sealed(vector: dict[str, Any]) -> None:
    secret = vector["keyMaterial"]
    expected = (json.loads(vector["decryptedJson"]) or {}).get("session")
    assert session_of(secret, JWT, "rates", header(session=vector["token"])) == expected


@pytest.mark.parametrize("vector", load("remote-session")["negative"], ids=lambda vector: vector["name"])
def test_sessions_that_were_changed(vector: dict[str, Any]) -> None:
    is_weak = vector["result"]["errorName"] == "WeakKeyMaterialError"
    with pytest.raises(WeakKeyMaterialError if is_weak else UnauthorizedError):
        session_of(vector["keyMaterial"], JWT, "rates", header(session=vector["token"]))
