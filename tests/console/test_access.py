"""Scopes, roles and grants in the console: what is shown, changed and refused."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.admin.utils import quote
from django.contrib.auth.models import User
from django.contrib.messages import get_messages
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from console.access.choice import Choice
from console.access.tree import choices, covering, in_order, minimal
from pikku_storage.access.declarations import DeclaredRole
from pikku_storage.access.models import Role, Scope, UserRole, UserScope
from pikku_storage.access.records import ScopeRecord
from pikku_storage.access.service import ScopeService
from pikku_storage.audit.models import AuditEntry
from tests.console.conftest import client_of, context_of, staff_with

pytestmark = pytest.mark.django_db

MANAGE = "admin:scopes:manage"
SHOP = ["shop", "shop:orders", "shop:orders:read", "shop:stock", "billing", MANAGE]
service = ScopeService()


@pytest.fixture
def shop() -> None:
    """Scopes of a shop, and one that code declared once."""
    for name in SHOP:
        Scope.objects.get_or_create(name=name, defaults={"declared": True, "description": f"All of {name}"})
    Scope.objects.create(name="shop:old", declared=False)


def url(view: str, pk: str = "", model: str = "role") -> str:
    return reverse(f"admin:pikku_access_{model}_{view}", args=[quote(pk)] if pk else [])


def page(response: Any, status: int = 200) -> str:
    assert response.status_code == status
    text: str = response.content.decode()
    return text


def send(
    client: Client, user: User | str, before: dict[str, list[str]], after: dict[str, list[str]], **more: Any
) -> Any:
    """Send the page that gives and takes: what it showed and what is ticked, by `role` and `scope`."""
    user_id = user if isinstance(user, str) else str(user.pk)
    data = {"had_role": before.get("role", []), "had": before.get("scope", []), **after, **more}
    return client.post(url("grants", user_id, "userrole"), data, follow=True)


def rescope(client: Client, role: str, before: list[str], after: list[str], **more: Any) -> Any:
    return client.post(url("scopes", role), {"had": before, "scope": after, **more}, follow=True)


def scopes_of(role: str) -> list[str]:
    return next(list(record.scopes) for record in service.list_roles() if record.name == role)


def said(response: Any) -> list[str]:
    return [str(message) for message in get_messages(response.wsgi_request)]


def trail() -> list[tuple[str, str | None, str | None, Any]]:
    rows = AuditEntry.objects.order_by("occurred_at", "audit_id")
    return [(row.type, row.outcome, row.user_id, json.loads(row.data or "{}")) for row in rows]


# -- the tree --------------------------------------------------------------------------------------------------------


def test_what_a_tree_shows() -> None:
    """As the contract has it: console.md §7."""
    names = ["shop", "shop:orders", "shop:orders:read", "shop-two", "old", "older", "bill"]
    records = [ScopeRecord(name=name, description=None, declared=not name.startswith("old")) for name in names]
    assert [each.name for each in in_order(records)] == sorted(names, key=lambda name: name.split(":"))
    nodes = choices(records, {"shop:orders", "old"}, ["shop", "old"], why_not_held="no")
    shown = {node.name: (node.depth, node.is_chosen, node.covered_by, node.lock) for node in nodes}
    assert shown == {
        "shop": (0, False, "", ""),
        "shop:orders": (1, True, "", ""),
        # A child under a granted parent is shown as chosen, and locked.
        "shop:orders:read": (2, False, "shop:orders", ""),
        "shop-two": (0, False, "", "no"),
        "bill": (0, False, "", "no"),
        # What is not declared cannot be given anew, and can be taken away.
        "old": (0, True, "", ""),
    }


@pytest.mark.parametrize(
    ("chosen", "left"),
    [
        (["shop", "shop:orders"], {"shop"}),
        (["shop:orders", "shop:orders:read", "bill"], {"shop:orders", "bill"}),
        (["admin", "admin:*", "admin:users"], {"admin"}),
        (["*", "!x", "a"], {"*"}),
        (["shop", "shop-two"], {"shop", "shop-two"}),
        ([], set()),
    ],
)
def test_what_others_bring_along_is_dropped(chosen: list[str], left: set[str]) -> None:
    assert minimal(chosen) == left
    for scope in set(chosen) - left:
        assert covering(scope, left)


@pytest.mark.parametrize(
    ("had", "chosen", "added", "removed"),
    [
        (["shop:orders"], ["shop:orders", "shop"], ["shop"], ["shop:orders"]),
        ([], ["shop:orders", "shop"], ["shop"], []),
        # What was so before stays so, as long as nothing broader is chosen anew.
        (["shop", "shop:orders"], ["shop", "shop:orders"], [], []),
        (["shop", "shop:orders"], ["shop:orders", "bill"], ["bill"], ["shop"]),
        ([], ["admin", "admin:*"], ["admin"], []),
    ],
)
def test_what_a_choice_changes(had: list[str], chosen: list[str], added: list[str], removed: list[str]) -> None:
    choice = Choice.of_scopes(had, chosen)
    assert (choice.added, choice.removed) == (added, removed)


# -- scopes ----------------------------------------------------------------------------------------------------------


def test_the_tree_of_scopes(shop: None, root_client: Client) -> None:
    olga = User.objects.create_user("olga")
    service.create_role("clerks", ["shop:orders"])
    service.add_scope_to_user(olga, "shop", granted_by="root")
    text = page(root_client.get(url("changelist", model="scope")))
    assert "All of shop:orders:read" in text
    assert "1 scope is stored that code declares no more." in text
    shown = context_of(root_client.get(url("changelist", model="scope")))["scopes"]
    counts = {scope.name: (depth, roles, users) for scope, depth, roles, users, _url in shown}
    assert counts["shop:orders"] == (1, 1, 0)
    assert counts["shop"] == (0, 0, 1)
    # Whoever holds what is above it holds it.
    one = page(root_client.get(url("change", "shop:orders:read", "scope")))
    assert re.search(r"clerks</a></td><td><code>shop:orders</code>", one)
    assert re.search(r"olga</a></td><td><code>shop</code>", one)


def test_pruning_scopes(shop: None, superuser: User, root_client: Client) -> None:
    olga = User.objects.create_user("olga")
    Scope.objects.filter(name="shop:old").update(declared=True)
    service.create_role("clerks", ["shop:old", "shop"])
    service.add_scope_to_user(olga, "shop:old")
    Scope.objects.filter(name="shop:old").update(declared=False)
    asked = page(root_client.get(url("prune", model="scope")))
    assert "clerks; 1 user directly" in asked
    assert Scope.objects.filter(name="shop:old").exists()
    response = root_client.post(url("prune", model="scope"), follow=True)
    assert said(response) == ["1 scope is deleted."]
    assert not Scope.objects.filter(name="shop:old").exists()
    assert (scopes_of("clerks"), service.list_user_scopes(olga)) == (["shop"], [])
    assert LogEntry.objects.get().object_id == "shop:old"
    assert "There is nothing that code declares no more." in page(root_client.get(url("prune", model="scope")))


# -- roles -----------------------------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_the_life_of_a_role(shop: None, superuser: User, root_client: Client) -> None:
    data = {"name": "clerks", "description": "They sell", "scope": ["shop:orders:read", "shop:stock"]}
    response = root_client.post(url("add"), data, follow=True)
    assert response.redirect_chain[-1][0] == url("change", "clerks")
    assert scopes_of("clerks") == ["shop:orders:read", "shop:stock"]
    assert "They sell" in page(root_client.get(url("changelist")))

    # Granting a parent drops what it brings along.
    response = rescope(root_client, "clerks", ["shop:orders:read", "shop:stock"], ["shop", "shop:orders:read"])
    assert said(response)[-1] == "1 added, 2 taken away."
    assert scopes_of("clerks") == ["shop"]
    # Somebody else has added one since the page was shown; it stays.
    service.set_role_scopes("clerks", ["shop", "billing"])
    rescope(root_client, "clerks", ["shop"], ["shop:stock"])
    assert scopes_of("clerks") == ["billing", "shop:stock"]
    assert said(rescope(root_client, "clerks", ["shop:stock"], ["shop:stock"]))[-1] == "Nothing was changed."

    olga = User.objects.create_user("olga")
    service.add_user_to_role(olga, "clerks")
    assert "It is taken from 1 user." in page(root_client.get(url("delete", "clerks")))
    root_client.post(url("delete", "clerks"))
    assert service.list_roles() == []
    assert service.list_user_roles(olga) == []
    told = [(kind, data) for kind, outcome, by, data in trail() if by == str(superuser.pk) and outcome == "success"]
    assert told == [
        ("access.role.created", {"role": "clerks", "scopes": ["shop:orders:read", "shop:stock"]}),
        ("access.role.rescoped", {"role": "clerks", "scopes": ["shop"]}),
        ("access.role.rescoped", {"role": "clerks", "scopes": ["billing", "shop:stock"]}),
        ("access.role.deleted", {"role": "clerks"}),
    ]
    assert list(LogEntry.objects.order_by("pk").values_list("action_flag", "change_message")) == [
        (1, "+shop:orders:read +shop:stock"),
        (2, "+shop -shop:orders:read -shop:stock"),
        (2, "+shop:stock -shop"),
        (3, ""),
    ]


@pytest.mark.parametrize("name", ["there", "a:b", "n" * 256, ""])
def test_a_role_that_cannot_be_made(shop: None, root_client: Client, name: str) -> None:
    service.create_role("there", ["shop"])
    text = page(root_client.post(url("add"), {"name": name, "scope": ["billing"]}))
    assert "pk-is-failed" in text or "errorlist" in text
    # What was chosen is still chosen.
    assert re.search(r'value="billing" checked', text)
    assert scopes_of("there") == ["shop"]
    assert Role.objects.count() == 1


@pytest.mark.parametrize("scope", ["shop:old", "nobody:declares", "*"])
def test_what_is_not_declared_is_not_given(shop: None, root_client: Client, scope: str) -> None:
    service.create_role("clerks", ["shop"])
    olga = User.objects.create_user("olga")
    assert "pk-is-failed" in page(rescope(root_client, "clerks", ["shop"], ["shop", scope]))
    page(send(root_client, olga, {}, {"scope": [scope]}))
    assert (scopes_of("clerks"), service.list_user_scopes(olga)) == (["shop"], [])


def test_what_is_not_declared_any_more_can_be_taken(shop: None, root_client: Client) -> None:
    Scope.objects.filter(name="shop:old").update(declared=True)
    olga = User.objects.create_user("olga")
    service.create_role("clerks", ["shop:old", "billing"])
    service.add_scope_to_user(olga, "shop:old")
    Scope.objects.filter(name="shop:old").update(declared=False)
    assert "shop:old" in page(root_client.get(url("scopes", "clerks")))
    rescope(root_client, "clerks", ["billing", "shop:old"], ["billing", "shop:stock", "shop:old"])
    assert scopes_of("clerks") == ["billing", "shop:old", "shop:stock"]
    rescope(root_client, "clerks", ["billing", "shop:old"], ["billing"])
    send(root_client, olga, {"scope": ["shop:old"]}, {})
    assert (scopes_of("clerks"), service.list_user_scopes(olga)) == (["billing", "shop:stock"], [])


def test_system_roles_are_locked(shop: None, root_client: Client) -> None:
    service.sync_system_roles([DeclaredRole("boss", frozenset({"shop"})), DeclaredRole("gone", frozenset({"shop"}))])
    service.sync_system_roles([DeclaredRole("boss", frozenset({"shop"}))])
    olga = User.objects.create_user("olga")
    service.add_user_to_role(olga, "gone")
    assert "code declares it, in a scopes.py" in page(root_client.get(url("change", "boss")))
    for name in ("boss", "gone"):
        assert f'href="{url("scopes", name)}"' not in page(root_client.get(url("change", name)))
        page(rescope(root_client, name, ["shop"], ["billing"]))
        page(root_client.post(url("delete", name)))
        assert scopes_of(name) == ["shop"]
    assert "1 user" in page(root_client.get(url("prune")))
    assert said(root_client.post(url("prune"), follow=True))[-1] == "1 role is deleted."
    assert [role.name for role in service.list_roles()] == ["boss"]
    assert service.list_user_roles(olga) == []


# -- grants ----------------------------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_giving_and_taking(shop: None, superuser: User, root_client: Client) -> None:
    olga = User.objects.create_user("olga")
    service.create_role("clerks", ["shop:orders"])
    response = send(root_client, olga, {}, {"role": ["clerks"], "scope": ["billing"]})
    assert said(response)[-1] == "2 given, 0 taken away."
    grants = service.list_user_grants(olga)
    assert [(grant.kind, grant.name, grant.granted_by) for grant in grants] == [
        ("role", "clerks", str(superuser.pk)),
        ("scope", "billing", str(superuser.pk)),
    ]
    text = page(root_client.get(url("change", str(olga.pk), "userrole")))
    assert len(re.findall(r"</td><td>root</td><td><time[^>]*>[^<]+</time>", text)) == 2
    # What it comes to, and by which way.
    assert re.search(r"<code>shop:orders</code></a></td><td[^>]*>clerks</td>", text)
    assert re.search(r"<code>billing</code></a></td><td[^>]*>directly</td>", text)

    # What somebody else has given since the page was shown stays.
    service.add_scope_to_user(olga, "shop:stock")
    response = send(root_client, olga, {"role": ["clerks"], "scope": ["billing"]}, {"scope": ["billing"]})
    assert said(response)[-1] == "0 given, 1 taken away."
    assert service.resolve_scopes(olga) == ["billing", "shop:stock"]
    told = [(kind, by) for kind, _outcome, by, _data in trail() if by is not None]
    assert sorted(told) == [
        ("access.role.granted", str(superuser.pk)),
        ("access.role.revoked", str(superuser.pk)),
        ("access.scope.granted", str(superuser.pk)),
    ]
    assert [entry.change_message for entry in LogEntry.objects.order_by("pk")] == ["+clerks +billing", "-clerks"]


def test_users_are_found(shop: None, root_client: Client) -> None:
    olga, oleg = User.objects.create_user("olga"), User.objects.create_user("oleg")
    service.add_scope_to_user(oleg, "shop")
    service.add_scope_to_user("of another system", "shop")

    def found(**query: str) -> list[str]:
        return [grantee.user_id for _name, grantee, _url in context_of(root_client.get(list_url, query))["users"]]

    list_url = url("changelist", model="userrole")
    assert found() == sorted([str(oleg.pk), "of another system"])
    assert found(q="ol") == [str(oleg.pk), str(olga.pk)]
    assert found(q=str(olga.pk)) == [str(olga.pk)]
    assert found(q="of another system") == ["of another system"]
    assert found(q="nobody") == []
    assert "No user of this project has this id." in page(
        root_client.get(url("change", "of another system", "userrole"))
    )


def test_a_text_that_only_reads_as_an_id_is_nobody(shop: None, root_client: Client) -> None:
    olga = User.objects.create_user("olga")
    for other in (f"0{olga.pk}", f" {olga.pk}"):
        page(send(root_client, other, {}, {"scope": ["shop"]}), 404)
    assert not UserScope.objects.exists()


def test_users_are_paged(shop: None, root_client: Client) -> None:
    service.create_role("clerks", ["shop"])
    ids = [f"user {number:03d}" for number in range(120)]
    for number, user_id in enumerate(ids):
        if number % 3:
            service.add_user_to_role(user_id, "clerks")
        if number % 2 or not number % 3:
            service.add_scope_to_user(user_id, "shop:stock")
    seen, address = [], url("changelist", model="userrole")
    while address:
        context = context_of(root_client.get(address))
        seen += [grantee.user_id for _name, grantee, _url in context["users"]]
        address = context["next_url"] and url("changelist", model="userrole") + context["next_url"]
    assert seen == ids


@pytest.mark.parametrize("name", ["a/b_c%", "<b>'\"&", "🔑", "x~y"])
def test_hostile_names(root_client: Client, name: str) -> None:
    Scope.objects.create(name=f"s:{name}", description=f"<i>{name}", declared=True)
    service.create_role(name, [f"s:{name}"], description=f"<i>{name}")
    service.add_user_to_role(name, name, granted_by=name)
    service.add_scope_to_user(name, f"s:{name}", granted_by=name)
    for model, pk in (("scope", f"s:{name}"), ("role", name), ("userrole", name)):
        listed = page(root_client.get(url("changelist", model=model)))
        assert f"<i>{name}" not in listed
        assert f'href="{html.escape(url("change", pk, model))}"' in listed
        shown = page(root_client.get(url("change", pk, model)))
        assert f"<i>{name}" not in shown
        assert html.escape(name) in shown
    for view, model in (("scopes", "role"), ("delete", "role"), ("grants", "userrole")):
        assert html.escape(name) in page(root_client.get(url(view, name, model)))
    send(root_client, name, {"role": [name], "scope": [f"s:{name}"]}, {"role": [name]})
    assert service.list_user_scopes(name) == []
    assert service.list_user_roles(name) == [name]


def test_no_page_costs_more_for_more_rows(shop: None, root_client: Client) -> None:
    def fill(numbers: range) -> None:
        for number in numbers:
            user = User.objects.create_user(f"user {number}")
            Scope.objects.create(name=f"shop:s{number}", declared=True)
            service.create_role(f"role {number}", ["shop", f"shop:s{number}"])
            for role in ("role 0", f"role {number}"):
                service.add_user_to_role(user, role, granted_by=user)
                service.add_user_to_role("somebody", f"role {number}", granted_by=user)
            service.add_scope_to_user(user, "shop", granted_by=user)

    addresses = [
        *(url("changelist", model=model) for model in ("scope", "role", "userrole")),
        url("change", "shop", "scope"),
        url("change", "role 0"),
        url("scopes", "role 0"),
        url("change", "somebody", "userrole"),
        url("grants", "somebody", "userrole"),
    ]

    def counts() -> list[int]:
        counted = []
        for address in addresses:
            with CaptureQueriesContext(connection) as captured:
                assert len(root_client.get(address).content) < 300_000
            counted.append(len(captured))
        return counted

    fill(range(3))
    few = counts()
    fill(range(3, 40))
    assert counts() == few


# -- who may hand on what --------------------------------------------------------------------------------------------


@pytest.fixture
def manager(shop: None) -> User:
    """Manages scopes, and holds what concerns orders."""
    return staff_with(MANAGE, "shop:orders", name="manager")


@pytest.fixture
def client(manager: User) -> Client:
    """The manager's browser."""
    return client_of(manager)


