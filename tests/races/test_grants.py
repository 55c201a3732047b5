"""Grants that meet each other, and removals that meet grants and declarations."""

from __future__ import annotations

import pytest

from pikku_storage.access.declarations import DeclaredRole
from pikku_storage.access.models import RoleScope, UserRole, UserScope
from pikku_storage.access.service import ScopeService
from pikku_storage.access.sessions import SessionStore
from pikku_storage.exceptions import RoleNotFoundError, ScopeNotFoundError
from tests.races.together import together

pytestmark = pytest.mark.django_db(transaction=True)

ROUNDS = 8


@pytest.fixture
def scopes(db: None) -> ScopeService:
    service = ScopeService()
    service.sync_scopes(["shop", "stock"])
    service.create_role("clerk", ["shop"])
    return service


def test_one_of_many_grants_is_new(scopes: ScopeService) -> None:
    answers = together(
        *[lambda: scopes.add_scope_to_user("ada", "shop")] * 4, *[lambda: scopes.add_user_to_role("ada", "clerk")] * 4
    )
    assert sorted(answers[:4]) == sorted(answers[4:]) == [False, False, False, True]
    assert UserScope.objects.count() == UserRole.objects.count() == 1
    together(*[lambda number=number: SessionStore().set("ada", {"n": number}) for number in range(4)])
    assert SessionStore().get("ada") in [{"n": number} for number in range(4)]


def test_all_processes_of_a_deployment_may_synchronise_at_once(scopes: ScopeService) -> None:
    wanted = [f"s{number}" for number in range(20)]

    def synchronise() -> None:
        scopes.sync_scopes(wanted)
        scopes.sync_system_roles([DeclaredRole("keeper", frozenset(wanted))])

    together(*[synchronise] * 3)
    assert [scope.name for scope in scopes.list_scopes() if scope.declared] == sorted(wanted)
    assert [role.scopes for role in scopes.list_roles() if role.system] == [tuple(sorted(wanted))]
    assert RoleScope.objects.filter(role="keeper").count() == len(wanted)


@pytest.mark.contract("SP-38")
def test_a_scope_that_is_declared_again_keeps_its_grants_or_has_lost_them_all(scopes: ScopeService) -> None:
    for _ in range(ROUNDS):
        scopes.sync_scopes(["shop", "stock"])
        scopes.add_scope_to_user("ada", "shop")
        scopes.set_role_scopes("clerk", ["shop"])
        scopes.sync_scopes(["stock"])
        pruned, _changes = together(scopes.prune_scopes, lambda: scopes.sync_scopes(["shop", "stock"]))
        assert [scope.name for scope in scopes.list_scopes()] == ["shop", "stock"]
        left = [] if pruned else ["shop"]
        assert scopes.list_user_scopes("ada") == left
        assert [list(role.scopes) for role in scopes.list_roles()] == [left]


def test_no_grant_outlives_what_is_granted(scopes: ScopeService) -> None:
    for number in range(ROUNDS):
        scopes.sync_scopes(["shop", "stock"])
        scopes.create_role(f"role-{number}", ["shop"])

        def grant(role: str = f"role-{number}") -> str:
            try:
                scopes.add_user_to_role("ada", role)
                scopes.add_scope_to_user("ada", "shop")
            except (RoleNotFoundError, ScopeNotFoundError):
                return "refused"
            return "granted"

        def remove(role: str = f"role-{number}") -> None:
            scopes.delete_role(role)
            scopes.sync_scopes(["stock"])
            scopes.prune_scopes()

        together(grant, grant, remove)
        assert scopes.list_user_grants("ada") == []
