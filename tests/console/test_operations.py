"""What an operator does to runs in the admin: one by one, and many at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.contrib.messages import get_messages
from django.test import Client
from django.urls import reverse
from pytest_django import Settings

from pikku_storage.workflows.definitions import WorkflowDefinition
from pikku_storage.workflows.flow import Flow
from pikku_storage.workflows.models import WorkflowRun
from pikku_storage.workflows.registry import registry
from tests.conformance.recording import RecordingDispatcher
from tests.console.conftest import client_of, context_of, staff_with
from tests.console.stories import Story, failed_order, now, order_in_flight
from tests.console.urls import list_url

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _no_broker(settings: Settings) -> None:
    """Messages are of no interest here."""
    settings.PIKKU_STORAGE = {"DISPATCHER": RecordingDispatcher.PATH}


@pytest.fixture
def manager() -> User:
    """Staff who may operate."""
    return staff_with("admin:workflows:manage", name="manager")


@pytest.fixture
def client(manager: User) -> Client:
    """The manager's browser."""
    return client_of(manager)


def url_of(run_id: str, operation: str) -> str:
    return reverse("admin:pikku_workflows_workflowrun_operation", args=[run_id, operation])


def page_of(run_id: str) -> str:
    return reverse("admin:pikku_workflows_workflowrun_change", args=[run_id])


def said(response: Any) -> list[str]:
    """The messages above the page that one is led to."""
    return [str(message) for message in get_messages(response.wsgi_request)]


def test_cancelling(client: Client, manager: User) -> None:
    run_id = order_in_flight(now()).tell()

    response = client.post(url_of(run_id, "cancel"), {"reason": "the customer called"}, follow=True)

    run = WorkflowRun.objects.get(pk=run_id)
    assert run.status == "cancelled"
    assert run.error == {"message": "the customer called", "code": "WORKFLOW_CANCELLED", "by": str(manager.pk)}
    assert response.redirect_chain[-1][0] == page_of(run_id)
    assert [text.endswith("cancelled.") for text in said(response)] == [True]
    [entry] = LogEntry.objects.all()
    assert (entry.user_id, entry.object_id, entry.change_message) == (
        manager.pk,
        run_id,
        "cancel: the customer called",
    )


def test_cancelling_needs_a_reason(client: Client) -> None:
    run_id = order_in_flight(now()).tell()

    response = client.post(url_of(run_id, "cancel"), {"reason": " "})

    assert response.status_code == 200
    assert context_of(response)["form"].errors.keys() == {"reason"}
    assert WorkflowRun.objects.get(pk=run_id).status == "running"
    assert not LogEntry.objects.exists()


def test_cancelling_and_undoing(client: Client) -> None:
    run_id = order_in_flight(now()).tell()
    data = {"reason": "undo it", "compensate": "on"}

    client.post(url_of(run_id, "cancel"), data)
    again = client.post(url_of(run_id, "cancel"), data, follow=True)

    run = WorkflowRun.objects.get(pk=run_id)
    assert (run.status, run.cancel_request["message"]) == ("running", "undo it")
    assert said(again)[0].split(": ")[1] == "being undone, then cancelled."
    assert "was not changed" in said(again)[1]
    assert LogEntry.objects.count() == 1


def test_resuming(client: Client) -> None:
    run_id = order_in_flight(now()).tell()
    before = WorkflowRun.objects.get(pk=run_id).wake_token

    client.post(url_of(run_id, "resume"), {"reason": ""})

    assert WorkflowRun.objects.get(pk=run_id).wake_token != before


def test_retrying_leads_to_the_new_run(client: Client, manager: User) -> None:
    run_id = failed_order(now()).tell()

    response = client.post(url_of(run_id, "retry"), {"reason": "funds are there"}, follow=True)

    new = WorkflowRun.objects.get(origin_run_id=run_id)
    assert response.redirect_chain[-1][0] == page_of(new.pk)
    assert new.wire["retryOf"] == run_id
    assert (new.wire["reason"], new.wire["by"]) == ("funds are there", str(manager.pk))


@pytest.fixture
def fulfil() -> Iterator[None]:
    """The workflow of the stories is registered here."""
    before = dict(registry.workflows)

    def fulfil(flow: Flow, order_id: str) -> None: ...

    registry.workflows["fulfil_order"] = WorkflowDefinition(fulfil, name="fulfil_order")
    yield
    registry.workflows = before


def test_running_again_with_another_input(client: Client, fulfil: None) -> None:
    run_id = failed_order(now()).tell()

    page = client.get(url_of(run_id, "rerun")).content.decode()
    assert "{\n  &quot;order_id&quot;: &quot;B4&quot;\n}" in page
    response = client.post(url_of(run_id, "rerun"), {"reason": "", "input": '{"order_id": "B5"}'}, follow=True)

    new = WorkflowRun.objects.get(origin_run_id=run_id)
    assert new.input == {"order_id": "B5"}
    assert response.redirect_chain[-1][0] == page_of(new.pk)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "Enter a valid JSON."),
        ("[1]", "must be a JSON object"),
        ('{"colour": "red"}', "missing &#x27;order_id&#x27;"),
    ],
)
def test_an_input_that_does_not_fit_is_said_and_kept(client: Client, fulfil: None, text: str, problem: str) -> None:
    run_id = failed_order(now()).tell()

    response = client.post(url_of(run_id, "rerun"), {"input": text})

    assert problem in response.content.decode()
    kept = context_of(response)["form"]["input"].value()
    assert "".join(kept.split()) == "".join(text.split())
    assert WorkflowRun.objects.count() == 1