def held() -> dict[str, Any]:
    """Everything that is granted."""
    return {
        "roles": [(role.name, role.scopes) for role in service.list_roles()],
        "users": sorted(UserRole.objects.values_list("user_id", "role_id")),
        "scopes": sorted(UserScope.objects.values_list("user_id", "scope_id")),
    }


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("what", "event"),
    [
        ("give a scope", "access.scope.granted"),
        ("give a broader scope", "access.scope.granted"),
        ("give everything", "access.scope.granted"),
        ("give a role", "access.scope.granted"),
        ("give oneself", "access.scope.granted"),
        ("give oneself a role", "access.scope.granted"),
        ("take a scope", "access.scope.revoked"),
        ("take a role", "access.scope.revoked"),
        ("add to a role", "access.role.rescoped"),
        ("take from a role", "access.role.rescoped"),
        ("add to one's own role", "access.role.rescoped"),
        ("make a role", "access.role.created"),
        ("delete a role", "access.role.deleted"),
        ("prune", "access.scope.pruned"),
    ],
)
def test_nobody_hands_on_more_than_they_hold(client: Client, manager: User, what: str, event: str) -> None:
    olga = User.objects.create_user("olga")
    service.create_role("accounts", ["billing", "shop:orders:read"])
    service.create_role("clerks", ["shop:orders:read"])
    service.create_role("mine", ["shop:orders"])
    service.add_user_to_role(manager, "mine")
    service.add_user_to_role(olga, "accounts")
    service.add_scope_to_user(olga, "billing")
    before = held()
    has = {"role": ["accounts"], "scope": ["billing"]}
    mine = {"role": ["mine"], "scope": [MANAGE, "shop:orders"]}
    attempts: dict[str, Callable[[], Any]] = {
        "give a scope": lambda: send(client, olga, has, {**has, "scope": ["billing", "shop:stock"]}),
        "give a broader scope": lambda: send(client, olga, has, {**has, "scope": ["billing", "shop"]}),
        "give everything": lambda: send(client, olga, has, {**has, "scope": ["billing", "*"]}),
        "give a role": lambda: (
            send(client, "somebody else", {}, {"role": ["accounts"]})
            if service.add_scope_to_user("somebody else", "shop:orders")
            else None
        ),
        "give oneself": lambda: send(client, manager, mine, {**mine, "scope": [*mine["scope"], "shop:orders:read"]}),
        "give oneself a role": lambda: send(client, manager, mine, {**mine, "role": ["mine", "clerks"]}),
        "take a scope": lambda: send(client, olga, has, {"role": ["accounts"]}),
        "take a role": lambda: send(client, olga, has, {"scope": ["billing"]}),
        "add to a role": lambda: rescope(client, "clerks", ["shop:orders:read"], ["shop:orders:read", "billing"]),
        "take from a role": lambda: rescope(client, "accounts", ["billing", "shop:orders:read"], ["shop:orders:read"]),
        "add to one's own role": lambda: rescope(client, "mine", ["shop:orders"], ["shop:orders", MANAGE]),
        "make a role": lambda: client.post(url("add"), {"name": "new", "scope": ["billing"]}),
        "delete a role": lambda: client.post(url("delete", "accounts")),
        "prune": lambda: client.post(url("prune", model="scope")),
    }
    text = page(attempts[what]())
    assert re.search(r"You do not hold|Nobody gives anything to themselves|You have this role yourself", text)
    after = held()
    after["scopes"] = [grant for grant in after["scopes"] if grant[0] != "somebody else"]
    assert after == before
    refused = [(kind, by) for kind, outcome, by, _data in trail() if outcome == "denied"]
    assert refused == [(event, str(manager.pk))]
    assert not LogEntry.objects.exists()


