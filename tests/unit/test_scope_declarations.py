"""Scopes and roles that code declares."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth import get_user_model
from hypothesis import given
from hypothesis import strategies as st

from pikku_storage.access import builtin  # noqa: F401 - declares what the next test looks for
from pikku_storage.access.actors import scopes_of
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
    wrong: Any
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
        {"a": ""},
        [("a", "\ud800")],
        {"a": ({}, {})},
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
    for backends in (["django.contrib.auth.backends.ModelBackend"], []):
        settings.AUTHENTICATION_BACKENDS = backends
        assert [message.id for message in check_backend()] == ["pikku.W201"]


def test_without_the_app_only_superusers_hold_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    user = get_user_model()(pk=7)
    monkeypatch.setattr(apps, "is_installed", lambda name: False)
    assert scopes_of(user) == ()
    monkeypatch.undo()
    monkeypatch.setattr(apps, "models_ready", False)
    assert scopes_of(user) == ()
    user.is_superuser = True
    assert scopes_of(user) == ("*",)


def test_what_definitions_need_is_imported_before_the_apps_are_ready() -> None:
    modules = "acting, actors, declarations, held, permissions, records, scopes"
    command = [sys.executable, "-c", f"from pikku_storage.access import {modules}; import pikku_storage.workflows"]
    subprocess.run(command, check=True, timeout=60, env={**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings"})


parts = st.text("ab-_. é", min_size=1, max_size=3)
trees: Any = st.recursive(
    st.none() | st.text("ab é", min_size=1, max_size=3),
    lambda below: st.dictionaries(parts, below, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(parts, trees, max_size=3))
def test_every_scope_of_a_tree_has_its_ancestors(tree: Any) -> None:
    found = names(tree)
    assert len(found) == len(set(found))
    assert all(name.rpartition(":")[0] in {*found, ""} for name in found)