def test_forking_after_a_preview(client: Client, fulfil: None) -> None:
    run_id = failed_order(now()).tell()

    empty = client.get(url_of(run_id, "fork")).content.decode()
    assert '<option value="charge card">' in empty
    assert "csrfmiddlewaretoken" not in empty.split("pk-form")[1]
    response = client.get(url_of(run_id, "fork"), {"from_step": "charge card"})
    preview = context_of(response)["preview"]
    assert (preview.kept, preview.again) == (("reserve stock",), ("charge card", "charge card:onError"))
    data = {"from_step": "charge card", "input": '{"order_id": "B4"}', "reason": "other card"}
    client.post(url_of(run_id, "fork"), data)

    new = WorkflowRun.objects.get(origin_run_id=run_id)
    assert new.wire["forkFrom"] == "charge card"
    assert [step.step_name for step in new.steps.all()] == ["reserve stock"]


def test_forking_from_a_step_that_is_none(client: Client, fulfil: None) -> None:
    run_id = failed_order(now()).tell()

    page = client.get(url_of(run_id, "fork"), {"from_step": "nope"}).content.decode()
    client.post(url_of(run_id, "fork"), {"from_step": "nope", "input": "{}"})

    assert "The run has no step of that name." in page
    assert WorkflowRun.objects.count() == 1


def test_what_cannot_be_done_says_why(client: Client) -> None:
    done = Story(status="completed").tell()

    page = client.get(page_of(done)).content.decode()
    assert page.count('aria-disabled="true"') == 3
    for operation, reason in (("cancel", "It has ended."), ("resume", "It has ended."), ("retry", "It is completed.")):
        assert reason in client.get(url_of(done, operation)).content.decode()
        client.post(url_of(done, operation), {"reason": "x"})
    assert WorkflowRun.objects.get().status == "completed"
    assert not LogEntry.objects.exists()


def test_who_may_only_look_is_offered_nothing(operator: User, superuser: User) -> None:
    run_id = order_in_flight(now()).tell()

    assert "pk-operations" not in client_of(operator).get(page_of(run_id)).content.decode()
    assert "pk-operations" in client_of(superuser).get(page_of(run_id)).content.decode()
    for operation in ("cancel", "resume", "retry", "rerun", "fork"):
        assert client_of(operator).post(url_of(run_id, operation), {"reason": "x"}).status_code == 403
    client_of(operator).post(
        list_url(), {"action": "cancel_selected", "_selected_action": [run_id], "confirmed": "1", "reason": "x"}
    )
    assert WorkflowRun.objects.get().status == "running"


def test_an_operation_that_is_none_is_not_found(client: Client) -> None:
    assert client.get(url_of(Story().tell(), "explode")).status_code == 404


# -- many at once ------------------------------------------------------------------------------------------------------


def test_many_are_cancelled_after_a_question(client: Client) -> None:
    live = [order_in_flight(now()).tell() for _ in range(2)]
    over = failed_order(now()).tell()
    choice = {"action": "cancel_selected", "_selected_action": [*live, over]}

    question = client.post(list_url(), choice)
    context = context_of(question)
    assert sorted(run.pk for run in context["rows"]) == sorted(live)
    assert context["left"] == 1
    assert WorkflowRun.objects.filter(status="cancelled").count() == 0
    unsaid = client.post(list_url(), {**choice, "confirmed": "1", "reason": ""})
    assert context_of(unsaid)["form"].errors.keys() == {"reason"}
    response = client.post(list_url(), {**choice, "confirmed": "1", "reason": "stock is gone"}, follow=True)

    assert sorted(WorkflowRun.objects.filter(status="cancelled").values_list("pk", flat=True)) == sorted(live)
    assert said(response) == ["2 runs: cancelled.", "1 run was left as it is."]
    assert {entry.object_id for entry in LogEntry.objects.all()} == set(live)


def test_many_are_retried(client: Client) -> None:
    failed = [failed_order(now()).tell() for _ in range(2)]
    choice = {"action": "retry_selected", "_selected_action": failed, "confirmed": "1", "reason": ""}

    first = client.post(list_url(), choice, follow=True)
    second = client.post(list_url(), choice, follow=True)

    assert WorkflowRun.objects.filter(origin_run_id__in=failed).count() == 2
    assert said(first) == ["2 runs: retried."]
    assert said(second) == ["2 runs were left as they are."]


def test_none_of_them_can_be_changed(client: Client) -> None:
    over = failed_order(now()).tell()

    page = client.post(list_url(), {"action": "cancel_selected", "_selected_action": [over]}).content.decode()

    assert "None of those you chose can be changed so. It has ended." in page
