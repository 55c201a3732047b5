"""From a user to what is theirs in the rooms, and from there back to the user; and how a gate is called."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import Client

from pikku_storage.workflows.gates import APPROVAL_RPC, SUSPEND_RPC, gate_name, shown_name
from tests.console.agent_stories import conversation, thread_url
from tests.console.conftest import client_of, staff_with
from tests.console.stories import Story
from tests.console.urls import url_of

pytestmark = pytest.mark.django_db


def page_of(client: Client, url: str) -> str:
    response = client.get(url)
    assert response.status_code == 200, url
    return response.content.decode()


def test_an_owner_leads_to_their_page_and_from_there_to_all_that_is_theirs(root_client: Client) -> None:
    olga = User.objects.create_user("olga")
    home = f"/admin/pikku_access/userrole/{olga.pk}/change/"
    link = f'<a href="{home}">olga</a>'
    thread_id = conversation(str(olga.pk))
    assert link in page_of(root_client, url_of(Story(options={"owner_id": str(olga.pk)}).tell()))
    assert link in page_of(root_client, thread_url(thread_id))
    page = page_of(root_client, home)
    for url in (
        f"/admin/pikku_workflows/workflowrun/?owner={olga.pk}",
        f"/admin/pikku_agents/agentthread/?resource={olga.pk}",
        f"/admin/pikku_secrets/credential/?q={olga.pk}",
        f"/admin/pikku_audit/auditentry/?user={olga.pk}",
    ):
        assert f'href="{url}"' in page
        assert root_client.get(url).status_code == 200
    assert thread_id in page_of(root_client, f"/admin/pikku_agents/agentthread/?resource={olga.pk}")


def test_nobody_is_led_where_they_may_not_go(db: None) -> None:
    olga = User.objects.create_user("olga")
    run_id = Story(options={"owner_id": str(olga.pk)}).tell()
    page = page_of(client_of(staff_with("admin:workflows:read", name="operator")), url_of(run_id))
    assert "<dd>olga</dd>" in page
    keeper = client_of(staff_with("admin:scopes:read", "admin:audit:read", name="keeper"))
    page = page_of(keeper, f"/admin/pikku_access/userrole/{olga.pk}/change/")
    assert "auditentry/?user=" in page
    assert "workflowrun/?owner=" not in page
    assert "agentthread/?resource=" not in page


def test_an_owner_who_is_no_user_leads_nowhere(root_client: Client) -> None:
    assert "<dd>somebody-else</dd>" in page_of(root_client, url_of(Story(options={"owner_id": "somebody-else"}).tell()))
    assert "<dd>guest:eu</dd>" in page_of(root_client, thread_url(conversation("guest:eu")))


@pytest.mark.parametrize("rpc_name", [APPROVAL_RPC, SUSPEND_RPC])
def test_a_gate_is_called_by_what_it_asks(rpc_name: str) -> None:
    assert shown_name(gate_name(rpc_name, "release")) == "release"
    # Without a reason there is nothing better than the name.
    assert shown_name(gate_name(rpc_name, "")) == gate_name(rpc_name, "")
    assert shown_name("charge card") == "charge card"
