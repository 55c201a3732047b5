"""Every address of the console, for every kind of caller. They are found by introspection: a new one is tested too."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.contrib import admin
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import URLPattern, reverse

from pikku_storage.workflows.models import WorkflowRun, WorkflowStep, WorkflowStepHistory, WorkflowVersion
from pikku_storage.workflows.service import WorkflowService
from tests.console.conftest import client_of
from tests.console.stories import failed_order, now

pytestmark = pytest.mark.django_db

MODELS = (WorkflowRun, WorkflowStep, WorkflowStepHistory, WorkflowVersion)
PARTS = {"payload": "input", "step_payload": "output"}


def patterns() -> Iterator[URLPattern]:
    for model in MODELS:
        yield from admin.site.get_model_admin(model).get_urls()


def names() -> list[str]:
    return [str(pattern.name) for pattern in patterns()]


@pytest.fixture
def rows(db: None) -> dict[str, str]:
    """The ids that addresses are made with."""
    story = failed_order(now())
    run_id = story.tell()
    WorkflowService().upsert_workflow_version("w", "h", {}, "complex")
    return {
        "workflowrun": run_id,
        "workflowstep": story.steps[0].pk,
        "workflowstephistory": story.attempts[0].pk,
        "workflowversion": WorkflowVersion.objects.get().pk,
    }


def address(name: str, rows: dict[str, str], *, missing: bool = False) -> str:
    """An address with ids that exist, or that do not."""
    pattern = next(pattern for pattern in patterns() if pattern.name == name)
    model = name.split("_")[2]
    kwargs = {}
    for key in pattern.pattern.converters:
        if key == "object_id":
            kwargs[key] = "no-such-id" if missing else rows[model]
        elif key == "step_id":
            kwargs[key] = rows["workflowstep"]
        elif key == "operation":
            kwargs[key] = "retry"
        else:
            kwargs[key] = PARTS[name.split("_", 3)[3]]
    return reverse(f"admin:{name}", kwargs=kwargs)


def test_there_is_nothing_to_add_change_or_delete() -> None:
    assert sorted(name.removeprefix("pikku_workflows_") for name in names()) == [
        "workflowrun_change",
        "workflowrun_changelist",
        "workflowrun_events",
        "workflowrun_live",
        "workflowrun_operation",
        "workflowrun_payload",
        "workflowrun_step",
        "workflowrun_step_payload",
        "workflowstep_change",
        "workflowstep_changelist",
        "workflowstephistory_change",
        "workflowstephistory_changelist",
        "workflowversion_change",
        "workflowversion_changelist",
    ]


@pytest.mark.parametrize("name", names())
def test_who_gets_what(name: str, rows: dict[str, str], clerk: User, operator: User, superuser: User) -> None:
    url = address(name, rows)
    is_list = name.endswith("_changelist")
    member = User.objects.create_user("member", password="pass")
    # Nobody and people who are no staff are asked to log in.
    for client in (Client(), client_of(member)):
        response = client.get(url)
        assert response.status_code == 302
        assert response.headers["Location"].startswith("/admin/login/")
    assert client_of(clerk).get(url).status_code == (403 if is_list else 404)
    assert client_of(operator).get(url).status_code == (403 if name.endswith("_operation") else 200)
    assert client_of(superuser).get(url).status_code == 200


@pytest.mark.parametrize("name", [name for name in names() if not name.endswith("_changelist")])
def test_what_is_not_there_and_what_is_not_yours_answer_alike(
    name: str, rows: dict[str, str], clerk: User, operator: User
) -> None:
    forbidden = client_of(clerk).get(address(name, rows))
    foreign = client_of(clerk).get(address(name, rows, missing=True))
    missing = client_of(operator).get(address(name, rows, missing=True))
    assert (forbidden.status_code, foreign.status_code, missing.status_code) == (404, 404, 404)
    assert forbidden.content == foreign.content


@pytest.mark.parametrize("name", [name for name in names() if "_workflowrun_" in name])
def test_the_permission_for_steps_is_none_for_runs(name: str, rows: dict[str, str], clerk: User) -> None:
    clerk.user_permissions.add(Permission.objects.get(codename="view_workflowstep"))
    assert client_of(clerk).get(address(name, rows)).status_code in {403, 404}


@pytest.mark.parametrize("name", names())
def test_rows_cannot_be_posted(name: str, rows: dict[str, str], operator: User, superuser: User) -> None:
    before = (WorkflowRun.objects.count(), WorkflowStep.objects.count(), WorkflowVersion.objects.count())
    data = {"status": "completed", "_save": "1"}
    # An operation's page takes a reason; who may only look cannot give one.
    caller = operator if name.endswith("_operation") else superuser
    client_of(caller).post(address(name, rows), data)
    assert before == (WorkflowRun.objects.count(), WorkflowStep.objects.count(), WorkflowVersion.objects.count())
    assert WorkflowRun.objects.get().status == "failed"


@pytest.mark.parametrize("tail", ["add/", "{id}/delete/", "{id}/history/", "{id}/"])
def test_the_admins_own_forms_are_gone(tail: str, rows: dict[str, str], superuser: User) -> None:
    url = f"/admin/pikku_workflows/workflowrun/{tail.format(id=rows['workflowrun'])}"
    assert client_of(superuser).get(url).status_code == 404


def test_a_step_of_another_run_is_not_found(rows: dict[str, str], superuser: User) -> None:
    other = failed_order(now()).tell()
    client = client_of(superuser)
    for view, *more in (("step",), ("step_payload", "input")):
        url = reverse(f"admin:pikku_workflows_workflowrun_{view}", args=[other, rows["workflowstep"], *more])
        assert client.get(url).status_code == 404


@pytest.mark.parametrize("part", ["wire", "pass_token", "claim_token", "id"])
def test_only_payloads_can_be_read_as_payloads(part: str, rows: dict[str, str], superuser: User) -> None:
    client = client_of(superuser)
    run, step = rows["workflowrun"], rows["workflowstep"]
    assert client.get(f"/admin/pikku_workflows/workflowrun/{run}/payload/{part}/").status_code == 404
    assert client.get(f"/admin/pikku_workflows/workflowrun/{run}/steps/{step}/{part}/").status_code == 404


def test_the_index_shows_only_what_one_may_see(clerk: User, operator: User) -> None:
    assert "workflowrun" not in client_of(clerk).get("/admin/").content.decode()
    assert "workflowrun" in client_of(operator).get("/admin/").content.decode()


def test_a_permission_that_is_taken_away_counts_at_once(rows: dict[str, str], operator: User) -> None:
    client = client_of(operator)
    url = address("pikku_workflows_workflowrun_change", rows)
    assert client.get(url).status_code == 200
    operator.user_permissions.clear()
    assert client.get(url).status_code == 404
