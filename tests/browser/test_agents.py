"""Agents as somebody meets them who sits before the console."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from pikku_storage.agents.models import AgentRun, AgentThread, AgentToolCall
from pikku_storage.agents.service import AgentStorageService
from tests.console.agent_stories import (
    MARKUP,
    address,
    asked_at,
    busy_afternoon,
    conversation,
    thread_url,
    touched,
    waiting,
)
from tests.console.stories import now

pytestmark = [pytest.mark.django_db(transaction=True)]

LOOKS = [("wide", "light"), ("wide", "dark"), ("narrow", "light"), ("narrow", "dark")]


def log_in(page: Any, user: User, url: str) -> None:
    """Let another user sit before that page."""
    client = Client()
    client.force_login(user)
    page.context.clear_cookies()
    page.context.add_cookies([{"name": "sessionid", "value": client.cookies["sessionid"].value, "url": url}])


def fits(page: Any) -> bool:
    """Whether nothing is wider than the screen."""
    return bool(page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"))


@pytest.mark.parametrize(("width", "scheme"), LOOKS)
def test_approving_a_refund(viewer: Callable[..., Any], picture: Callable[..., Any], width: str, scheme: str) -> None:
    ada = User.objects.create_user("ada")
    thread_id = busy_afternoon(str(ada.pk))
    page = viewer(width, scheme)
    page.goto(thread_url(thread_id))
    page.get_by_text("look_up_order").click()
    page.get_by_text('"courier": "dhl"').wait_for()
    assert fits(page)
    picture(
        page,
        "agent-thread" if (width, scheme) == LOOKS[0] else f"agent-thread-{width}-{scheme}",
        documented=(width, scheme) == LOOKS[0],
        full_page=True,
    )
    page.get_by_label("Reason, Refund an order").fill("a cracked pot, of course")
    page.get_by_role("button", name="Approve").click()

    page.get_by_text("Approved: Refund an order.").wait_for()
    assert page.get_by_text("1 approval waits").count() == 0
    page.locator(".pk-call", has_text="Refund an order").locator("summary").click()
    page.get_by_text("a cracked pot, of course").wait_for()
    call = AgentToolCall.everyones.get(pk=f"refund-{thread_id}")
    assert (call.approval_status, call.approval_resolved_by, call.approval_reason) == (
        "approved",
        str(User.objects.get(username="ops").pk),
        "a cracked pot, of course",
    )


def test_ones_own_thread_and_a_foreign_one(viewer: Callable[..., Any], live_server: Any) -> None:
    ada = User.objects.create_user("ada", is_staff=True)
    own, foreign = conversation(str(ada.pk), title="Mine"), conversation("eve", title="Not mine")
    page = viewer()
    log_in(page, ada, live_server.url)
    page.goto(address("agentthread"))
    assert page.get_by_text("Not mine").count() == 0
    page.get_by_role("link", name="Mine", exact=True).click()
    page.get_by_text("I am sorry to hear that.").wait_for()
    assert page.url.endswith(thread_url(own))
    assert page.get_by_role("link", name="Delete").count() == 0
    answers = [page.request.get(thread_url(each)) for each in (foreign, "no-such-id")]
    assert [answer.status for answer in answers] == [404, 404]
    assert answers[0].text() == answers[1].text()


@pytest.mark.parametrize(("width", "scheme"), LOOKS)
def test_the_lists(viewer: Callable[..., Any], picture: Callable[..., Any], width: str, scheme: str) -> None:
    ada = User.objects.create_user("ada")
    at = now()
    ids = [busy_afternoon(str(ada.pk)), conversation("eve:shop", title=MARKUP), conversation("bob", title=None)]
    ids += [conversation("carol", title="A very long title " * 20, status="failed", error_message="No answer. " * 30)]
    late, call = waiting(str(ada.pk), expires_at=at + timedelta(minutes=20), displayToolName="Give money back")
    asked_at(call, at - timedelta(hours=3))
    touched([*ids, late], at)
    page = viewer(width, scheme)
    for model in ("agentthread", "agentrun", "agentapproval"):
        page.goto(address(model))
        assert model == "agentapproval" or page.locator("#result_list tbody tr").count() >= 5
        picture(page, f"{model}-{width}-{scheme}", full_page=True)
        # A table may scroll in itself; the page may not.
        assert fits(page)
    assert page.locator(".pk-ask").count() == 2
    page.goto(address("agentrun", "change", AgentRun.everyones.filter(thread_id=ids[0], status="completed").get().pk))
    picture(page, f"agent-run-{width}-{scheme}", full_page=True)
    page.goto(address("agentapproval", "change", call))
    picture(page, f"agent-approval-{width}-{scheme}", full_page=True)
    assert fits(page)


def test_a_page_follows_a_run_until_it_ends(viewer: Callable[..., Any]) -> None:
    thread_id = conversation("ada", status="running")
    storage = AgentStorageService()
    page = viewer()
    page.goto(thread_url(thread_id))
    root = page.locator(".pk-thread[data-following=yes]")
    root.wait_for()
    storage.save_messages(thread_id, [{"role": "assistant", "content": "Here I am again."}])
    page.get_by_text("Here I am again.").wait_for()
    run = AgentRun.everyones.get(thread_id=thread_id)
    storage.update_run(run.pk, status="completed")
    page.locator(".pk-thread[data-following=no]").wait_for()
    assert page.locator("#pk-thread-head .pk-pill").inner_text() == "Completed"


def test_without_javascript_it_can_be_answered_and_deleted(viewer: Callable[..., Any]) -> None:
    thread_id, call_id = waiting("eve")
    page = viewer(javascript=False)
    page.goto(address("agentapproval"))
    page.get_by_role("link", name="refund", exact=True).click()
    page.get_by_label("Reason").fill("no receipt")
    page.get_by_role("button", name="Deny").click()
    page.get_by_text("Denied: refund.").wait_for()
    assert AgentToolCall.everyones.get(pk=call_id).approval_reason == "no receipt"
    page.goto(thread_url(thread_id))
    page.get_by_role("link", name="Delete").click()
    page.get_by_role("button", name="Delete").click()
    page.get_by_text("was deleted").wait_for()
    assert not AgentThread.everyones.exists()
