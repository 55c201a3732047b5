"""Scopes, roles and grants as somebody meets them who sits before the console."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User

from pikku_storage.access.declarations import DeclaredRole
from pikku_storage.access.models import Scope
from pikku_storage.access.service import ScopeService

pytestmark = [pytest.mark.django_db(transaction=True)]
Viewer = Callable[..., Any]
Picture = Callable[..., Any]

ROOM = "/admin/pikku_access/"
SIZES = [("wide", "light"), ("wide", "dark"), ("narrow", "light"), ("narrow", "dark")]


def scrolls_sideways(page: Any) -> bool:
    """Whether the page is wider than the window."""
    wider: bool = page.evaluate("document.documentElement.scrollWidth > window.innerWidth + 1")
    return wider


def shop() -> User:
    """A shop with a few roles, and somebody who works there."""
    service = ScopeService()
    service.sync_scopes(
        [
            ("shop", "All of the shop"),
            ("shop:orders", "Orders"),
            ("shop:orders:read", "See orders"),
            ("shop:orders:refund", "Pay money back"),
            ("shop:stock", "Count what is there"),
            ("admin", "All of the administration, and what others own"),
            ("admin:secrets", "Secrets"),
            ("admin:secrets:read", "See names and keys"),
            ("admin:secrets:reveal", "Reveal values"),
        ]
    )
    service.sync_system_roles([DeclaredRole("shop-clerk", frozenset({"shop:orders:read", "shop:stock"}), "The phone")])
    Scope.objects.create(name="shop:fax", declared=False, description="Send a fax")
    service.create_role("night-shift", ["shop:orders"], description="From ten to six")
    olga = User.objects.create_user("olga", is_staff=True)
    root = User.objects.create_superuser("root")
    service.add_user_to_role(olga, "shop-clerk", granted_by=root)
    service.add_scope_to_user(olga, "admin:secrets:read", granted_by=root)
    return olga


def tab_to(page: Any, selector: str) -> None:
    """Press Tab until the focus is there."""
    for _ in range(120):
        page.keyboard.press("Tab")
        if page.evaluate("(selector) => document.activeElement.matches(selector)", selector):
            outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
            assert outline != "none", f"the focus on {selector} cannot be seen"
            return
    raise AssertionError(f"no Tab leads to {selector}")


def test_granting_and_revoking_by_keyboard_alone(viewer: Viewer) -> None:
    olga = shop()
    service = ScopeService()
    page = viewer()
    page.goto(f"{ROOM}userrole/")
    tab_to(page, "#searchbar")
    page.keyboard.type("olg")
    page.keyboard.press("Enter")
    page.wait_for_url("**q=olg*")
    tab_to(page, f'a[href$="/userrole/{olga.pk}/change/"]')
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="olga").wait_for()

    tab_to(page, 'a[href$="/grants/"]')
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Grants of olga").wait_for()
    tab_to(page, 'input[value="shop:orders"]')
    page.keyboard.press("Space")
    # What it brings along is shown at once, and locked.
    below = page.locator('input[value="shop:orders:refund"]')
    assert (below.is_checked(), below.is_disabled()) == (True, True)
    page.get_by_text("comes with shop:orders").first.wait_for()
    assert not page.locator('input[value="shop:stock"]').is_checked()
    tab_to(page, "button.pk-is-primary")
    page.keyboard.press("Enter")
    page.get_by_text("1 given, 0 taken away.").wait_for()
    assert service.list_user_scopes(olga) == ["admin:secrets:read", "shop:orders"]

    tab_to(page, 'a[href$="/grants/"]')
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Grants of olga").wait_for()
    tab_to(page, 'input[value="shop:orders"]')
    page.keyboard.press("Space")
    assert (below.is_checked(), below.is_disabled()) == (False, False)
    tab_to(page, "button.pk-is-primary")
    page.keyboard.press("Enter")
    page.get_by_text("0 given, 1 taken away.").wait_for()
    assert service.list_user_scopes(olga) == ["admin:secrets:read"]


def test_a_role_without_a_script(viewer: Viewer) -> None:
    shop()
    page = viewer(javascript=False)
    page.goto(f"{ROOM}role/add/")
    page.locator("#id_name").fill("accounts")
    page.locator('input[value="shop:orders:refund"]').check()
    page.locator('input[value="shop:orders"]').check()
    page.get_by_role("button", name="Save").click()
    page.get_by_text("The role accounts is made.").wait_for()
    page.get_by_role("link", name="Change its scopes").click()
    assert page.locator('input[value="shop:orders:refund"]').is_disabled()
    assert [role.scopes for role in ScopeService().list_roles() if role.name == "accounts"] == [("shop:orders",)]


@pytest.mark.parametrize(("width", "scheme"), SIZES)
def test_every_page_on_every_screen(viewer: Viewer, picture: Picture, width: str, scheme: str) -> None:
    olga = shop()
    page = viewer(width, scheme)
    pages = {
        "scopes": "scope/",
        "scope": f"scope/{'shop:orders:read'.replace(':', '_3A')}/change/",
        "prune": "scope/prune/",
        "roles": "role/",
        "role": "role/night-shift/change/",
        "system-role": "role/shop-clerk/change/",
        "role-scopes": "role/night-shift/scopes/",
        "users": "userrole/",
        "user": f"userrole/{olga.pk}/change/",
        "grants": f"userrole/{olga.pk}/grants/",
    }
    for name, address in pages.items():
        response = page.goto(f"{ROOM}{address}")
        assert response.status == 200
        assert not scrolls_sideways(page), name
        picture(page, f"access-{name}-{width}-{scheme}", full_page=True)
        if (name, width, scheme) == ("role-scopes", "wide", "light"):
            assert picture(page, "roles", documented=True).stat().st_size > 10_000
