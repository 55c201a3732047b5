"""The support agent: a conversation over HTTP, a colleague who decides, and the refund that follows."""

from __future__ import annotations

import io
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connections
from django.test import Client
from pytest_django import Settings

from example_project.support import model
from example_project.support.agent import NAME
from example_project.support.models import GoodwillRefund
from example_project.support.workflows import refund_order
from pikku_storage.agents.service import AgentStorageService
from pikku_storage.workflows.runs import WorkflowRunService
from tests.example.conftest import Fulfil, PlaceOrder

pytestmark = pytest.mark.django_db(transaction=True)
THREADS, APPROVALS = "/support/threads/", "/support/approvals/"


class Browser:
    """Somebody who is signed in."""

    def __init__(self, name: str, **options: Any) -> None:
        self.user = User.objects.create_user(name, f"{name}@mail.example", **options)

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """The status and the JSON of an answer."""
        client = Client()
        client.force_login(self.user)
        response = client.generic(method, path, "" if body is None else json.dumps(body), "application/json")
        return response.status_code, response.json()

    def say(self, text: str, thread: str = "") -> Any:
        """The conversation after that message."""
        status, answer = self.ask("POST", f"{THREADS}{thread}", {"message": text})
        assert status in {200, 201}, answer
        return answer

    def decide(self, decision: str, call_id: str) -> int:
        """The status of a decision."""
        return self.ask("POST", f"{APPROVALS}{call_id}/", {"decision": decision})[0]


@pytest.fixture(autouse=True)
def _no_workers(settings: Settings) -> None:
    """A workflow is carried out where it is started."""
    settings.PIKKU_STORAGE = {**settings.PIKKU_STORAGE, "DISPATCHER": None}


@pytest.fixture
def customer() -> Browser:
    return Browser("aino")


@pytest.fixture
def colleague() -> Browser:
    return Browser("boss", is_superuser=True)


@pytest.fixture
def waiting(customer: Browser, place_order: PlaceOrder, fulfil: Fulfil) -> tuple[str, str]:
    """A thread in which a refund waits for a colleague, and the call that they decide about."""
    fulfil(place_order("A1"))
    answer = customer.say("I want a refund for A1")
    assert answer["status"] == "suspended"
    _, found = customer.ask("GET", APPROVALS)
    (approval,) = found["approvals"]
    assert approval["display_args"] == {"order": "A1", "customer": "Aino Laine", "amount_cents": 7000}
    return answer["threadId"], approval["tool_call_id"]


def last(conversation: Any) -> str:
    return str(conversation["messages"][-1]["content"])


