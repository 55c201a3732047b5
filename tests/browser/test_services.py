"""Webhooks, the audit trail, channels, deployments and virtual users in a browser."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.utils import quote

from pikku_storage.audit.models import AuditEntry
from pikku_storage.channels.service import ChannelStore, EventHubStore
from pikku_storage.deployments.models import Deployment
from pikku_storage.virtual_users.records import VirtualUserStep
from pikku_storage.virtual_users.service import VirtualUserRunStore
from pikku_storage.webhooks.models import WebhookDelivery, WebhookDeliveryAttempt
from tests.console.stories import now

pytestmark = [pytest.mark.django_db(transaction=True)]

LOOKS = [("wide", "light"), ("wide", "dark"), ("narrow", "light"), ("narrow", "dark")]
DELIVERIES = "/admin/pikku_webhooks/webhookdelivery/"
BODY = {
    "order": {"id": "A-1734", "total_cents": 5980, "currency": "EUR", "items": ["teapot", "strainer"]},
    "customer": {"id": "c-81", "is_returning": True},
    "shipped_at": "2026-11-30T10:12:44Z",
}


def webhooks() -> str:
    """A few deliveries; answers with the id of one that failed."""
    at = now()
    for index in range(14):
        status = ("delivered", "pending", "failed", "delivered")[index % 4]
        created = at - timedelta(minutes=index * 7, seconds=40)
        delivery = WebhookDelivery(
            delivery_id=f"0197c2e4-7b1a-7c51-9d0e-52a1c3f0a9{index:02d}",
            url="https://hooks.acme.example/shop/orders?token=s3cret",
            event=("order.shipped", "order.paid", "stock.low")[index % 3],
            organization_id="acme",
            status=status,
            attempts={"delivered": 1, "pending": 2, "failed": 4}[status],
            max_attempts=4,
            retries=3,
            retry_delay="exponential",
            created_at=created,
            updated_at=created + timedelta(seconds=20),
            next_attempt_at=at + timedelta(seconds=95) if status == "pending" else None,
            secret_name="acme-webhooks",
            headers={"X-Shop": "kettle & co", "Authorization": "Bearer s3cret", "X-Api-Key": "s3cret"},
            body=json.dumps(BODY),
        )
        WebhookDelivery.objects.bulk_create([delivery])
        WebhookDeliveryAttempt._default_manager.bulk_create(
            WebhookDeliveryAttempt(
                attempt_id=f"{delivery.pk}-{number}",
                delivery=delivery,
                attempt_number=number,
                status_code=200 if status == "delivered" else None if number == 2 else 503,
                error="no answer within 10000 ms" if number == 2 else None,
                response_body=None if number == 2 or status == "delivered" else "<h1>503 Service Unavailable</h1>\n",
                duration_ms=10_000 if number == 2 else 143 + number,
                created_at=created + timedelta(seconds=number * 5),
            )
            for number in range(1, delivery.attempts + 1)
        )
    return "0197c2e4-7b1a-7c51-9d0e-52a1c3f0a902"


def fits(page: Any) -> bool:
    """Whether the page scrolls in one direction only."""
    return bool(page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth"))


@pytest.mark.parametrize(("width", "scheme"), LOOKS)
def test_sending_a_webhook_again(
    viewer: Callable[..., Any], picture: Callable[..., Any], width: str, scheme: str
) -> None:
    failed = webhooks()
    page = viewer(width, scheme)
    page.goto(DELIVERIES)
    page.locator(".pk-tab.pk-is-failed").click()
    page.wait_for_url("**status=failed*")
    assert page.locator("#result_list tbody tr").count() == 3
    picture(page, f"webhooks-{width}-{scheme}", full_page=True)
    page.goto(f"{DELIVERIES}{quote(failed)}/change/")
    page.get_by_text("It has failed: the receiver answered with 503").wait_for()
    assert "s3cret" not in page.content()
    assert fits(page)
    is_documented = (width, scheme) == ("wide", "light")
    name = "webhook-delivery" if is_documented else f"webhook-delivery-{width}-{scheme}"
    picture(page, name, documented=is_documented, full_page=True)
    page.get_by_role("button", name="Copy the id").click()
    page.get_by_text("copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == failed
    page.locator("[data-copy-url]").click()
    page.locator("[data-copy-url]", has_text="copied").wait_for()
    assert json.loads(page.evaluate("navigator.clipboard.readText()")) == BODY
    page.get_by_role("link", name="Send again").click()
    page.get_by_label("Reason").fill("they are back")
    page.get_by_role("button", name="Send again").click()
    page.get_by_text("is sent again").wait_for()
    assert WebhookDelivery.objects.get(pk=failed).status == "pending"


@pytest.mark.parametrize(("width", "scheme"), LOOKS)
def test_following_the_audit_trail(
    viewer: Callable[..., Any], picture: Callable[..., Any], width: str, scheme: str
) -> None:
    at = now()
    types = ("workflow.approval.decided", "secret.written", "webhook.replayed", "access.role.granted", "channel.closed")
    AuditEntry.objects.bulk_create(
        AuditEntry(
            audit_id=f"a{index:03d}",
            occurred_at=at - timedelta(minutes=index * 13),
            type=types[index % 5],
            source="explicit",
            outcome=("success", "success", "denied", "success", "failed", None)[index % 6],
            user_id=("alice", None, "bob")[index % 3],
            pikku_user_id="telegram:81" if index % 6 == 1 else None,
            wire_type=("workflow", "secrets", "webhooks", "access", "channel")[index % 5],
            data=json.dumps({"runId": f"run-{index}", "reason": "sign it", "scopes": ["orders:approve"]}),
        )
        for index in range(40)
    )
    page = viewer(width, scheme)
    page.goto("/admin/pikku_audit/auditentry/")
    picture(page, f"audit-{width}-{scheme}", full_page=True)
    page.get_by_role("link", name="bob").first.click()
    page.wait_for_url("**?user=bob")
    assert page.locator("#result_list tbody tr").count() == 13
    with page.expect_download() as download:
        page.get_by_role("link", name="CSV").click()
    assert download.value.path().read_text().count("\n") == 14
    page.locator("#result_list .field-what a").first.click()
    page.get_by_text("orders:approve").wait_for()
    assert fits(page)
    picture(page, f"audit-event-{width}-{scheme}", full_page=True)


@pytest.mark.parametrize(("width", "scheme"), [LOOKS[0], LOOKS[3]])
def test_closing_a_channel_and_looking_at_the_others(
    viewer: Callable[..., Any], picture: Callable[..., Any], width: str, scheme: str
) -> None:
    for index in range(5):
        ChannelStore().add_channel(f"channel {index}", "websocket", {"path": "/live/"}, holder="server-1")
        for topic in ("news", f"orders/{index}"):
            EventHubStore().subscribe(topic, f"channel {index}")
    Deployment.objects.put("web-1", "https://shop.example/rpc", ["charge_card", "print_label"], at=now())
    Deployment.objects.put("web-0", "https://shop.example/rpc", ["charge_card"], at=now() - timedelta(minutes=2))
    run = VirtualUserRunStore().start("Grace", "careless", 7, goals=["buy a teapot"])
    steps = [
        VirtualUserStep(step_index=index, action={"click": f"button {index}"}, status=200, ok=True, tokens_in=9)
        for index in range(4)
    ]
    VirtualUserRunStore().complete(run, steps=steps, stopped_by="goal reached")

    page = viewer(width, scheme)
    for name, url in (
        ("channels", "/admin/pikku_channels/channel/"),
        ("deployments", "/admin/pikku_deployments/deployment/"),
        ("functions", "/admin/pikku_deployments/deployment/functions/"),
        ("virtual-users", "/admin/pikku_virtual_users/virtualuserrun/"),
        ("virtual-user", f"/admin/pikku_virtual_users/virtualuserrun/{run}/change/"),
    ):
        page.goto(url)
        assert page.locator(".pk-table, #result_list").count() > 0
        picture(page, f"{name}-{width}-{scheme}", full_page=True)
    page.goto("/admin/pikku_channels/channel/")
    page.locator("#result_list .field-name a").first.click()
    page.get_by_role("cell", name="news").wait_for()
    picture(page, f"channel-{width}-{scheme}", full_page=True)
    page.get_by_role("link", name="Close").click()
    picture(page, f"channel-close-{width}-{scheme}", full_page=True)
    page.get_by_role("button", name="Close").click()
    page.get_by_text("is closed.").wait_for()
    page.locator(".pk-pill.pk-is-closing").wait_for()