def test_what_one_holds_may_be_handed_on(client: Client, manager: User) -> None:
    olga = User.objects.create_user("olga")
    service.create_role("accounts", ["billing", "shop:orders:read"])
    service.add_scope_to_user(olga, "billing")
    send(client, olga, {"scope": ["billing"]}, {"scope": ["billing", "shop:orders:read", MANAGE]})
    assert service.list_user_scopes(olga) == [MANAGE, "billing", "shop:orders:read"]
    client.post(url("add"), {"name": "clerks", "scope": ["shop:orders"]})
    # The other one's stays, although it is not sent.
    rescope(client, "accounts", ["billing", "shop:orders:read"], ["billing"])
    assert (scopes_of("clerks"), scopes_of("accounts")) == (["shop:orders"], ["billing"])
    # The pages show what is out of reach as locked, and send what is chosen and locked all the same.
    text = page(client.get(url("grants", str(olga.pk), "userrole")))
    assert re.search(r'value="billing" checked disabled data-lock', text)
    assert '<input type="hidden" name="scope" value="billing">' in text
    assert re.search(r'name="role" value="accounts" disabled', text)
    assert re.search(r'name="role" value="clerks">', text)


def test_whoever_only_reads_changes_nothing(shop: None) -> None:
    reader = client_of(staff_with("admin:scopes:read", name="reader"))
    service.create_role("clerks", ["shop"])
    olga = User.objects.create_user("olga")
    before = held()
    for address in (
        url("add"),
        url("scopes", "clerks"),
        url("delete", "clerks"),
        url("prune"),
        url("prune", "", "scope"),
    ):
        page(reader.post(address, {"name": "new", "scope": ["billing"]}), 403)
    page(send(reader, olga, {}, {"scope": ["billing"]}), 403)
    assert held() == before


