"""What a function asks of its caller (contract services.md §14)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from hypothesis import given
from hypothesis import strategies as st

from pikku_storage.access.actors import Actor
from pikku_storage.access.permissions import Call, Gate, averify_access, verify_access
from pikku_storage.exceptions import ForbiddenError, MissingScopeError

CALL = Call(session=Actor(user_id="ada", scopes=("shop",)), data={"n": 1}, wire={"type": "http"})


def yes(call: Call) -> bool:
    return True


def no(call: Call) -> bool:
    return False


def passes(permissions: Any, *everywhere: Any, call: Call = CALL) -> bool:
    """Whether the call may go on; the sync and the async form agree about it."""
    gate = Gate(permissions=permissions)
    answers: list[tuple[str, int] | None] = []
    for verify in (verify_access, async_to_sync(averify_access)):
        try:
            verify(gate, call, everywhere=everywhere)
        except ForbiddenError as error:
            answers.append((str(error), error.http_status))
        else:
            answers.append(None)
    assert answers in ([None, None], [("Permission denied", 403)] * 2)
    return answers[0] is None


@pytest.mark.contract("SK-12", "AA-06", "AA-07")
@pytest.mark.parametrize(
    ("permissions", "expected"),
    [
        (None, True),
        ({}, True),
        ([], True),
        (yes, True),
        (no, False),
        ({"a": yes, "b": no}, True),
        ({"a": no, "b": yes}, True),
        ({"a": no, "b": no}, False),
        ({"a": [yes, yes]}, True),
        ({"a": [yes, no]}, False),
        ({"a": [yes, no], "b": yes}, True),
        ([yes, yes], True),
        ([yes, no], False),
    ],
)
def test_any_branch_suffices_and_a_list_needs_all(permissions: Any, expected: bool) -> None:
    assert passes(permissions) is expected


@pytest.mark.contract("SK-13", "SK-14")
def test_what_all_functions_share_must_pass_as_well() -> None:
    assert passes(None, yes)
    assert not passes(None, no)
    assert not passes(None, yes, no)
    assert passes(None, {"a": no, "b": yes}, [yes])
    assert not passes(yes, no), "neither stands in for the other"
    assert not passes(no, yes)
    asked: list[str] = []

    def asking(name: str, *, answer: bool) -> Callable[[Call], bool]:
        def check(call: Call) -> bool:
            asked.append(name)
            return answer

        return check

    with pytest.raises(ForbiddenError):
        verify_access(Gate(permissions=asking("own", answer=True)), CALL, everywhere=[asking("shared", answer=False)])
    assert asked == ["shared"], "and comes first"


@pytest.mark.contract("SK-12", "SK-16", "AA-08")
def test_a_check_is_told_who_calls_with_what() -> None:
    assert passes(lambda call: call.session.user_id == "ada" and call.scopes == ("shop",))
    assert not passes(lambda call: call.session.user_id == "bob")
    assert passes(lambda call: (call.data, call.wire) == ({"n": 1}, {"type": "http"}))
    assert not passes(lambda call: call.session is not None, call=Call())
    assert passes([lambda call: call.session["admin"]], call=Call(session={"admin": True}))


@pytest.mark.contract("AA-01", "AA-02", "AA-04")
def test_a_session_is_needed_only_where_it_is_asked_for() -> None:
    verify_access(Gate(), Call())
    verify_access(Gate(needs_session=True), CALL)
    with pytest.raises(ForbiddenError):
        verify_access(Gate(needs_session=True), Call())


@pytest.mark.contract("AA-05", "AA-09", "AA-10", "AA-11", "AA-12", "SK-09")
def test_scopes_come_before_permissions() -> None:
    verify_access(Gate(scopes=["shop"]), CALL)
    verify_access(Gate(scopes=["shop:refund"], permissions=yes), Call(session={"scopes": ["shop"]}))
    for session in (None, {}, Actor(user_id="bob"), {"scopes": None}, {"scopes": ["shop:refund:small"]}):
        with pytest.raises(MissingScopeError) as caught:
            verify_access(Gate(scopes=["shop:refund"], permissions=no), Call(session=session))
        assert caught.value.scope == "shop:refund"
    with pytest.raises(ForbiddenError):
        verify_access(Gate(scopes=["shop"], permissions=no), CALL)


def test_an_async_check_is_awaited_and_never_taken_for_a_yes() -> None:
    async def never(call: Call) -> bool:
        return False

    with pytest.raises(ForbiddenError):
        async_to_sync(averify_access)(Gate(permissions=never), CALL)
    with pytest.raises(TypeError, match="averify_access"):
        verify_access(Gate(permissions=never), CALL)


answers = st.booleans().map(lambda answer: yes if answer else no)
branches = answers | st.lists(answers, min_size=1, max_size=3)
groups = branches | st.dictionaries(st.text(max_size=2), branches, min_size=1, max_size=3)


def _by_hand(permissions: Any) -> bool:
    if isinstance(permissions, dict):
        return any(map(_by_hand, permissions.values()))
    return all(check is yes for check in permissions) if isinstance(permissions, list) else permissions is yes


@given(groups, st.lists(groups, max_size=2))
def test_it_is_any_of_all_of(group: Any, everywhere: list[Any]) -> None:
    assert passes(group, *everywhere) is all(map(_by_hand, [*everywhere, group]))
