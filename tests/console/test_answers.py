"""Answering an approval in the admin: the form that its schema makes, who may send it, and what comes of it."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal

import pytest
from django import forms
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.contrib.messages import get_messages
from django.http import QueryDict
from django.test import Client
from django.urls import reverse
from pytest_django import Settings

from console.workflows.answer_form import answer_form
from pikku_storage import auditing
from pikku_storage.schemas import schema_of
from pikku_storage.workflows import workflow
from pikku_storage.workflows.flow import Flow
from pikku_storage.workflows.handle import WorkflowRunHandle
from pikku_storage.workflows.models import WorkflowStep
from pikku_storage.workflows.registry import registry
from tests.console.conftest import client_of, staff_with
from tests.console.urls import url_of

pytestmark = pytest.mark.django_db(transaction=True)

events: list[auditing.AuditEvent] = []


def keep(event: auditing.AuditEvent) -> None:
    """A sink for what is said about approvals."""
    if event.type == "workflow.approval.decided":
        events.append(event)


class Speed(Enum):
    SLOW = "slow"
    FAST = "fast"


@dataclass
class Parcel:
    """What a person says about a parcel."""

    pieces: int
    fragile: bool
    carrier: Literal["dhl", "ups"]
    speed: Speed = Speed.SLOW
    on: datetime.date | None = None
    tags: list[str] | None = None


class Release(forms.Form):
    """Whether it may leave."""

    release = forms.BooleanField(required=False)
    amount = forms.DecimalField(max_digits=6, decimal_places=2)
    reasons = forms.MultipleChoiceField(choices=[("a", "A"), ("b", "B")])


JSON_SCHEMA = {
    "type": "object",
    "properties": {
        "approved": {"type": "boolean", "title": "Approved <b>"},
        "limit": {"type": "integer", "minimum": 1, "maximum": 10},
        "note": {"type": ["string", "null"], "maxLength": 20},
        "kind": {"enum": ["small", "large", 3]},
        "more": {"type": "array", "items": {"type": "string"}, "maxItems": 1},
    },
    "required": ["approved", "kind"],
    "additionalProperties": False,
}


@pytest.fixture(autouse=True)
def _alone(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """No broker, a trail in memory, and definitions that are gone after the test."""
    events.clear()
    settings.PIKKU_STORAGE = {**settings.PIKKU_STORAGE, "DISPATCHER": None, "AUDIT_SINK": f"{__name__}.keep"}
    monkeypatch.setattr(registry, "workflows", dict(registry.workflows))


@pytest.fixture
def client() -> Client:
    """The browser of somebody who manages workflows."""
    return client_of(staff_with("admin:workflows:manage", name="manager"))


def asking(*, owner: Any = None, **options: Any) -> WorkflowRunHandle:
    @workflow(name="console_tests.asks")
    def order(flow: Flow) -> Any:
        return flow.approval("release <b>", **options).data

    return order.run(owner=owner)


def answer_url(run: WorkflowRunHandle) -> str:
    step = WorkflowStep.objects.get(run_id=run.id)
    return reverse("admin:pikku_workflows_workflowrun_answer", args=[run.id, step.pk])


def said(response: Any) -> list[str]:
    return [str(message) for message in get_messages(response.wsgi_request)]


# -- the form --------------------------------------------------------------------------------------------------------


def recorded(source: Any) -> Any:
    return schema_of(source).name


@pytest.mark.parametrize(
    ("schema", "sent", "decision"),
    [
        (lambda: None, "answer=false", False),
        (
            lambda: recorded(Parcel),
            'pieces=3&fragile=false&carrier="ups"&speed="fast"&on=2026-02-03&tags=["a"]',
            {"pieces": 3, "fragile": False, "carrier": "ups", "speed": "fast", "on": "2026-02-03", "tags": ["a"]},
        ),
        (
            lambda: recorded(Parcel),
            'pieces=3&fragile=true&carrier="ups"',
            {"pieces": 3, "fragile": True, "carrier": "ups"},
        ),
        (
            lambda: recorded(Release),
            "release=on&amount=12.50&reasons=a&reasons=b",
            {"release": "on", "amount": "12.50", "reasons": ["a", "b"]},
        ),
        (lambda: recorded(JSON_SCHEMA), "approved=true&kind=3", {"approved": True, "kind": 3}),
        (lambda: recorded({"type": "string", "maxLength": 3}), "answer=yes", "yes"),
        (lambda: {"kind": "form", "path": "nobody.knows:It"}, 'answer={"a": [1]}', {"a": [1]}),
    ],
    ids=["plain", "dataclass", "defaults", "form", "json schema", "one value", "unknown"],
)
def test_what_is_sent_becomes_the_decision(schema: Callable[[], Any], sent: str, decision: Any) -> None:
    data = QueryDict("&".join(f"answer-{pair}" for pair in sent.split("&")))
    form = answer_form(schema(), data)
    assert form.is_valid(), form.form.errors
    assert form.decision == decision


@pytest.mark.parametrize(
    ("schema", "sent", "fields"),
    [
        (lambda: None, "", {"answer"}),
        (lambda: recorded(Parcel), "pieces=x&fragile=&carrier=gls", {"pieces", "fragile", "carrier"}),
        (lambda: recorded(Release), "amount=1234567", {"amount", "reasons"}),
        (lambda: recorded(JSON_SCHEMA), "limit=11&note=123456789012345678901", {"approved", "limit", "note", "kind"}),
    ],
    ids=["plain", "dataclass", "form", "json schema"],
)
def test_what_does_not_fit_is_said_beside_its_field(schema: Callable[[], Any], sent: str, fields: set[str]) -> None:
    form = answer_form(schema(), QueryDict("&".join(f"answer-{pair}" for pair in sent.split("&") if pair)))
    assert not form.is_valid()
    assert set(form.form.errors) == fields


# -- answering -------------------------------------------------------------------------------------------------------


def test_a_dataclass_is_answered_on_the_page_of_the_run(client: Client) -> None:
    run = asking(schema=Parcel)
    page = client.get(url_of(run.id)).content.decode()
    card = page.split('id="pk-gate"')[1].split("</section>")[0]
    for name in ("pieces", "fragile", "carrier", "speed", "on", "tags"):
        assert f'name="answer-{name}"' in card
    assert 'type="date"' in card
    assert "release &lt;b&gt;" in card
    assert f'action="{answer_url(run)}"' in card

    response = client.post(
        answer_url(run),
        {"answer-pieces": "2", "answer-fragile": "true", "answer-carrier": '"dhl"', "answer-speed": '"fast"'},
    )
    assert response.headers["Location"] == url_of(run.id)
    assert "is taken." in said(response)[0]
    assert (run.status, run.output) == (
        "completed",
        {"pieces": 2, "fragile": True, "carrier": "dhl", "speed": "fast", "on": None, "tags": None},
    )
    manager = User.objects.get(username="manager")
    assert [(event.type, event.outcome, event.actor.user_id) for event in events] == [
        ("workflow.approval.decided", "success", str(manager.pk))
    ]
    [entry] = LogEntry.objects.all()
    assert (entry.user_id, entry.change_message) == (manager.pk, "answer: release <b>")
    assert 'data-gate=""' in client.get(url_of(run.id)).content.decode()


@pytest.mark.parametrize(("sent", "output"), [("true", True), ("false", False)])
def test_without_a_schema_there_are_two_buttons(client: Client, sent: str, output: bool) -> None:
    run = asking()
    page = client.get(url_of(run.id)).content.decode()
    assert "Approve</button>" in page
    assert "Deny</button>" in page
    client.post(answer_url(run), {"answer-answer": sent})
    assert run.output is output


def test_what_only_the_schema_knows_is_said_beside_its_field(client: Client) -> None:
    run = asking(schema=JSON_SCHEMA)
    data = {"answer-approved": "true", "answer-kind": '"small"', "answer-more": '["a", "b"]'}
    response = client.post(answer_url(run), data)
    page = response.content.decode()
    assert (response.status_code, run.status) == (200, "suspended")
    field = page.split('for="id_answer-more"')[1].split("</div>")[0]
    assert "errorlist" in field
    assert "Approved &lt;b&gt;" in page
    client.post(answer_url(run), {**data, "answer-more": '["a"]'})
    assert run.output == {"approved": True, "kind": "small", "more": ["a"]}


def test_the_second_of_two_is_told(client: Client) -> None:
    run = asking()
    url = answer_url(run)
    other = client_of(staff_with("admin:workflows:manage", name="other"))
    assert "Approve</button>" in other.get(url).content.decode()
    client.post(url, {"answer-answer": "true"})
    response = other.post(url, {"answer-answer": "false"})
    assert said(response) == ["Your answer to “release <b>” was not taken: somebody else was faster."]
    assert run.output is True
    assert "manager has answered it." in other.get(url).content.decode()


def test_an_answer_that_is_not_judged_yet_is_named(client: Client, settings: Settings) -> None:
    run = asking()
    settings.PIKKU_STORAGE = {
        **settings.PIKKU_STORAGE,
        "DISPATCHER": "tests.conformance.recording.RecordingDispatcher",
    }
    client.post(answer_url(run), {"answer-answer": "true"})
    page = client.get(answer_url(run)).content.decode()
    assert "manager answered" in page
    assert "Approve</button>" not in page


@pytest.mark.parametrize(
    ("approvers", "scope", "why"),
    [
        ("owner", None, "Only the user who started this run"),
        ("any", "shop:release", "requires the &#x27;shop:release&#x27; scope"),
    ],
)
def test_who_may_not_answer_is_told_why_and_is_audited(
    client: Client, approvers: Any, scope: str | None, why: str
) -> None:
    owner = User.objects.create_user("owner")
    run = asking(owner=owner, approvers=approvers, approver_scope=scope)
    page = client.get(url_of(run.id)).content.decode()
    assert why in page
    assert "Approve</button>" not in page
    response = client.post(answer_url(run), {"answer-answer": "true"})
    assert why in response.content.decode()
    assert run.status == "suspended"
    assert [(event.type, event.outcome) for event in events] == [("workflow.approval.decided", "denied")]
    assert not LogEntry.objects.exists()


def test_who_started_it_may_not_answer_what_asks_somebody_else() -> None:
    manager = staff_with("admin:workflows:manage", name="starter")
    run = asking(owner=manager, approvers="not-initiator")
    assert "may not answer this approval" in client_of(manager).get(url_of(run.id)).content.decode()


def test_who_only_looks_is_asked_nothing(operator: User) -> None:
    run = asking()
    looking = client_of(operator)
    assert 'data-gate=""' in looking.get(url_of(run.id)).content.decode()
    for response in (looking.get(answer_url(run)), looking.post(answer_url(run), {"answer-answer": "true"})):
        assert response.status_code == 403
    assert run.status == "suspended"


def test_an_ordinary_step_asks_nobody(client: Client) -> None:
    run = asking()
    step = WorkflowStep.objects.get(run_id=run.id)
    other = reverse("admin:pikku_workflows_workflowrun_answer", args=["no-such-run", step.pk])
    assert client.get(other).status_code == 404
    WorkflowStep.objects.filter(pk=step.pk).update(rpc_name="charge_card")
    assert client.get(answer_url(run)).status_code == 404


def test_the_time_may_be_over(client: Client) -> None:
    run = asking(expiry="1ms")
    response = client.post(answer_url(run), {"answer-answer": "true"})
    assert "its time is over" in said(response)[0]