@pytest.mark.parametrize("way", ["scope", "role", "rescope", "delete"])
def test_one_locks_oneself_out_only_knowingly(shop: None, way: str) -> None:
    caretaker = staff_with(name="caretaker")
    client = client_of(caretaker)
    service.create_role("caretakers", [MANAGE, "billing"])
    if way == "scope":
        service.add_scope_to_user(caretaker, MANAGE)
    else:
        service.add_user_to_role(caretaker, "caretakers")

    def attempt(**more: Any) -> Any:
        if way == "scope":
            return send(client, caretaker, {"scope": [MANAGE]}, {}, **more)
        if way == "role":
            return send(client, caretaker, {"role": ["caretakers"]}, {}, **more)
        if way == "rescope":
            return rescope(client, "caretakers", [MANAGE, "billing"], ["billing"], **more)
        return client.post(url("delete", "caretakers"), more)

    assert "You would not manage scopes any more." in page(attempt())
    assert MANAGE in service.resolve_scopes(caretaker)
    attempt(sure="1")
    assert MANAGE not in service.resolve_scopes(caretaker)


def test_there_is_no_warning_while_another_way_is_left(shop: None) -> None:
    caretaker = staff_with(MANAGE, name="caretaker")
    service.create_role("caretakers", [MANAGE])
    service.add_user_to_role(caretaker, "caretakers")
    send(client_of(caretaker), caretaker, {"role": ["caretakers"], "scope": [MANAGE]}, {"role": ["caretakers"]})
    assert service.list_user_scopes(caretaker) == []
