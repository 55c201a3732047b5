"""Schedules in the admin: who may do what, the list, the form and the actions."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from pikku_storage.db.clock import travel
from pikku_storage.exceptions import WorkflowInputError
from pikku_storage.workflows import workflow
from pikku_storage.workflows.flow import Flow
from pikku_storage.workflows.models import WorkflowRun, WorkflowSchedule
from pikku_storage.workflows.records import Schedule
from pikku_storage.workflows.registry import registry
from pikku_storage.workflows.schedules.service import ScheduleService
from pikku_storage.workflows.service import WorkflowService
from tests.conformance.recording import events
from tests.conformance.support import DATABASE
from tests.console.conftest import client_of, context_of
from tests.console.urls import list_url, url_of

pytestmark = pytest.mark.django_db

NAME = "prices from Acme / daily"
VALUES = {
    "name": NAME,
    "workflow": "prices",
    "input": '{"supplier": "acme"}',
    "owner_id": "",
    "cron": "0 6 * * mon-fri",
    "timezone": "America/New_York",
    "catch_up": "latest",
    "overlap": "skip",
    "enabled": "on",
}


@pytest.fixture(autouse=True)
def workflows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "workflows", {})

    @workflow
    def prices(flow: Flow, supplier: str) -> None: ...

    @workflow(schedule="@hourly")
    def tidy_up(flow: Flow) -> None: ...


@pytest.fixture
def schedules() -> ScheduleService:
    """One that an operator made, and one of the code."""
    service = ScheduleService()
    service.create(NAME, "prices", "0 6 * * mon-fri", timezone="America/New_York", data={"supplier": "acme"})
    service.synchronise()
    return service


def address(view: str, name: str | None = NAME) -> str:
    args = [] if name is None else [WorkflowSchedule.id_of(name)]
    return reverse(f"admin:pikku_workflows_workflowschedule_{view}", args=args)


def stored(name: str = NAME) -> Schedule:
    schedule = ScheduleService().get(name)
    assert schedule is not None
    return schedule


def refused(response: Any) -> dict[str, list[str]]:
    """The errors of a form, by field."""
    assert response.status_code == 200
    return {field: list(errors) for field, errors in context_of(response)["adminform"].form.errors.items()}


def said(response: Any) -> list[str]:
    """The messages on top of a page."""
    return [str(message) for message in response.context["messages"]]


# -- the gate ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("who", ["clerk", "operator"])
def test_who_may_only_look_changes_nothing(
    schedules: ScheduleService, who: str, request: pytest.FixtureRequest
) -> None:
    before = stored()
    client = client_of(request.getfixturevalue(who))
    client.post(address("change"), {**VALUES, "cron": "@hourly", "enabled": ""})
    client.post(address("changelist", None), {"action": "pause", "_selected_action": [before.id]})
    client.post(address("delete"), {"post": "yes"})
    client.post(address("changelist", None), {"action": "delete_selected", "_selected_action": [before.id]})
    client.post(address("add", None), {**VALUES, "name": "another"})
    assert stored() == before
    assert len(schedules.list()) == 2


# -- the list ----------------------------------------------------------------------------------------------------------


def test_the_list_says_what_fires_when(schedules: ScheduleService, root_client: Client) -> None:
    with travel(timedelta(hours=2)):
        WorkflowService().relay()
    schedules.pause(NAME)
    run = WorkflowRun.objects.get(workflow="tidy_up")
    page = root_client.get(list_url("workflowschedule")).content.decode()
    for text in (NAME, "tidy_up", "@hourly", "0 6 * * mon-fri", "America/New_York", "pk-is-paused", "pk-is-active"):
        assert text in page
    assert url_of(run.pk) in page


def test_the_list_costs_the_same_however_long(root_client: Client) -> None:
    counts = []
    for number in range(3):
        ScheduleService().create(f"s{number}", "prices", "@daily", data={"supplier": "acme"})
        with CaptureQueriesContext(connection) as seen:
            assert root_client.get(list_url("workflowschedule")).status_code == 200
        counts.append(len(seen.captured_queries))
    assert len(set(counts)) == 1
    assert not any('"workflow_schedules"."input"' in query["sql"] for query in seen.captured_queries)


@pytest.mark.parametrize(("term", "found"), [("prices from", 1), ("tidy_up", 1), ("Acme", 0), ("prices", 1)])
def test_search(schedules: ScheduleService, root_client: Client, term: str, found: int) -> None:
    response = root_client.get(list_url("workflowschedule"), {"q": term})
    assert len(context_of(response)["cl"].result_list) == found


def test_an_empty_list_says_how_to_get_a_first_one(root_client: Client) -> None:
    assert "There are no schedules yet." in root_client.get(list_url("workflowschedule")).content.decode()


# -- the form ----------------------------------------------------------------------------------------------------------


def test_adding_one(root_client: Client, superuser: User) -> None:
    page = root_client.get(address("add", None))
    assert page.status_code == 200
    response = root_client.post(address("add", None), {**VALUES, "owner_id": "7", "_save": "1"})
    assert response.status_code == 302
    schedule = stored()
    assert (schedule.workflow, schedule.input, schedule.owner_id) == ("prices", {"supplier": "acme"}, "7")
    assert (schedule.cron, schedule.timezone, schedule.overlap) == ("0 6 * * mon-fri", "America/New_York", "skip")
    assert (schedule.source, schedule.is_active) == ("operator", True)
    assert LogEntry.objects.get().object_id == schedule.id


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("name", "", "required"),
        ("name", "tidy_up", "The code declares"),
        ("name", "taken", "There is a schedule of this name"),
        ("workflow", "no such", "not one of the available choices"),
        ("input", "{", "valid JSON"),
        ("input", "[1]", "must be a JSON object"),
        ("input", "{}", "missing 'supplier'"),
        ("input", '{"supplier": "a", "colour": "red"}', "unexpected 'colour'"),
        ("input", '{"supplier": 99999999999999999999}', "more than 64 bits"),
        ("cron", "61 * * * *", "Bad minute"),
        ("cron", "0 0 31 2 *", "Bad day-of-month"),
        ("timezone", "Mars/Phobos", "is no time zone"),
        ("catch_up", "some", "not one of the available choices"),
    ],
)
def test_what_cannot_be_used_is_said_beside_its_field(root_client: Client, field: str, value: str, says: str) -> None:
    ScheduleService().create("taken", "prices", "@daily", data={"supplier": "acme"})
    errors = refused(root_client.post(address("add", None), {**VALUES, field: value}))
    assert list(errors) == [field]
    assert says in errors[field][0]
    assert [schedule.name for schedule in ScheduleService().list()] == ["taken"]


def test_changing_one(schedules: ScheduleService, root_client: Client) -> None:
    page = root_client.get(address("change")).content.decode()
    assert page.count(" 06:00 E") == 5
    assert ">None<" not in page
    assert 'name="workflow"' not in page

    changed = {**VALUES, "cron": "0 7 * * *", "input": '{"supplier": "zenith"}'}
    assert root_client.post(address("change"), changed).status_code == 302
    schedule = stored()
    assert (schedule.cron, schedule.input, schedule.workflow) == ("0 7 * * *", {"supplier": "zenith"}, "prices")
    assert schedule.next_fire_at is not None

    assert root_client.post(address("change"), {**changed, "enabled": ""}).status_code == 302
    assert stored().state == "paused"
    assert root_client.post(address("change"), changed).status_code == 302
    assert stored().state == "active"
    assert "supplier" in refused(root_client.post(address("change"), {**changed, "input": "{}"}))["input"][0]
    entries = LogEntry.objects.filter(object_id=schedule.id).count()
    assert entries == 3
    assert root_client.get(address("history")).status_code == 200


def test_what_the_code_declares_can_only_be_paused(schedules: ScheduleService, root_client: Client) -> None:
    before = stored("tidy_up")
    page = root_client.get(address("change", "tidy_up")).content.decode()
    assert 'name="cron"' not in page
    assert 'name="enabled"' in page
    root_client.post(address("change", "tidy_up"), {**VALUES, "enabled": ""})
    after = stored("tidy_up")
    assert after.state == "paused"
    assert (after.cron, after.timezone, after.input, after.overlap) == (
        *(before.cron, before.timezone),
        *(before.input, before.overlap),
    )
    assert root_client.post(address("delete", "tidy_up"), {"post": "yes"}).status_code == 403


def test_what_the_service_refuses_after_all_is_said(
    root_client: Client, schedules: ScheduleService, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: ScheduleService, name: str, **changes: Any) -> None:
        raise WorkflowInputError("somebody was faster")

    monkeypatch.setattr(ScheduleService, "update", refuse)
    response = root_client.post(address("change"), {**VALUES, "cron": "@hourly"}, follow=True)
    assert said(response) == ["somebody was faster"]


def test_deleting_one(schedules: ScheduleService, root_client: Client) -> None:
    assert root_client.get(address("delete")).status_code == 200
    assert root_client.post(address("delete"), {"post": "yes"}).status_code == 302
    assert [schedule.name for schedule in schedules.list()] == ["tidy_up"]


# -- actions -----------------------------------------------------------------------------------------------------------


def act(client: Client, action: str, **more: str) -> Any:
    """Do something with both schedules."""
    chosen = [WorkflowSchedule.id_of(name) for name in (NAME, "tidy_up")]
    data = {"action": action, "_selected_action": chosen, **more}
    return client.post(address("changelist", None), data, follow=True)


def test_pausing_and_resuming_what_is_chosen(schedules: ScheduleService, root_client: Client) -> None:
    schedules.pause(NAME)
    assert said(act(root_client, "pause")) == ["1 schedule was paused."]
    assert {schedule.state for schedule in schedules.list()} == {"paused"}
    assert said(act(root_client, "resume")) == ["2 schedules were resumed."]
    assert {schedule.state for schedule in schedules.list()} == {"active"}
    assert said(act(root_client, "resume")) == ["0 schedules were resumed."]
    assert LogEntry.objects.count() == 3


def test_deleting_what_is_chosen_keeps_what_the_code_declares(schedules: ScheduleService, root_client: Client) -> None:
    assert act(root_client, "delete_selected", post="yes").status_code == 403
    assert len(schedules.list()) == 2
    registry.workflows.pop("tidy_up")
    schedules.synchronise()
    act(root_client, "delete_selected", post="yes")
    assert schedules.list() == []


def test_the_page_of_a_run_names_its_schedule(root_client: Client, schedules: ScheduleService) -> None:
    with travel(timedelta(hours=2)):
        WorkflowService().relay()
    run = WorkflowRun.objects.get(workflow="tidy_up")
    page = root_client.get(url_of(run.pk)).content.decode()
    fire = datetime.fromisoformat(run.wire["fireTime"])
    assert "schedule · tidy_up · queued" in page
    assert f"for {fire:%Y-%m-%d %H}:00 UTC" in page


def test_what_operators_change_reaches_the_audit_trail(
    schedules: ScheduleService, root_client: Client, settings: Any, django_capture_on_commit_callbacks: Any
) -> None:
    settings.PIKKU_STORAGE = {**settings.PIKKU_STORAGE, "AUDIT_SINK": "tests.conformance.recording.keep_event"}
    events.clear()
    with django_capture_on_commit_callbacks(using=DATABASE, execute=True):
        root_client.post(address("change", NAME), {**VALUES, "cron": "0 7 * * *", "enabled": ""})
        chosen = {"action": "resume", "_selected_action": [stored(NAME).id]}
        root_client.post(list_url("workflowschedule"), chosen)
        root_client.post(address("delete", NAME), {"post": "yes"})
    told = [(event.type, event.metadata["schedule"], event.actor.user_id is not None) for event in events]
    kinds = ["updated", "paused", "resumed", "deleted"]
    assert told == [(f"workflow.schedule.{kind}", NAME, True) for kind in kinds]
    assert events[0].metadata["changed"] == ["cron", "overlap"]
    events.clear()
