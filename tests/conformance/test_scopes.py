"""Scopes, roles and grants: what is declared, who holds what, and what becomes of what is declared no more."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from io import StringIO
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth import get_user_model
from django.contrib.auth.models import AnonymousUser
from django.core.management import CommandError, call_command

from pikku_storage.access.actors import Actor, actor_of, scopes_of
from pikku_storage.access.checks import check_shadowed_roles
from pikku_storage.access.declarations import DeclaredRole, declarations
from pikku_storage.access.models import Role, RoleScope, Scope, UserRole, UserScope, UserSession
from pikku_storage.access.records import Changes, RoleRecord, ScopeRecord, StaleRole, StaleScope
from pikku_storage.access.service import ScopeService
from pikku_storage.access.sessions import SessionStore
from pikku_storage.auditing import AuditEvent
from pikku_storage.exceptions import (
    PayloadError,
    RoleExistsError,
    RoleNotFoundError,
    ScopeDeclarationError,
    ScopeNotFoundError,
    SystemRoleImmutableError,
    SystemRoleShadowedError,
    WorkflowApprovalForbiddenError,
    WorkflowInputError,
)
from pikku_storage.workflows import workflow
from pikku_storage.workflows.flow import Flow
from tests.conformance.failing import failing
from tests.conformance.support import DATABASE, connection, data_statements

pytestmark = pytest.mark.django_db(transaction=True)

Counter = Callable[[], Any]
User = get_user_model()


@pytest.fixture
def scopes(db: None) -> ScopeService:
    """Four declared scopes: `shop`, `shop:read`, `shop:refund`, and `stock`."""
    service = ScopeService()
    service.sync_scopes([("shop", "All of it"), "shop:read", {"name": "shop:refund"}, "stock"])
    return service


@pytest.fixture
def roles(scopes: ScopeService) -> ScopeService:
    """And two roles that share one: `clerk` and `cashier`."""
    scopes.create_role("clerk", ["shop:read", "stock"])
    scopes.create_role("cashier", ["shop:read", "shop:refund"], description="Pays back")
    return scopes


@pytest.fixture
def declared() -> Iterator[None]:
    """What code declares, to be changed by the test."""
    scopes, roles, problems = dict(declarations.scopes), dict(declarations.roles), list(declarations.problems)
    yield
    declarations.scopes, declarations.roles, declarations.problems = scopes, roles, problems


def names(service: ScopeService, *, declared: bool = True) -> list[str]:
    return [scope.name for scope in service.list_scopes() if scope.declared is declared]


def role(service: ScopeService, name: str) -> RoleRecord | None:
    return next((each for each in service.list_roles() if each.name == name), None)


# -- the vocabulary ----------------------------------------------------------------------------------------------------


@pytest.mark.contract("SP-01", "SP-02", "SP-03", "SP-06", "SP-07", "SP-08")
def test_the_vocabulary_follows_what_is_declared(db: None) -> None:
    service = ScopeService()
    assert service.sync_scopes([("b", "Bee"), "a"]) == Changes(added=("a", "b"))
    assert service.sync_scopes([("b", "Bee"), "a"]) == Changes()
    assert service.sync_scopes(["a", ("b", "Bees"), "c"], dry_run=True) == Changes(added=("c",), changed=("b",))
    assert names(service) == ["a", "b"]
    service.sync_scopes(["a", ("b", "Bees"), "c"])
    service.sync_scopes([("b", "Bees")])
    assert service.list_scopes() == [
        ScopeRecord(name="a", description=None, declared=False),
        ScopeRecord(name="b", description="Bees", declared=True),
        ScopeRecord(name="c", description=None, declared=False),
    ]
    assert service.sync_scopes(["a"]) == Changes(changed=("a",), undeclared=("b",))
    with pytest.raises(ScopeDeclarationError):
        service.sync_scopes(["a:*"])


@pytest.mark.contract("SP-04", "SP-05")
def test_what_is_undeclared_stays_and_so_do_its_grants(roles: ScopeService) -> None:
    roles.add_scope_to_user("ada", "shop")
    roles.add_user_to_role("ada", "clerk")
    roles.sync_scopes(["stock"])
    assert names(roles, declared=False) == ["shop", "shop:read", "shop:refund"]
    assert roles.resolve_scopes("ada") == ["shop", "shop:read", "stock"]
    # It is no news that somebody has it.
    assert roles.add_scope_to_user("ada", "shop") is False
    roles.set_role_scopes("clerk", ["shop:read"])
    assert roles.resolve_scopes("ada") == ["shop", "shop:read"]


# -- roles -------------------------------------------------------------------------------------------------------------


@pytest.mark.contract("SP-09", "SP-11", "SP-12", "SP-21")
def test_a_role_is_made_changed_and_deleted(scopes: ScopeService, statements: Counter) -> None:
    scopes.create_role("clerk", ["stock", "shop:read"], description="Answers the phone")
    found = role(scopes, "clerk")
    assert found is not None
    assert (found.scopes, found.description) == (("shop:read", "stock"), "Answers the phone")
    assert (found.system, found.declared) == (False, True)
    with pytest.raises(RoleExistsError):
        scopes.create_role("clerk")
    with pytest.raises(ScopeDeclarationError):
        scopes.create_role("a:b")

    scopes.set_role_scopes("clerk", ["stock", "shop"])
    assert [each.scopes for each in scopes.list_roles()] == [("shop", "stock")]
    scopes.create_role("other", ["stock"])
    with statements() as seen:
        scopes.list_roles()
    assert len(data_statements(seen)) == 2

    scopes.add_user_to_role("ada", "clerk")
    assert scopes.delete_role("clerk") is True
    assert scopes.delete_role("clerk") is False
    assert list(RoleScope.objects.values_list("role_id", flat=True)) == ["other"]
    assert not UserRole.objects.exists()
    assert scopes.resolve_scopes("ada") == []
    with pytest.raises(RoleNotFoundError):
        scopes.set_role_scopes("clerk", ["stock"])


@pytest.mark.contract("SP-10", "SP-20", "SP-29")
def test_only_what_is_declared_is_given(roles: ScopeService) -> None:
    roles.sync_scopes(["shop:read", "shop:refund", "stock"])
    for undeclared in ("nothing", "shop"):
        for give in (
            lambda name=undeclared: roles.create_role("new", [name]),
            lambda name=undeclared: roles.set_role_scopes("clerk", ["stock", name]),
            lambda name=undeclared: roles.add_scope_to_user("ada", name),
        ):
            with pytest.raises(ScopeNotFoundError, match=undeclared):
                give()
    with pytest.raises(RoleNotFoundError, match="nobody"):
        roles.add_user_to_role("ada", "nobody")
    assert role(roles, "new") is None
    assert [each.scopes for each in roles.list_roles()] == [("shop:read", "shop:refund"), ("shop:read", "stock")]
    assert roles.resolve_scopes("ada") == []


@pytest.mark.contract("SK-20")
def test_roles_of_the_code_are_changed_there_only(roles: ScopeService, declared: None) -> None:
    declarations.add_role(DeclaredRole("declared-only", frozenset()))
    system = DeclaredRole("keeper", frozenset(["stock"]), "Counts")
    assert roles.sync_system_roles([system]) == Changes(added=("keeper",))
    assert roles.sync_system_roles([system]) == Changes()
    roles.add_user_to_role("ada", "keeper")

    for undeclared in (False, True):
        if undeclared:
            assert roles.sync_system_roles([]) == Changes(undeclared=("keeper",))
        for operation, change in (
            ("delete", lambda: roles.delete_role("keeper")),
            ("re-scope", lambda: async_to_sync(roles.aset_role_scopes)("keeper", [])),
        ):
            with pytest.raises(SystemRoleImmutableError, match="declared in code") as caught:
                change()
            assert (caught.value.operation, caught.value.http_status) == (operation, 409)
        with pytest.raises(SystemRoleShadowedError) as shadowed:
            roles.create_role("keeper")
        assert shadowed.value.http_status == 409
    with pytest.raises(SystemRoleShadowedError):
        roles.create_role("declared-only")
    assert roles.resolve_scopes("ada") == ["stock"], "undeclared roles still count"

    # Administrators' own are left alone, unless the code takes their name.
    assert roles.sync_system_roles([DeclaredRole("clerk", frozenset(["shop"]))]) == Changes(changed=("clerk",))
    cashier, clerk, keeper = roles.list_roles()
    assert (clerk.scopes, clerk.system, clerk.declared) == (("shop",), True, True)
    assert (cashier.scopes, cashier.system, keeper.declared) == (("shop:read", "shop:refund"), False, False)
    with pytest.raises(ScopeNotFoundError):
        roles.sync_system_roles([DeclaredRole("broken", frozenset(["nothing"]))])
    assert roles.delete_role("cashier")


# -- users -------------------------------------------------------------------------------------------------------------


@pytest.mark.contract("SP-13", "SP-14", "SP-15", "SP-16", "SP-17", "SP-18", "SP-23", "SP-24", "SP-25", "SP-26")
@pytest.mark.contract("SP-27", "SP-28")
def test_a_user_holds_what_roles_and_grants_give(roles: ScopeService, statements: Counter) -> None:
    assert roles.resolve_scopes("ada") == []
    assert roles.add_user_to_role("ada", "clerk") is True
    assert roles.resolve_scopes("ada") == ["shop:read", "stock"]
    assert roles.add_user_to_role("ada", "cashier") is True
    assert roles.add_user_to_role("ada", "cashier") is False
    assert roles.resolve_scopes("ada") == ["shop:read", "shop:refund", "stock"]
    assert roles.add_scope_to_user("ada", "shop") is True
    assert roles.add_scope_to_user("ada", "shop:read") is True
    assert roles.add_scope_to_user("ada", "shop:read") is False
    roles.add_scope_to_user("bob", "stock")
    assert roles.list_user_scopes("ada") == ["shop", "shop:read"]
    assert roles.list_user_roles("ada") == ["cashier", "clerk"]
    assert UserRole.objects.count() == 2
    assert UserScope.objects.count() == 3
    with statements() as seen:
        assert roles.resolve_scopes("ada") == ["shop", "shop:read", "shop:refund", "stock"]
    assert len(data_statements(seen)) == (3 if connection.vendor == "mongodb" else 2)

    assert roles.remove_scope_from_user("ada", "shop:read") is True
    assert roles.remove_scope_from_user("ada", "shop:read") is False
    assert roles.resolve_scopes("ada") == ["shop", "shop:read", "shop:refund", "stock"]
    assert roles.remove_user_from_role("ada", "cashier") is True
    assert roles.remove_user_from_role("ada", "cashier") is False
    assert roles.resolve_scopes("ada") == ["shop", "shop:read", "stock"]
    assert roles.resolve_scopes("bob") == ["stock"]


@pytest.mark.contract("SP-19", "SP-30")
def test_who_granted_is_recorded_and_audited(roles: ScopeService, audited: list[AuditEvent]) -> None:
    roles.add_user_to_role(7, "clerk", granted_by=Actor(user_id="root"))
    roles.add_scope_to_user("7", "stock", "root")
    roles.add_scope_to_user("7", "stock", "somebody else")
    roles.add_scope_to_user("7", "shop", AnonymousUser())
    given = {grant.name: (grant.kind, grant.granted_by) for grant in roles.list_user_grants("7")}
    assert given == {"clerk": ("role", "root"), "shop": ("scope", None), "stock": ("scope", "root")}
    assert all(grant.granted_at for grant in roles.list_user_grants("7"))
    roles.remove_user_from_role("7", "clerk", by="root")
    roles.remove_user_from_role("7", "clerk", by="root")
    roles.set_role_scopes("clerk", ["stock"], by="root")
    roles.delete_role("clerk", by="root")
    assert [(event.type, event.actor.user_id, dict(event.metadata)) for event in audited] == [
        ("access.role.granted", "root", {"userId": "7", "role": "clerk"}),
        ("access.scope.granted", "root", {"userId": "7", "scope": "stock"}),
        ("access.scope.granted", None, {"userId": "7", "scope": "shop"}),
        ("access.role.revoked", "root", {"userId": "7", "role": "clerk"}),
        ("access.role.rescoped", "root", {"role": "clerk", "scopes": ["stock"]}),
        ("access.role.deleted", "root", {"role": "clerk"}),
    ]


@pytest.mark.contract("SP-22", "SP-31")
def test_a_deleted_user_has_nothing_left(roles: ScopeService) -> None:
    ada, bob = (User.objects.create_user(name) for name in ("ada", "bob"))
    for user in (ada, bob):
        roles.add_user_to_role(user, "clerk")
        roles.add_scope_to_user(user, "shop")
        SessionStore().set(user, {"theme": "dark"})
    their = str(ada.pk)
    ada.delete()
    assert roles.resolve_scopes(their) == []
    assert roles.list_user_grants(their) == []
    assert SessionStore().get(their) is None
    assert roles.resolve_scopes(bob) == ["shop", "shop:read", "stock"]
    assert roles.revoke_user(bob) == 3
    assert roles.revoke_user(bob) == 0
    assert not UserSession.objects.exists()
    with pytest.raises(PayloadError):
        roles.revoke_user("")
    with pytest.raises(WorkflowInputError):
        roles.resolve_scopes(AnonymousUser())


# -- pruning -----------------------------------------------------------------------------------------------------------


@pytest.mark.contract("SP-32", "SP-33", "SP-34", "SP-35", "SP-36", "SP-37")
def test_what_is_stale_is_reported_and_pruned(roles: ScopeService) -> None:
    assert roles.find_stale_scopes() == []
    assert roles.prune_scopes() == []
    roles.add_scope_to_user("ada", "shop")
    roles.add_scope_to_user("ada", "stock")
    roles.sync_scopes(["stock"])
    assert roles.find_stale_scopes() == [
        StaleScope(scope="shop", roles=()),
        StaleScope(scope="shop:read", roles=("cashier", "clerk")),
        StaleScope(scope="shop:refund", roles=("cashier",)),
    ]
    assert roles.prune_scopes() == ["shop", "shop:read", "shop:refund"]
    assert roles.prune_scopes() == []
    assert names(roles) == ["stock"]
    assert names(roles, declared=False) == []
    assert roles.resolve_scopes("ada") == ["stock"]
    assert [each.scopes for each in roles.list_roles()] == [(), ("stock",)]

    roles.sync_system_roles([DeclaredRole("keeper", frozenset(["stock"])), DeclaredRole("guard", frozenset())])
    for user in ("ada", "bob"):
        roles.add_user_to_role(user, "keeper")
    assert roles.find_stale_system_roles() == []
    roles.sync_system_roles([])
    assert roles.find_stale_system_roles() == [StaleRole(role="guard", users=0), StaleRole(role="keeper", users=2)]
    assert roles.prune_system_roles() == ["guard", "keeper"]
    assert [each.name for each in roles.list_roles()] == ["cashier", "clerk"]
    assert not UserRole.objects.exists()


@pytest.mark.contract("SP-38")
def test_what_is_declared_again_meanwhile_is_not_pruned(roles: ScopeService, monkeypatch: pytest.MonkeyPatch) -> None:
    roles.add_scope_to_user("ada", "shop")
    roles.sync_scopes(["stock"])
    rows = type(roles._scopes)
    remove = rows.remove

    def late(self: Any, name: str, *args: Any, **options: Any) -> bool:
        if name == "shop":
            ScopeService().sync_scopes(["shop", "stock"])
        return remove(self, name, *args, **options)

    monkeypatch.setattr(rows, "remove", late)
    assert roles.prune_scopes() == ["shop:read", "shop:refund"]
    assert names(roles) == ["shop", "stock"]
    assert roles.list_user_scopes("ada") == ["shop"]


def cut_off(statement: int, remove: Callable[[], Any]) -> bool:
    """Whether the removal had a statement of that number, at which the database failed."""
    with failing(statement, "refused") as broken:
        remove()
    return broken.reached is not None


def in_the_middle() -> set[str]:
    """What is marked as being removed."""
    found = (
        set(model.objects.filter(removing_at__isnull=False).values_list("name", flat=True)) for model in (Role, Scope)
    )
    return set.union(*found)


@pytest.mark.parametrize("then", ["asking again", "writing anew"])
def test_a_removal_that_is_cut_off_is_finished_by_whoever_comes_next(scopes: ScopeService, then: str) -> None:
    seen = set()
    scopes.sync_scopes(["stock"])
    scopes.prune_scopes()
    for statement in itertools.count(1):
        scopes.sync_scopes(["shop", "stock"])
        scopes.create_role("clerk", ["shop", "stock"])
        scopes.add_scope_to_user("ada", "shop")
        scopes.add_user_to_role("ada", "clerk")
        scopes.sync_scopes(["stock"])
        cuts = [cut_off(statement, remove) for remove in (scopes.prune_scopes, lambda: scopes.delete_role("clerk"))]
        if not any(cuts):
            break
        seen |= (middle := in_the_middle())
        if "shop" in middle:
            with pytest.raises(ScopeNotFoundError):
                scopes.add_scope_to_user("bob", "shop")
        if "clerk" in middle:
            with pytest.raises(RoleNotFoundError):
                scopes.add_user_to_role("bob", "clerk")
        if then == "asking again":
            scopes.delete_role("clerk")
            scopes.prune_scopes()
            assert names(scopes) == ["stock"]
            assert scopes.list_roles() == []
            assert not any(model.objects.exists() for model in (RoleScope, UserRole, UserScope))
        else:
            # What was not begun with is as it was.
            kept = ["shop"] if "shop" in names(scopes, declared=False) else []
            has_role = role(scopes, "clerk") is not None
            scopes.sync_scopes(["shop", "stock"])
            if not has_role:
                scopes.create_role("clerk", ["stock"])
            assert scopes.list_user_scopes("ada") == kept
            assert scopes.list_user_roles("ada") == (["clerk"] if has_role else [])
            scopes.revoke_user("ada")
            scopes.delete_role("clerk")
        assert in_the_middle() == set()
    # Elsewhere it is undone.
    assert seen == ({"shop", "clerk"} if connection.vendor == "mongodb" else set())


# -- the command -------------------------------------------------------------------------------------------------------


def run_command(*arguments: str) -> tuple[int, str]:
    out = StringIO()
    try:
        call_command("sync_scopes", *arguments, stdout=out)
    except SystemExit as error:
        return int(str(error.code)), out.getvalue()
    return 0, out.getvalue()


def test_the_command_brings_the_database_into_step(roles: ScopeService, declared: None) -> None:
    declarations.scopes, declarations.roles = {}, {}
    declarations.add_scopes({"shop": ("Everything", {"read": "See"})}, ["new"])
    declarations.add_role(DeclaredRole("keeper", frozenset(["new"])))

    code, text = run_command("--dry-run")
    assert code == 1
    assert "+ new" in text
    assert "~ shop\n" in text
    assert "- stock is not declared any more" in text
    assert names(roles) == ["shop", "shop:read", "shop:refund", "stock"]

    assert run_command("--database", DATABASE)[0] == 0
    code, text = run_command()
    assert code == 0
    assert "Scopes are in step with the code." in text
    assert "shop:refund (in cashier), stock (in clerk)" in text
    assert run_command("--dry-run", "--prune")[0] == 1
    assert run_command("--dry-run")[0] == 0

    declarations.roles = {}
    roles.add_user_to_role("ada", "keeper")
    assert "keeper (1 user)" in run_command()[1]
    code, text = run_command("--prune", "--json")
    report = json.loads(text)
    assert code == 0
    assert report["ok"]
    assert (report["scopes"]["pruned"], report["roles"]["pruned"]) == (["shop:refund", "stock"], ["keeper"])
    assert report["scopes"]["stale"] == report["roles"]["stale"] == []
    assert names(roles) == ["new", "shop", "shop:read"]

    declarations.add_role(DeclaredRole("broken", frozenset(["nothing"])))
    with pytest.raises(CommandError, match="nothing") as caught:
        run_command()
    assert caught.value.returncode == 2


def test_a_role_that_code_and_an_administrator_have_made_is_reported(roles: ScopeService, declared: None) -> None:
    declarations.add_role(DeclaredRole("clerk", frozenset()))
    (warning,) = check_shadowed_roles(databases=[DATABASE])
    assert (warning.id, "clerk" in warning.msg) == ("pikku.W202", True)
    assert check_shadowed_roles(databases=[]) == []


# -- Django's permissions ----------------------------------------------------------------------------------------------


def test_django_asks_for_scopes_as_for_permissions(roles: ScopeService, statements: Counter) -> None:
    ada = User.objects.create_user("ada")
    roles.add_scope_to_user(ada, "shop")
    roles.add_user_to_role(ada, "clerk")
    with statements() as seen:
        assert ada.has_perm("pikku.shop:orders:refund")
        assert ada.has_perm("pikku.stock")
        assert not ada.has_perm("pikku.stocks")
        assert async_to_sync(ada.ahas_perm)("pikku.shop")
        assert scopes_of(ada) == ("shop", "shop:read", "stock")
        assert actor_of(ada) == Actor(user_id=str(ada.pk), scopes=("shop", "shop:read", "stock"))
    read = [text for text in data_statements(seen) if "pikku_" in text]
    assert len(read) == (3 if connection.vendor == "mongodb" else 2), "once for each user object"
    assert not ada.has_perm("pikku.shop", obj=ada), "as ModelBackend: no object has scopes of its own"
    assert not ada.has_perm("auth.view_user")
    assert "pikku.stock" in ada.get_all_permissions()

    roles.add_scope_to_user(ada, "shop:refund")
    assert scopes_of(User.objects.get(pk=ada.pk)) == ("shop", "shop:read", "shop:refund", "stock")
    gone = User.objects.create_user("gone", is_active=False, is_superuser=True)
    roles.add_scope_to_user(gone, "shop")
    for nobody in (gone, AnonymousUser(), User(), None, "ada"):
        assert scopes_of(nobody) == ()
    assert not gone.has_perm("pikku.shop")
    assert not AnonymousUser().has_perm("pikku.shop")
    root = User.objects.create_superuser("root")
    assert scopes_of(root) == ("*",)
    assert root.has_perm("pikku.anything:at:all")


def test_an_ordinary_user_answers_an_approval_by_a_grant(roles: ScopeService, no_broker: None) -> None:
    @workflow
    def release(flow: Flow) -> Any:
        return flow.approval("release", approver_scope="shop:refund").data

    run = release.start()
    ada = User.objects.create_user("ada")
    with pytest.raises(WorkflowApprovalForbiddenError, match="shop:refund"):
        run.approve("release", "yes", by=ada)
    roles.add_user_to_role(ada, "cashier")
    run.approve("release", "yes", by=User.objects.get(pk=ada.pk))
    assert run.output == "yes"
