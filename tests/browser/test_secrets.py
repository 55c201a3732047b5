"""Secrets as somebody meets them who sits before the console."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User

from pikku_storage.secrets.credentials import CredentialService
from pikku_storage.secrets.service import SecretService

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("known_salt")]
Viewer = Callable[..., Any]
Picture = Callable[..., Any]

SECRETS = "/admin/pikku_secrets/secret/"
SIZES = [("wide", "light"), ("wide", "dark"), ("narrow", "light"), ("narrow", "dark")]


def scrolls_sideways(page: Any) -> bool:
    """Whether the page is wider than the window."""
    wider: bool = page.evaluate("document.documentElement.scrollWidth > window.innerWidth + 1")
    return wider


def shop(use_keys: Callable[..., None]) -> None:
    """The secrets of a shop, in the middle of a rotation."""
    secrets = SecretService(audit=True)
    for name in ("mail/smtp", "maps.api-key", "payments.stripe.live", "warehouse.sftp"):
        secrets.set_secret(name, {"key": "sk_live_51H8"})
    use_keys(2)
    for name in ("payments.stripe.test", "search.typesense", "sms.gateway"):
        secrets.set_secret(name, "sk_test_51H8")


def test_setting_and_revealing(viewer: Viewer) -> None:
    page = viewer()
    page.goto(SECRETS)
    page.get_by_text("There are no secrets yet.").wait_for()
    page.get_by_role("link", name="Add secret").click()
    page.get_by_label("Name").fill("payments.stripe")
    value = page.locator("#id_value")
    value.fill("sk_live_51H8\nline two")
    covered = "(field) => getComputedStyle(field).webkitTextSecurity"
    assert value.evaluate(covered) == "disc"
    page.get_by_label("Show what I type").check()
    assert value.evaluate(covered) == "none"
    page.get_by_role("button", name="Set").click()
    page.get_by_text("payments.stripe is set.").wait_for()
    assert SecretService().get_secret("payments.stripe") == "sk_live_51H8\nline two"

    page.get_by_role("link", name="Reveal").click()
    page.get_by_label("Reason").fill("the shop is down")
    page.get_by_role("button", name="Reveal").click()
    shown = page.locator("#pk-secret")
    page.get_by_role("button", name="Copy").click()
    page.get_by_text("copied").wait_for()
    # One copies it without showing it to the room.
    assert not shown.is_visible()
    assert page.evaluate("navigator.clipboard.readText()") == "sk_live_51H8\nline two"
    page.get_by_text("Show the value").click()
    assert shown.inner_text() == "sk_live_51H8\nline two"

    page.get_by_role("link", name="Back to the audit").click()
    row = page.locator(".pk-table tbody tr", has_text="the shop is down")
    assert row.locator("td").all_inner_texts()[1:] == ["ops", "read", "Success", "the shop is down"]
    # The way back leads to nothing that could be read: no browser keeps that page.
    with pytest.raises(Exception, match="ERR_CACHE_MISS"):
        page.go_back()


@pytest.mark.parametrize(("width", "scheme"), SIZES)
def test_every_page_on_every_screen(
    viewer: Viewer, picture: Picture, use_keys: Callable[..., None], width: str, scheme: str
) -> None:
    shop(use_keys)
    olga = User.objects.create_user("olga")
    SecretService(audit=True, audit_reads=True).get_secret("sms.gateway", by=olga, reason="a customer got no code")
    for user in (str(olga.pk), None):
        CredentialService(audit=True).set("github", {"token": "gho_16C7"}, user)
    page = viewer(width, scheme)
    pages = {
        "list": SECRETS,
        "row": f"{SECRETS}sms.gateway/change/",
        "set": f"{SECRETS}sms.gateway/set/",
        "reveal": f"{SECRETS}sms.gateway/reveal/",
        "add": f"{SECRETS}add/",
        "credentials": "/admin/pikku_secrets/credential/",
        "credentials-add": "/admin/pikku_secrets/credential/add/",
    }
    for name, address in pages.items():
        page.goto(address)
        assert not scrolls_sideways(page), name
        picture(page, f"secrets-{name}-{width}-{scheme}", full_page=True)
        if (name, width, scheme) == ("list", "wide", "light"):
            assert picture(page, "secrets", documented=True).stat().st_size > 10_000
    page.goto(f"{SECRETS}sms.gateway/reveal/")
    page.get_by_role("button", name="Reveal").click()
    page.get_by_text("Show the value").click()
    assert not scrolls_sideways(page)
    picture(page, f"secrets-revealed-{width}-{scheme}", full_page=True)
    use_keys(3, SECRET_KEK=None, SECRET_PREVIOUS_KEKS={})
    page.goto(SECRETS)
    page.get_by_text("No key is configured").wait_for()
    assert not scrolls_sideways(page)
    picture(page, f"secrets-keyless-{width}-{scheme}", full_page=True)