def test_a_question_is_answered_by_looking_it_up(customer: Browser, place_order: PlaceOrder, fulfil: Fulfil) -> None:
    fulfil(place_order("A1"))
    answer = customer.say("Hello")
    assert last(answer) == "I am glad to help. Which order is it about?"
    answer = customer.say("A1, please", f"{answer['threadId']}/")
    assert last(answer).startswith("Order A1 is shipped, its parcel is ")
    assert [message["role"] for message in answer["messages"]] == [
        "user",
        "assistant",
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    _, found = customer.ask("GET", THREADS)
    assert [(thread["id"], thread["title"]) for thread in found["threads"]] == [(answer["threadId"], "Hello")]


def test_once_a_colleague_approves_the_money_is_given_back(
    customer: Browser, colleague: Browser, waiting: tuple[str, str]
) -> None:
    thread, call_id = waiting
    assert customer.ask("POST", f"{THREADS}{thread}/", {"message": "Well?"})[0] == 409
    assert not GoodwillRefund.objects.exists()
    assert colleague.decide("approved", call_id) == 200
    _, conversation = customer.ask("GET", f"{THREADS}{thread}/")
    assert (conversation["status"], last(conversation)) == (
        "completed",
        "A colleague approved it: your money is on its way.",
    )
    assert list(GoodwillRefund.objects.values_list("order", "amount_cents")) == [("A1", 7000)]
    (run,) = WorkflowRunService().list_runs(workflow_name=refund_order.name)
    assert (run.owner_id, run.idempotency_key) == (str(customer.user.pk), call_id)
    # And no second time.
    assert (
        last(customer.say("A refund for A1!", f"{thread}/"))
        == "I cannot ask for a refund: order A1 was refunded before."
    )


def test_after_a_denial_the_agent_says_so(customer: Browser, colleague: Browser, waiting: tuple[str, str]) -> None:
    thread, call_id = waiting
    assert colleague.decide("denied", call_id) == 200
    assert last(customer.ask("GET", f"{THREADS}{thread}/")[1]).startswith("I am sorry, a colleague looked at it")
    assert colleague.decide("approved", call_id) == 404
    assert not GoodwillRefund.objects.exists()


def test_of_colleagues_who_decide_at_once_one_does(waiting: tuple[str, str]) -> None:
    thread, call_id = waiting
    colleagues = [Browser(f"boss{number}", is_superuser=True) for number in range(4)]

    def decide(browser: Browser) -> int:
        try:
            return browser.decide("approved", call_id)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(len(colleagues)) as pool:
        assert sorted(pool.map(decide, colleagues)) == [200, 404, 404, 404]
    assert GoodwillRefund.objects.count() == len(WorkflowRunService().list_runs(workflow_name=refund_order.name)) == 1
    roles = [message.role for message in AgentStorageService().get_messages(thread)]
    assert roles == ["user", "assistant", "tool", "assistant", "tool", "assistant"]


def test_what_was_cut_off_after_a_decision_goes_on_with_the_next_message(
    customer: Browser, waiting: tuple[str, str]
) -> None:
    thread, call_id = waiting
    assert AgentStorageService().resolve_approval(call_id, "approved")
    conversation = customer.say("Well?", f"{thread}/")
    assert "A colleague approved it: your money is on its way." in [
        each["content"] for each in conversation["messages"]
    ]
    assert GoodwillRefund.objects.count() == 1


def test_threads_of_others_and_missing_ones_are_answered_alike(waiting: tuple[str, str]) -> None:
    thread, call_id = waiting
    eve = Browser("eve")
    for method, body in (("GET", None), ("POST", {"message": "A1"}), ("DELETE", None)):
        foreign, missing = (eve.ask(method, f"{THREADS}{each}/", body) for each in (thread, "missing"))
        assert foreign == missing == (404, {"error": "There is no such thread."})
    assert eve.ask("GET", THREADS)[1] == {"threads": []}
    assert eve.ask("GET", APPROVALS)[1] == {"approvals": []}
    assert {eve.decide("approved", each) for each in (call_id, "missing")} == {403}
    # The order of somebody else is none, either.
    assert last(eve.say("Where is A1?")) == "I am sorry, I find no order A1 of yours."
    assert not GoodwillRefund.objects.exists()


def test_customers_do_not_decide_about_their_own(customer: Browser, waiting: tuple[str, str]) -> None:
    assert customer.decide("approved", waiting[1]) == 403


def test_a_thread_is_deleted_with_what_belongs_to_it(customer: Browser, waiting: tuple[str, str]) -> None:
    thread, _ = waiting
    assert customer.ask("DELETE", f"{THREADS}{thread}/") == (200, {"deleted": thread})
    assert customer.ask("GET", APPROVALS)[1] == {"approvals": []}
    assert customer.ask("GET", f"{THREADS}{thread}/")[0] == 404


def test_a_model_that_fails_is_seen(customer: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    async def complete(messages: Any) -> Any:
        raise ConnectionError("no answer")

    monkeypatch.setattr(model, "complete", complete)
    with pytest.raises(ConnectionError):
        customer.say("Hello")
    (thread,) = AgentStorageService().get_threads(str(customer.user.pk))
    (run,) = AgentStorageService().get_runs_by_thread(thread.id)
    assert (run.status, run.error_message) == ("failed", "no answer")


@pytest.mark.parametrize("body", [None, "no JSON {", ["A1"], {"message": ""}, {"message": 7}, {"message": "\x00"}])
def test_bodies_that_cannot_be_used(customer: Browser, body: Any) -> None:
    assert customer.ask("POST", THREADS, body)[0] == 400
    assert Client().post(THREADS, {"message": "Hello"}, "application/json").status_code == 401


def test_the_demo_prints_the_conversation() -> None:
    out = io.StringIO()
    call_command("support_demo", stdout=out)
    assert "A colleague approved it: your money is on its way." in out.getvalue()
    assert "The workflow refund_order gave back 93.50." in out.getvalue()
    assert [run.agent_name for run in AgentStorageService().get_runs_by_thread(_only_thread())] == [NAME] * 3


def _only_thread() -> str:
    (thread,) = AgentStorageService().get_threads(str(User.objects.get(username="rosa").pk))
    return thread.id
