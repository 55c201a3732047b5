"""The scope rules (contract services.md §14)."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pikku_storage.access.scopes import has_scopes, verify_scopes
from pikku_storage.exceptions import MissingScopeError
from tests.data.vectors import vectors

parts = st.lists(st.sampled_from(["admin", "users", "list", "a"]), min_size=1, max_size=4).map(":".join)


@pytest.mark.contract("SK-01", "SK-02", "SK-03", "SK-05", "SK-06", "SK-07", "SK-08", "SK-10", "SK-11")
@pytest.mark.parametrize("vector", vectors("scopes"), ids=lambda vector: f"{vector['held']} for {vector['required']}")
def test_a_grant_satisfies_what_the_contract_says(vector: dict[str, Any]) -> None:
    held, required, verified = vector["held"], vector["required"], vector["verify"]

    assert has_scopes(held, required) is vector["hasScopes"]
    if verified["ok"]:
        verify_scopes(held, required)
        return
    with pytest.raises(MissingScopeError) as caught:
        verify_scopes(held, required)
    assert str(caught.value) == verified["errorMessage"]
    assert caught.value.payload == verified["payload"]
    assert caught.value.http_status == 403


@pytest.mark.contract("SK-02", "SK-04", "SK-05", "SK-07")
@pytest.mark.parametrize(
    ("held", "required", "expected"),
    [
        ("a:b:*", "a:b:c:d", True),
        ("a:b:*", "a:b", True),
        ("a:b:*", "a:c", False),
        ("a:b:*", "a", False),
        ("a", "a:b:c", True),
        ("a:b", "a:b:c", True),
        ("a:b", "a:c:b", False),
        ("a:b", "a", False),
        ("a:b", "a:bc", False),
    ],
)
def test_what_lies_beneath_comes_with_a_grant_and_what_lies_beside_does_not(
    held: str, required: str, expected: bool
) -> None:
    assert has_scopes([held], [required]) is expected


@pytest.mark.contract("SK-08")
def test_the_first_missing_scope_is_named() -> None:
    with pytest.raises(MissingScopeError) as caught:
        verify_scopes(["a"], ["a:x", "b", "c"])
    assert caught.value.scope == "b"


@pytest.mark.contract("SK-01", "SK-09", "SK-11")
@pytest.mark.parametrize("held", [None, [], (), set(), {"a:b"}], ids=repr)
def test_who_holds_nothing_or_too_little_has_nothing_that_is_required(held: Any) -> None:
    assert has_scopes(held, [])
    assert not has_scopes(held, ["a"])


@given(parts, parts)
def test_an_ancestor_is_as_good_as_its_wildcard(held: str, required: str) -> None:
    is_ancestor = f"{required}:".startswith(f"{held}:")
    assert has_scopes([held], [required]) is is_ancestor
    assert has_scopes([f"{held}:*"], [required]) is is_ancestor
    assert has_scopes(["*"], [required])
