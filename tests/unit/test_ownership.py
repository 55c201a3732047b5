"""Whose runs and threads are, by what the TypeScript packages say."""

from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser, User
from django.http import HttpRequest
from hypothesis import given
from hypothesis import strategies as st
from pytest_django import Settings

from pikku_storage.access.actors import Actor
from pikku_storage.access.ownership import (
    Ownership,
    assert_run_owner,
    owns_resource,
    principals,
    resolve_owner_resource_id,
)
from pikku_storage.exceptions import ForbiddenError, WorkflowRunForbiddenError
from tests.data.vectors import load


class Wire:
    """A run, as the vectors have it."""

    def __init__(self, wire: dict[str, Any] | None) -> None:
        self.owner_id = (wire or {}).get("pikkuUserId")


@pytest.mark.parametrize("vector", load("approval")["runOwnership"])
def test_who_may_read_a_run_is_what_the_vectors_say(vector: dict[str, Any]) -> None:
    user_id = (vector["session"] or {}).get("userId")
    expected = vector["result"]
    if expected["ok"]:
        assert_run_owner(Wire(vector["wire"]), user_id)
        return
    with pytest.raises(WorkflowRunForbiddenError) as raised:
        assert_run_owner(Wire(vector["wire"]), user_id)
    assert (type(raised.value).__name__, str(raised.value)) == (expected["errorName"], expected["errorMessage"])


@pytest.mark.parametrize("vector", load("thread-ownership")["canAccess"])
def test_who_owns_a_thread_is_what_the_vectors_say(vector: dict[str, Any]) -> None:
    session = vector["session"]
    assert owns_resource(vector["resourceId"], session) is vector["allowed"]
    assert list(principals(session)) == vector["owners"]


@pytest.mark.parametrize("vector", load("thread-ownership")["compose"])
@pytest.mark.contract("OW-06", "OW-07")
def test_where_new_threads_are_kept_is_what_the_vectors_say(vector: dict[str, Any]) -> None:
    def resolve() -> str:
        return resolve_owner_resource_id(vector["requested"], vector["session"], session_scope=vector["sessionScope"])

    expected = vector["result"]
    if expected["ok"]:
        assert resolve() == expected["value"]
        return
    with pytest.raises(ForbiddenError) as raised:
        resolve()
    assert (type(raised.value).__name__, str(raised.value)) == (expected["errorName"], expected["errorMessage"])


@pytest.mark.contract("OW-04", "OW-05")
def test_who_is_not_signed_in_owns_what_the_same_request_began() -> None:
    one, other = HttpRequest(), HttpRequest()
    first = resolve_owner_resource_id("ada", None, request=one)
    assert first.startswith("anon-")
    assert resolve_owner_resource_id("eve", None, request=one) == first
    owners = {first, *(resolve_owner_resource_id("ada", None, request=other) for _ in range(2))}
    owners |= {resolve_owner_resource_id("ada", None) for _ in range(2)}
    assert len(owners) == 4


@pytest.mark.parametrize("nobody", [None, "", Actor(), AnonymousUser(), {}, {"userId": ""}, {"userId": None}])
def test_nobody_owns_nothing(nobody: Any) -> None:
    assert principals(nobody) == ()
    for resource_id in ("", ":", ":x", "anon-1", None, "None", "ada"):
        assert not owns_resource(resource_id, nobody)


def test_what_begins_alike_is_somebody_elses() -> None:
    for resource_id in ("adab", "ada;", "ada", "ad", "Ada:x", "ada%", "ada_x", " ada", "ada:x"):
        assert owns_resource(resource_id, "ada") is (resource_id in {"ada", "ada:x"})


ids = st.text(alphabet="ab:;%_", max_size=4)


@given(st.lists(ids), st.one_of(st.none(), st.lists(ids)), ids)
def test_what_is_asked_for_narrows_and_never_widens(own: list[str], asked: list[str] | None, resource_id: str) -> None:
    mine = Ownership.given(own)
    narrowed = mine.narrowed(asked)
    assert narrowed.covers(resource_id) is (
        mine.covers(resource_id) and (asked is None or Ownership.given(asked).covers(resource_id))
    )


@pytest.mark.parametrize(
    ("scopes", "unrestricted"),
    [
        (["admin"], True),
        (["admin:*"], True),
        (["*"], True),
        (["admin:users"], False),
        (["pikku"], False),
        (["pikku:console:agents:read"], False),
        ([], False),
    ],
)
def test_admins_see_everything_where_they_may(scopes: list[str], unrestricted: bool) -> None:
    session = {"userId": "root", "scopes": scopes}
    assert Ownership.of(session, admins=True).covers("ada") is unrestricted
    assert not Ownership.of(session).covers("ada")


def test_the_organisation_of_a_user_is_what_the_project_says(settings: Settings) -> None:
    user = User(pk=7, username="ada")
    assert principals(user) == ("7",)
    settings.PIKKU_STORAGE = {**settings.PIKKU_STORAGE, "USER_ORGANISATION": f"{__name__}.organisation_of"}
    assert principals(user) == ("7", "org-of-ada")


def organisation_of(user: User) -> str:
    return f"org-of-{user.username}"
