"""Answering approvals: who may, what is told, and everything that waits in one list."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.test import Client
from pytest_django import Settings

from console.agents import inbox
from pikku_storage.agents.models import AgentToolCall
from pikku_storage.agents.service import AgentStorageService
from pikku_storage.agents.signals import approval_resolved
from pikku_storage.workflows import workflow
from pikku_storage.workflows.flow import Flow
from pikku_storage.workflows.models import WorkflowRun, WorkflowStep
from pikku_storage.workflows.registry import registry
from tests.console.agent_stories import address, approval_url, asked_at, thread_url, waiting
from tests.console.conftest import client_of, context_of, staff_with
from tests.console.stories import now
from tests.console.test_agents import text_of
from tests.console.urls import url_of

pytestmark = pytest.mark.django_db(transaction=True)

INBOX = "agentapproval"


@pytest.fixture(autouse=True)
def _alone(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """No broker, and definitions that are gone after the test."""
    settings.PIKKU_STORAGE = {**settings.PIKKU_STORAGE, "DISPATCHER": None}
    monkeypatch.setattr(registry, "workflows", dict(registry.workflows))


@pytest.fixture
def told() -> Iterator[list[dict[str, Any]]]:
    """What the signal says."""
    heard: list[dict[str, Any]] = []

    def hear(sender: Any, *, signal: Any, **arguments: Any) -> None:
        heard.append(arguments)

    approval_resolved.connect(hear)
    yield heard
    approval_resolved.disconnect(hear)


def status_of(call_id: str) -> tuple[str | None, str | None, str | None]:
    row = AgentToolCall.everyones.get(pk=call_id)
    return row.approval_status, row.approval_resolved_by, row.approval_reason


def gate(reason: str, *, at: Any = None, owner: Any = None, **options: Any) -> str:
    """A run that stands at an approval."""

    @workflow(name="console.asks")
    def asks(flow: Flow) -> None:
        flow.approval(reason, **options)

    run_id = asks.run(owner=owner).id
    if at is not None:
        WorkflowRun.objects.filter(pk=run_id).update(gate_opened_at=at)
        WorkflowStep.objects.filter(run_id=run_id).update(created_at=at)
    return run_id


def waits_for(client: Client, **params: str) -> list[str]:
    """What the list asks, in its order."""
    response = client.get(address(INBOX), params)
    assert response.status_code == 200
    return [item.what for item in context_of(response)["page"].items]


# -- answering ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("decision", ["approved", "denied"])
def test_a_manager_answers(decision: str, told: list[dict[str, Any]]) -> None:
    manager = staff_with("admin:agents:manage")
    thread_id, call_id = waiting("ada")
    response = client_of(manager).post(
        approval_url(call_id), {"decision": decision, "reason": "as agreed"}, follow=True
    )
    assert response.redirect_chain[-1][0] == thread_url(thread_id)
    assert f"{decision.capitalize()}: refund." in text_of(response)
    assert "as agreed" in text_of(response)
    assert status_of(call_id) == (decision, str(manager.pk), "as agreed")
    entry = LogEntry.objects.get()
    assert (entry.object_id, entry.change_message) == (call_id, f"{decision}: as agreed")
    assert told == [{"tool_call_id": call_id, "status": decision, "using": AgentStorageService().using}]
    run = AgentStorageService().get_run(AgentToolCall.everyones.get().run_id or "")
    assert run is not None
    assert run.pending_approvals is None


def test_owners_answer_their_own_and_nothing_else() -> None:
    ada = User.objects.create_user("ada", is_staff=True)
    _thread, own = waiting(f"{ada.pk}:shop")
    _thread, foreign = waiting("eve")
    client = client_of(ada)
    assert client.post(approval_url(own), {"decision": "approved"}).status_code == 302
    assert client.post(approval_url(foreign), {"decision": "approved"}).status_code == 404
    assert status_of(own) == ("approved", str(ada.pk), None)
    assert status_of(foreign)[0] == "pending"


def test_readers_see_what_is_asked_and_do_not_answer() -> None:
    reader = client_of(staff_with("admin:agents:read"))
    thread_id, call_id = waiting("ada")
    page = reader.get(approval_url(call_id))
    assert "admin:agents:manage" in text_of(page)
    assert reader.post(approval_url(call_id), {"decision": "approved"}).status_code == 403
    assert status_of(call_id)[0] == "pending"
    for url in (approval_url(call_id), thread_url(thread_id), address(INBOX)):
        assert 'value="approved"' not in reader.get(url).content.decode()
    assert waits_for(reader) == []


def test_the_second_is_told_who_was_faster(root_client: Client, told: list[dict[str, Any]]) -> None:
    bob = staff_with("admin:agents:manage", name="bob")
    _thread, call_id = waiting("ada")
    client_of(bob).post(approval_url(call_id), {"decision": "denied", "reason": "too much"})
    response = root_client.post(approval_url(call_id), {"decision": "approved", "back": "inbox"}, follow=True)
    assert "Too late: bob was faster. refund is denied, " in text_of(response)
    assert response.redirect_chain[-1][0] == address(INBOX)
    assert status_of(call_id) == ("denied", str(bob.pk), "too much")
    assert (len(told), LogEntry.objects.count()) == (1, 1)
    assert "too much" in text_of(root_client.get(approval_url(call_id)))


def test_what_is_over_cannot_be_answered(root_client: Client) -> None:
    _thread, late = waiting("ada", expires_at=now() - timedelta(seconds=1))
    _thread, withdrawn = waiting("ada")
    response = root_client.post(approval_url(late), {"decision": "approved"}, follow=True)
    assert "the time to answer about refund is over" in text_of(response)
    assert "Expired" in text_of(root_client.get(approval_url(late))).title()
    AgentStorageService().update_run(AgentToolCall.everyones.get(pk=withdrawn).run_id, pending_approvals=[])
    assert root_client.post(approval_url(withdrawn), {"decision": "approved"}).status_code == 404
    assert [status_of(each)[0] for each in (late, withdrawn)] == ["pending", None]


@pytest.mark.parametrize("answer", [{}, {"decision": "maybe"}, {"decision": "approved", "reason": "x" * 501}])
def test_an_answer_that_is_none_is_asked_again(root_client: Client, answer: dict[str, str]) -> None:
    _thread, call_id = waiting("ada")
    assert root_client.post(approval_url(call_id), answer).status_code == 200
    assert status_of(call_id)[0] == "pending"


def test_asking_again_forgets_the_reason() -> None:
    storage = AgentStorageService()
    _thread, call_id = waiting("ada", expires_at=now() - timedelta(seconds=1))
    storage.expire_approvals()
    AgentToolCall.everyones.filter(pk=call_id).update(approval_reason="of another time")
    run_id = AgentToolCall.everyones.get(pk=call_id).run_id
    storage.update_run(run_id, pending_approvals=[{"toolCallId": call_id}])
    assert status_of(call_id) == ("pending", None, None)
    assert storage.resolve_approval(call_id, "approved", by="ada", reason="")
    assert status_of(call_id) == ("approved", "ada", None)


# -- all that waits ----------------------------------------------------------------------------------------------------


def test_agents_and_workflows_in_one_order(root_client: Client) -> None:
    at = now() - timedelta(hours=1)
    for minutes, name in ((5, "b"), (1, "d")):
        _thread, call_id = waiting("ada", displayToolName=name)
        asked_at(call_id, at - timedelta(minutes=minutes))
    run_id = gate("a", at=at - timedelta(minutes=9), expiry="2h")
    gate("c", at=at - timedelta(minutes=3))
    _thread, undated = waiting("ada", displayToolName="long ago")
    asked_at(undated, None)
    assert waits_for(root_client) == ["long ago", "a", "b", "c", "d"]
    page = root_client.get(address(INBOX)).content.decode()
    assert f'href="{url_of(run_id)}#pk-gate"' in page


def test_gates_are_for_those_who_may_answer_them() -> None:
    ada = staff_with("admin:workflows:manage", "may:release", name="ada")
    gate("anybody")
    gate("the owner", owner=ada, approvers="owner")
    gate("not the owner", owner=ada, approvers="not-initiator")
    gate("of eve", owner="eve", approvers="owner")
    gate("with a scope", approver_scope="may:release")
    gate("with another scope", approver_scope="may:not")
    assert sorted(waits_for(client_of(ada))) == ["anybody", "the owner", "with a scope"]
    assert waits_for(client_of(staff_with("admin:workflows:read", name="reader"))) == []
    assert waits_for(client_of(staff_with("admin:agents:manage", name="manager"))) == []


def test_owners_have_their_own_in_the_list() -> None:
    ada = User.objects.create_user("ada", is_staff=True)
    waiting(str(ada.pk), displayToolName="mine")
    waiting("eve", displayToolName="not mine")
    waiting(f"{ada.pk}:x", displayToolName="over", expires_at=now() - timedelta(minutes=1))
    assert waits_for(client_of(ada)) == ["mine"]


def test_pages_of_the_list_leave_nothing_out(root_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox, "PAGE", 4)
    monkeypatch.setattr(inbox, "SCANNED", 3)
    at = now() - timedelta(hours=1)
    expected = []
    for number in range(11):
        # Several are asked at the same moment.
        moment = at + timedelta(minutes=number // 3)
        _thread, call_id = waiting("ada", call_id=f"c{number:02}", displayToolName=f"c{number:02}")
        asked_at(call_id, moment)
        gate(f"g{number:02}", at=moment, approvers="owner" if number % 2 else "any", owner="eve")
        expected += [f"c{number:02}"] if number % 2 else [f"c{number:02}", f"g{number:02}"]
    seen: list[str] = []
    params: dict[str, str] = {}
    for _ in range(30):
        page = context_of(root_client.get(address(INBOX), params))["page"]
        seen += [item.what for item in page.items]
        if not page.next_place:
            break
        params = {"after": page.next_place}
    assert sorted(seen) == sorted(expected)
    assert [int(each[1:]) // 3 for each in seen] == sorted(int(each[1:]) // 3 for each in seen)
    for nonsense in ("x", "~", "2026-01-01~call~x", f"{at.isoformat()}~other~x"):
        assert waits_for(root_client, after=nonsense) == seen[:4]


def test_the_index_says_how_many_wait() -> None:
    ada = User.objects.create_user("ada", is_staff=True)
    client = client_of(ada)
    assert "for your answer" not in text_of(client.get("/admin/pikku_agents/"))
    for owner in (str(ada.pk), f"{ada.pk}:x", "eve"):
        waiting(owner)
    assert "2 approvals wait for your answer" in text_of(client.get("/admin/pikku_agents/"))
    assert address(INBOX) in client.get("/admin/").content.decode()
