"""Controls in the admin: who may pause workflows and change their limits, and that it is done."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from pikku_storage.workflows import workflow
from pikku_storage.workflows.flow import Flow
from pikku_storage.workflows.models import WorkflowControl
from pikku_storage.workflows.records import Control
from pikku_storage.workflows.registry import registry
from pikku_storage.workflows.service import WorkflowService
from tests.console.conftest import client_of, context_of

pytestmark = pytest.mark.django_db

EMPTY = {"paused_reason": "", "concurrency": "", "concurrency_per_key": "", "rate_limit": ""}


@pytest.fixture(autouse=True)
def workflows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "workflows", {})

    @workflow(name="sync / all")
    def sync(flow: Flow) -> None: ...

    @workflow
    def other(flow: Flow) -> None: ...


def address(view: str, name: str | None = "sync / all") -> str:
    args = [] if name is None else [name]
    return reverse(f"admin:pikku_workflows_workflowcontrol_{view}", args=args)


def stored(name: str = "sync / all") -> Control:
    control = WorkflowService().get_workflow_control(name)
    assert control is not None
    return control


@pytest.fixture
def paused() -> None:
    WorkflowService().pause_workflow("sync / all", reason="a fire")


def test_who_may_only_look_changes_nothing(paused: None, operator: User) -> None:
    client = client_of(operator)
    assert client.post(address("change"), EMPTY).status_code == 403
    client.post(address("changelist", None), {"action": "unpause", "_selected_action": ["sync / all"]})
    assert stored().is_paused
    assert client.get(address("change", "other")).status_code == 404


def test_a_list_without_controls_says_what_it_is_for(root_client: Client) -> None:
    page = root_client.get(address("changelist", None)).content.decode()
    assert "Every workflow goes by its code." in page


def test_a_list_takes_as_many_queries_however_long_it_is(root_client: Client, superuser: User) -> None:
    counts = []
    for name in ("sync / all", "other"):
        WorkflowService().pause_workflow(name, by=superuser)
        with CaptureQueriesContext(connection) as seen:
            assert root_client.get(address("changelist", None)).status_code == 200
        counts.append(len(seen.captured_queries))
    assert counts[0] == counts[1]


def test_pausing_a_workflow_and_limiting_it(root_client: Client, superuser: User) -> None:
    data = {**EMPTY, "workflow": "sync / all", "is_paused": "on", "paused_reason": "a fire", "concurrency": "3"}
    assert root_client.post(address("add", None), data).status_code == 302

    control = stored()
    assert (control.is_paused, control.paused_reason, control.paused_by) == (True, "a fire", str(superuser.pk))
    assert (control.concurrency, control.concurrency_per_key, control.rate_limit) == (3, None, None)
    page = root_client.get(address("changelist", None)).content.decode()
    assert "a fire · root" in page
    assert "pk-is-paused" in page
    assert LogEntry.objects.get().object_id == "sync / all"


def test_letting_it_go_on_and_putting_the_codes_limits_back(root_client: Client, paused: None) -> None:
    WorkflowService().set_limits("sync / all", concurrency=3, rate_limit="5/1m")

    root_client.post(address("change"), {**EMPTY, "rate_limit": "9/1h"})

    control = stored()
    assert (control.is_paused, control.concurrency, control.rate_limit) == (False, None, "9/1h")


def test_another_reason(root_client: Client, paused: None) -> None:
    root_client.post(address("change"), {**EMPTY, "is_paused": "on", "paused_reason": "a flood"})

    assert (stored().is_paused, stored().paused_reason) == (True, "a flood")


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"rate_limit": "often"}, "rate_limit"),
        ({"concurrency": "0"}, "concurrency"),
        ({"concurrency_per_key": "many"}, "concurrency_per_key"),
        ({"paused_reason": "no pause"}, "paused_reason"),
        ({"workflow": "nobody"}, "workflow"),
    ],
)
def test_what_cannot_be_set_is_refused(root_client: Client, values: dict[str, Any], field: str) -> None:
    response = root_client.post(address("add", None), {**EMPTY, "workflow": "other", **values})

    assert response.status_code == 200
    assert field in context_of(response)["adminform"].form.errors
    assert not WorkflowControl.objects.exists()


def test_several_at_once(root_client: Client, paused: None) -> None:
    WorkflowService().set_limits("other", concurrency=1)
    chosen = {"_selected_action": ["sync / all", "other"]}

    root_client.post(address("changelist", None), {"action": "pause", **chosen})
    assert (stored().paused_reason, stored("other").is_paused) == ("a fire", True)
    root_client.post(address("changelist", None), {"action": "unpause", **chosen})
    assert (stored().is_paused, stored("other").is_paused) == (False, False)
    assert LogEntry.objects.count() == 3
