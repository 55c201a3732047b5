"""Scopes and roles that code declares."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pikku_storage.access import builtin  # noqa: F401 - declares what the next test looks for
from pikku_storage.access.checks import check_backend, check_declarations
from pikku_storage.access.declarations import (
    Declarations,
    DeclaredRole,
    DeclaredScope,
    declarations,
    declare_role,
    flatten,
)
from pikku_storage.exceptions import ScopeDeclarationError

TREE = {"shop": ("All", {"orders": {"read": "See", "refund": None}, "stock": "Count"})}


def names(*declared: Any) -> list[str]:
    return [scope.name for scope in flatten(*declared)]


@pytest.mark.contract("SK-17")
def test_a_tree_is_flattened() -> None:
    assert names({"shop": "All"}) == ["shop"]
    assert flatten(TREE) == [
        DeclaredScope("shop", "All"),
        DeclaredScope("shop:orders"),
        DeclaredScope("shop:orders:read", "See"),
        DeclaredScope("shop:orders:refund"),
        DeclaredScope("shop:stock", "Count"),
    ]
    assert names({"a": None, "b": {}}, {"c": {"d": None}}) == ["a", "b", "c", "c:d"]
    assert names(TREE, TREE, ["shop"]) == names(TREE)
    assert flatten({"a": "first"}, [("a", "second")]) == [DeclaredScope("a", "first")]
    assert flatten(["a"], {"a": "first"}) == [DeclaredScope("a", "first")]
    assert names(["a:b", ("c", "See"), {"name": "d", "description": None}, DeclaredScope("e")]) == [
        "a:b",
        "c",
        "d",
        "e",
    ]


@pytest.mark.contract("SK-18")
def test_what_cannot_be_declared_is_refused() -> None:
    for wrong in (
        {"a:b": None},
        {"a": {"b:c": None}},
        {"*": None},
        {"a": {"*": None}},
        ["*"],
        ["a:*"],
        ["a::b"],
        [":a"],
        [""],
        {"": None},
        ["x" * 256],
        ["a\x00"],
        [("a", "b", "c")],
        [None],
        {"a": 1},
        {"a": ("text", "text")},
    ):
        with pytest.raises(ScopeDeclarationError):
            flatten(wrong)

    known = Declarations()
    known.add_scopes(TREE)
    known.add_scopes(TREE, ["shop", ("shop:orders", "Orders")])
    assert known.scopes["shop:orders"].description == "Orders"
    known.verify()
    known.add_scopes({"shop": "Another"})
    assert known.scopes["shop"].description == "All"
    with pytest.raises(ScopeDeclarationError, match="'All' and as 'Another'"):
        known.verify()


@pytest.mark.contract("SK-19")
def test_roles_are_declared_once() -> None:
    known = Declarations()
    known.add_scopes(["a", "b"])
    known.add_role(DeclaredRole("clerk", frozenset(["a", "b"])))
    known.add_role(DeclaredRole("clerk", frozenset(["b", "a"])))
    assert known.roles.keys() == {"clerk"}
    known.verify()
    known.verify()
    known.add_role(DeclaredRole("clerk", frozenset(["a"])))
    assert known.roles["clerk"].scopes == {"a", "b"}
    with pytest.raises(ScopeDeclarationError, match="clerk"):
        known.verify()
    for wrong in ("a:b", "", "x" * 256):
        with pytest.raises(ScopeDeclarationError):
            DeclaredRole(wrong, frozenset())
    with pytest.raises(ScopeDeclarationError, match="list of scopes"):
        declare_role("clerk", "a")


def test_the_checks_tell_what_does_not_fit(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    assert check_backend() == check_declarations() == []
    assert {"pikku:console:workflows:manage", "admin:scopes:manage", "admin"} <= declarations.scopes.keys()
    monkeypatch.setattr(declarations, "problems", ["The scope 'a' …"])
    monkeypatch.setattr(declarations, "roles", {"clerk": DeclaredRole("clerk", frozenset(["nothing"]))})
    assert [message.id for message in check_declarations()] == ["pikku.E201", "pikku.E202"]
    settings.AUTHENTICATION_BACKENDS = ["django.contrib.auth.backends.ModelBackend"]
    assert [message.id for message in check_backend()] == ["pikku.W201"]


parts = st.text("ab-_. é", min_size=1, max_size=3)
trees: Any = st.recursive(
    st.none() | st.text(max_size=3), lambda below: st.dictionaries(parts, below, max_size=3), max_leaves=8
)


@given(st.dictionaries(parts, trees, max_size=3))
def test_every_scope_of_a_tree_has_its_ancestors(tree: Any) -> None:
    found = names(tree)
    assert len(found) == len(set(found))
    assert all(name.rpartition(":")[0] in {*found, ""} for name in found)
