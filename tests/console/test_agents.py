"""The room of agents: lists, the page of a thread, and what it costs."""

from __future__ import annotations

import html
import json
import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import DELETION, LogEntry
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from console.agents import reads
from console.tabs import COUNT_UP_TO
from pikku_storage.agents.models import (
    AgentCheckpoint,
    AgentMessage,
    AgentRun,
    AgentThread,
    AgentToolCall,
)
from pikku_storage.agents.service import AgentStorageService
from pikku_storage.auditing import AuditEvent
from pikku_storage.workflows.context import StepContext, inside
from pikku_storage.workflows.models import WorkflowRun
from tests.console.agent_stories import (
    HOSTILE,
    MARKUP,
    address,
    approval_url,
    busy_afternoon,
    conversation,
    many_messages,
    thread_url,
    touched,
    waiting,
)
from tests.console.conftest import client_of, context_of, staff_with
from tests.console.stories import Story, now
from tests.console.urls import url_of

pytestmark = pytest.mark.django_db

THREADS = "agentthread"
LIMIT = 300_000
"""Bytes of a page."""
audited: list[AuditEvent] = []


def keep(event: AuditEvent) -> None:
    """Where the audit trail goes."""
    audited.append(event)


@pytest.fixture
def storage() -> AgentStorageService:
    return AgentStorageService()


@pytest.fixture
def trail(settings: Settings) -> list[AuditEvent]:
    settings.PIKKU_STORAGE = {**settings.PIKKU_STORAGE, "AUDIT_SINK": f"{__name__}.keep"}
    audited.clear()
    return audited


def listed(response: Any) -> list[str]:
    """The ids of the listed rows."""
    assert response.status_code == 200
    return [row.pk for row in context_of(response)["cl"].result_list]


def text_of(response: Any) -> str:
    """What a page says, without its markup."""
    assert response.status_code == 200
    return html.unescape(re.sub(r"<[^>]+>", " ", response.content.decode()))


def queries(client: Client, url: str) -> int:
    """How many statements a page takes."""
    with CaptureQueriesContext(connection) as seen:
        assert client.get(url).status_code == 200
    return len(seen.captured_queries)


# -- the list ----------------------------------------------------------------------------------------------------------


def test_columns(root_client: Client, storage: AgentStorageService) -> None:
    ada = User.objects.create_user("ada")
    thread_id = conversation(f"{ada.pk}:shop")
    waiting("eve")
    page = text_of(root_client.get(address(THREADS)))
    for words in ("A broken pot", "ada · shop", "support", "271", "eve", "964", "1 approval"):
        assert words in page
    (row,) = [row for row in context_of(root_client.get(address(THREADS)))["cl"].result_list if row.pk == thread_id]
    assert row.__dict__["console_facts"].facts == reads.ThreadFacts(
        agent="support", messages=2, runs=1, tokens=271, waiting=0
    )


def test_the_agent_is_the_one_that_ran_last(storage: AgentStorageService) -> None:
    thread_id = conversation("ada")
    later = now() + timedelta(seconds=5)
    storage.create_run(agent_name="second", thread_id=thread_id, resource_id="ada", created_at=later)
    assert reads.read_facts(storage.using, [thread_id])[thread_id].agent == "second"


def test_long_threads_are_not_counted(
    root_client: Client, storage: AgentStorageService, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("console.tabs", "console.agents.reads", "console.agents.admin.threads"):
        monkeypatch.setattr(f"{module}.COUNT_UP_TO", 5)
    short, long = conversation("ada"), conversation("ada")
    many_messages(long, 4)
    for _ in range(5):
        storage.create_run(agent_name="support", thread_id=long, resource_id="ada")
    facts = reads.read_facts(storage.using, [short, long])
    assert (facts[short].messages, facts[short].runs, facts[short].tokens) == (2, 1, 271)
    assert (facts[long].messages, facts[long].runs, facts[long].tokens) == (None, None, None)
    assert "5+" in text_of(root_client.get(address(THREADS)))
    assert root_client.get(thread_url(long, "delete")).status_code == 200


def test_paging_by_the_last_activity(root_client: Client) -> None:
    ids = [conversation("ada", title=None) for _ in range(60)]
    # Several share a time, so that the id decides.
    at = now()
    for place, thread_id in enumerate(ids):
        AgentThread.everyones.filter(pk=thread_id).update(updated_at=at - timedelta(seconds=place // 7))
    first = root_client.get(address(THREADS))
    second = root_client.get(address(THREADS) + context_of(first)["cl"].older_url)
    seen = [*listed(first), *listed(second)]
    assert (len(listed(first)), len(seen), set(seen)) == (50, 60, set(ids))
    back = root_client.get(address(THREADS) + context_of(second)["cl"].newer_url)
    assert listed(back) == listed(first)


@pytest.mark.parametrize("model", ["agentthread", "agentrun", "agentapproval"])
def test_a_list_takes_as_many_queries_however_long_it_is(root_client: Client, model: str) -> None:
    counts = []
    for more in (3, 20):
        for number in range(more):
            waiting(f"user-{number}")
        counts.append(queries(root_client, address(model)))
    assert counts[0] == counts[1] <= 15


def test_search(root_client: Client, storage: AgentStorageService) -> None:
    ada = User.objects.create_user("ada")
    own, other = conversation(str(ada.pk), thread_id="t/1"), conversation("eve:t", thread_id="T/2", agent_name="other")
    found, call_id = waiting("x", thread_id="t%3")
    run = AgentRun.everyones.get(thread_id=own).pk
    for term, expected in [
        ("t/", [own]),
        ("T/", [other]),
        ("t", [own, found]),
        ("%", []),
        ("ada", [own]),
        (str(ada.pk), [own]),
        ("eve", [other]),
        ("other", [other]),
        (run, [own]),
        (call_id, [found]),
        ("nothing of the kind", []),
    ]:
        assert sorted(listed(root_client.get(address(THREADS), {"q": term}))) == sorted(expected), term
    second = AgentRun.everyones.get(thread_id=other).pk
    for term, runs in [(run[:30], [run]), ("t/1", [run]), ("eve", [second]), ("other", [second]), ("%", [])]:
        assert listed(root_client.get(address("agentrun"), {"q": term})) == runs, term


def test_a_search_reaches_nothing_of_others() -> None:
    ada = User.objects.create_user("ada", is_staff=True)
    foreign, call_id = waiting("eve")
    for term in (foreign, call_id, "eve", "support"):
        assert listed(client_of(ada).get(address(THREADS), {"q": term})) == []
    assert listed(client_of(ada).get(address(THREADS), {"agent": "support"})) == []
    assert listed(client_of(ada).get(address(THREADS), {"resource": "eve"})) == []
    assert listed(client_of(ada).get(address(THREADS), {"status": "waiting"})) == []
    assert listed(client_of(ada).get(address("agentrun"), {"thread": foreign})) == []
    # The menus name no agent of others.
    assert "support" not in text_of(client_of(ada).get(address(THREADS)))


def test_filters(root_client: Client) -> None:
    own, foreign = conversation("ada:shop"), conversation("ad", agent_name="other")
    asks, _call = waiting("ada", expires_at=now() + timedelta(days=1))
    late, _call = waiting("ada", expires_at=now() - timedelta(seconds=1))
    touched([own, foreign, asks], now() - timedelta(days=2))
    for params, expected in [
        ({"agent": "other"}, [foreign]),
        ({"agent": "nobody"}, []),
        ({"resource": "ada"}, [own, asks, late]),
        ({"resource": "ada:shop"}, [own]),
        ({"status": "waiting"}, [asks]),
        ({"status": "no such"}, []),
        ({"active": "24h"}, [late]),
        ({"active": "7d", "agent": "other"}, [foreign]),
    ]:
        assert sorted(listed(root_client.get(address(THREADS), params))) == sorted(expected), params
    for params, count in [
        ({"status": "suspended"}, 2),
        ({"status": "completed", "agent": "other"}, 1),
        ({"status": "x"}, 0),
    ]:
        assert len(listed(root_client.get(address("agentrun"), params))) == count, params
    assert len(listed(root_client.get(address("agentrun"), {"thread": asks}))) == 1


def test_empty_lists_say_why(root_client: Client) -> None:
    ada = client_of(User.objects.create_user("ada", is_staff=True))
    assert "No agent has kept a thread yet." in text_of(root_client.get(address(THREADS)))
    assert "You have no threads." in text_of(ada.get(address(THREADS)))
    assert "No agent has run yet." in text_of(root_client.get(address("agentrun")))
    assert "Nothing waits for you." in text_of(ada.get(address("agentapproval")))


# -- who sees what -----------------------------------------------------------------------------------------------------


def organisation_of(user: User) -> str:
    return "acme"


def test_owners_see_their_own_and_that_of_their_organisation(settings: Settings) -> None:
    settings.PIKKU_STORAGE = {**settings.PIKKU_STORAGE, "USER_ORGANISATION": f"{__name__}.organisation_of"}
    ada = User.objects.create_user("ada", is_staff=True)
    ids = [conversation(owner) for owner in (str(ada.pk), f"{ada.pk}:shop", "acme", "acme:x")]
    strangers = [conversation(owner) for owner in (f"{ada.pk}1", "acmeinc", f"eve:{ada.pk}", "eve")]
    client = client_of(ada)
    assert sorted(listed(client.get(address(THREADS)))) == sorted(ids)
    assert len(listed(client.get(address("agentrun")))) == len(ids)
    assert [client.get(thread_url(each)).status_code for each in ids] == [200] * 4
    assert [client.get(thread_url(each)).status_code for each in strangers] == [404] * 4
    inactive = client_of(User.objects.create_user("bob", is_staff=False))
    assert inactive.get(thread_url(ids[2])).status_code == 302


def test_a_foreign_run_in_ones_own_thread_stays_out(storage: AgentStorageService) -> None:
    ada = User.objects.create_user("ada", is_staff=True)
    own = conversation(str(ada.pk))
    foreign = storage.create_run(agent_name="spy", thread_id=own, resource_id="eve")
    strange = conversation("eve", title="Of somebody else")
    mine = storage.create_run(agent_name="guest", thread_id=strange, resource_id=str(ada.pk))
    client = client_of(ada)
    assert "spy" not in [view.run.agent_name for view in context_of(client.get(thread_url(own)))["page"].runs]
    assert client.get(address("agentrun", "change", foreign)).status_code == 404
    # One's own run in a foreign thread says nothing of the thread.
    for url in (address("agentrun"), address("agentrun", "change", mine)):
        assert "Of somebody else" not in text_of(client.get(url))
    assert client.get(thread_url(strange)).status_code == 404


def test_parts_of_another_thread_are_not_found(root_client: Client) -> None:
    thread_id, call_id = waiting("ada")
    other = conversation("ada")
    message_id = str(AgentMessage.everyones.filter(thread_id=thread_id).values_list("pk", flat=True)[0])
    assert root_client.get(thread_url(thread_id, "message", message_id)).status_code == 200
    assert root_client.get(thread_url(other, "message", message_id)).status_code == 404
    assert root_client.get(thread_url(thread_id, "call", call_id, "args")).status_code == 200
    assert root_client.get(thread_url(other, "call", call_id, "args")).status_code == 404
    for part in ("id", "approval_reason", "run_id"):
        assert root_client.get(thread_url(thread_id, "call", call_id, part)).status_code == 404
    for scope in ("thread", "resource", "other"):
        assert root_client.get(thread_url(thread_id, "memory", scope)).status_code == 404


# -- the page ----------------------------------------------------------------------------------------------------------


def test_a_conversation(root_client: Client) -> None:
    ada = User.objects.create_user("ada")
    thread_id = busy_afternoon(str(ada.pk))
    response = root_client.get(thread_url(thread_id))
    page = text_of(response)
    for words in (
        "Money is given back after approval only.",
        "Look it up before saying anything.",
        '"courier": "dhl"',
        "the image took too long",
        "Refund an order",
        "42.00 EUR",
        "waits for approval",
        "claude-sonnet",
        "4,830",
        "helpful",
        "1 earlier",
        "Sencha",
        "wants",
        "locale",
    ):
        assert words in page, words
    assert response.content.decode().count('<details class="pk-call pk-is-failed"') == 1
    roles = [message.role for message in context_of(response)["page"].conversation.messages]
    assert roles == ["system", "user", "assistant", "assistant", "user", "assistant"]


def test_checkpoints_are_mentioned(root_client: Client) -> None:
    thread_id = conversation("ada")
    assert "LangGraph" not in text_of(root_client.get(thread_url(thread_id)))
    row = {"namespace": "", "checkpoint_id": "c-1", "state": "json:e30=", "metadata": "json:e30="}
    AgentCheckpoint.everyones.create(key="k", thread_id=thread_id, line="l", created_at=now(), **row)
    assert "Last checkpoint of LangGraph" in text_of(root_client.get(thread_url(thread_id)))


def test_paging_goes_through_all_messages_and_back(root_client: Client, storage: AgentStorageService) -> None:
    thread_id = storage.create_thread("ada").id
    many_messages(thread_id, 100)
    # Those of another program have no place, and may share a time.
    AgentMessage.everyones.filter(pk__in=[f"{thread_id}-{number:06}" for number in range(40, 75)]).update(
        created_at=now() - timedelta(hours=2), place=None
    )
    AgentMessage.everyones.filter(pk__in=[f"{thread_id}-{number:06}" for number in range(75, 100)]).update(
        created_at=now() - timedelta(hours=1)
    )
    expected = [f"{thread_id}-{number:06}" for number in range(100)]

    def walk(url: str, way: str) -> list[list[str]]:
        pages: list[list[str]] = []
        while url:
            talk = context_of(root_client.get(url))["page"].conversation
            pages.append([message.id for message in talk.messages])
            url = ""
            if way == "before" and talk.has_older:
                url = f"{thread_url(thread_id)}?before={talk.first_id}"
            if way == "after" and talk.has_newer:
                url = f"{thread_url(thread_id)}?after={talk.last_id}"
        return pages

    backwards = walk(thread_url(thread_id), "before")
    assert [each for page in reversed(backwards) for each in page] == expected
    forwards = walk(f"{thread_url(thread_id)}?from=start", "after")
    assert [each for page in forwards for each in page] == expected
    # A place that is none means the newest page.
    assert walk(f"{thread_url(thread_id)}?before=no-such", "") == backwards[:1]


def test_a_long_thread_of_large_messages_is_a_small_page(root_client: Client, storage: AgentStorageService) -> None:
    thread_id = storage.create_thread("ada").id
    many_messages(thread_id, 970, content="<&\"'>" * 700, calls=0)
    large = ["<&>" * 350_000, [{"type": "text", "text": "long " * 200_000}], {"deep": ["x" * 50] * 9000}]
    for number, content in enumerate(large):
        storage.save_messages(
            thread_id,
            [
                {
                    "id": f"large-{number}",
                    "role": "assistant",
                    "content": content,
                    "toolCalls": [
                        {"id": f"call-{number}-{place}", "name": "t", "args": {"x": "<y>" * 20_000}}
                        for place in range(30)
                    ],
                },
                {
                    "role": "tool",
                    "toolResults": [
                        {"id": f"call-{number}-{place}", "name": "t", "result": "z" * 60_000} for place in range(30)
                    ],
                },
            ],
        )
    for url in (
        thread_url(thread_id),
        thread_url(thread_id) + "?from=start",
        thread_url(thread_id) + "?before=large-0",
    ):
        assert len(root_client.get(url).content) < LIMIT
    # Of the large ones the beginning is read, and the whole is a link away.
    talk = context_of(root_client.get(thread_url(thread_id)))["page"].conversation
    assert [message.is_cut for message in talk.messages[-3:]] == [True] * 3
    assert talk.messages[-2].parts[0].part.text.startswith("long long")
    assert talk.has_more_calls
    whole = root_client.get(thread_url(thread_id, "message", "large-0"))
    assert (len(whole.content), whole.headers["Content-Type"]) == (1_050_000, "text/plain; charset=utf-8")
    assert json.loads(root_client.get(thread_url(thread_id, "message", "large-1")).content) == large[1]
    assert len(root_client.get(thread_url(thread_id, "call", "call-0-0", "result")).content) == 60_000
    assert json.loads(root_client.get(thread_url(thread_id, "call", "call-0-0", "args")).content)["x"][:3] == "<y>"
    with CaptureQueriesContext(connection) as seen:
        rows = reads.read_messages(storage.using, thread_id, reads.Place()).rows
    assert max(len(row["beginning"]) for row in rows) == reads.BEGINNING + 1
    assert len(seen.captured_queries) == 2


def test_a_page_takes_as_many_queries_however_much_it_shows(root_client: Client, storage: AgentStorageService) -> None:
    counts = []
    for more in (3, 30):
        thread_id, _call = waiting("ada")
        many_messages(thread_id, more, calls=2)
        for number in range(more):
            run_id = storage.create_run(agent_name=f"a-{number}", thread_id=thread_id, resource_id="ada")
            storage.save_score(run_id, "polite", number)
            WorkflowRun.objects.filter(pk=Story(options={"idempotency_key": f"{thread_id}-{number:06}-0"}).tell())
        counts.append(queries(root_client, thread_url(thread_id)))
    assert counts[0] == counts[1] <= 20


def test_live(root_client: Client, storage: AgentStorageService) -> None:
    thread_id = conversation("ada", status="running")
    url = thread_url(thread_id, "live")
    page = context_of(root_client.get(thread_url(thread_id)))["page"]
    assert page.is_active
    assert root_client.get(url, {"seen": page.fingerprint}).status_code == 204
    run_id = AgentRun.everyones.get().pk
    storage.update_run(run_id, status="completed")
    fresh = root_client.get(url, {"seen": page.fingerprint})
    assert fresh.status_code == 200
    assert 'data-active="no"' in fresh.content.decode()
    # A process that died leaves a run that says it is running.
    storage.update_run(run_id, status="running", updated_at=now() - timedelta(hours=1))
    assert not context_of(root_client.get(thread_url(thread_id)))["page"].is_active


def test_scores_with_their_history(root_client: Client, storage: AgentStorageService) -> None:
    thread_id = conversation("ada")
    run_id = AgentRun.everyones.get().pk
    for score in (0.25, 0.5, 0.75):
        storage.save_score(run_id, "helpful", score, reason=f"because {score}")
    (view,) = context_of(root_client.get(thread_url(thread_id)))["page"].runs
    (grades,) = view.grades
    assert (grades.score, [each["shown"] for each in grades.earlier]) == ("0.75", ["0.5", "0.25"])
    page = text_of(root_client.get(address("agentrun", "change", run_id)))
    assert all(f"because {score}" in page for score in (0.25, 0.5, 0.75))


def test_workflows_and_agents_link_to_each_other(root_client: Client, storage: AgentStorageService) -> None:
    run_id = Story(workflow="support_case").tell()
    step = StepContext(
        run_id=run_id,
        step_id="s",
        step_name="ask",
        invocation_id="i",
        from_invocation_id=None,
        attempt=1,
        owner_id=None,
    )
    with inside(step):
        thread_id = conversation("ada")
    agent_run = AgentRun.everyones.get()
    assert agent_run.workflow_run_id == run_id
    assert storage.get_runs_by_thread(thread_id)[0].workflow_run_id == run_id
    for url in (thread_url(thread_id), address("agentrun", "change", agent_run.pk)):
        assert f'href="{url_of(run_id)}"' in root_client.get(url).content.decode()
    back = f'href="{address("agentrun", "change", agent_run.pk)}"'
    assert back in root_client.get(url_of(run_id)).content.decode()
    assert back in root_client.get(url_of(run_id, "live")).content.decode()
    # Each side only for who may see it.
    operator = client_of(staff_with("admin:workflows:read", name="operator"))
    assert back not in operator.get(url_of(run_id)).content.decode()
    reader = client_of(staff_with("admin:agents:read", name="reader"))
    assert url_of(run_id) not in reader.get(thread_url(thread_id)).content.decode()


def test_a_workflow_that_a_tool_call_started(root_client: Client) -> None:
    thread_id, call_id = waiting("ada")
    run_id = Story(workflow="refund_order", options={"idempotency_key": call_id}).tell()
    assert f'href="{url_of(run_id)}"' in root_client.get(thread_url(thread_id)).content.decode()
    assert f'href="{thread_url(thread_id)}"' in root_client.get(url_of(run_id)).content.decode()


# -- deleting and exporting --------------------------------------------------------------------------------------------


def test_deleting(root_client: Client, superuser: User, trail: list[AuditEvent]) -> None:
    thread_id, _call = waiting("ada")
    asked = text_of(root_client.get(thread_url(thread_id, "delete")))
    assert "It cannot be undone." in asked
    assert AgentThread.everyones.filter(pk=thread_id).exists()
    response = root_client.post(thread_url(thread_id, "delete"), follow=True)
    assert "was deleted" in text_of(response)
    for model in (AgentThread, AgentMessage, AgentRun, AgentToolCall):
        assert not model.everyones.exists()
    (event,) = trail
    assert (event.type, event.metadata, event.actor.user_id) == (
        "agent.thread.deleted",
        {"threadId": thread_id},
        str(superuser.pk),
    )
    entry = LogEntry.objects.get()
    assert (entry.action_flag, entry.object_id, entry.object_repr) == (DELETION, thread_id, "Refund for A17")
    assert root_client.post(thread_url(thread_id, "delete")).status_code == 404


@pytest.mark.parametrize("scopes", [(), ("admin:agents:read",)])
def test_who_may_not_manage_deletes_nothing(scopes: tuple[str, ...]) -> None:
    user = staff_with(*scopes)
    thread_id = conversation(str(user.pk))
    client = client_of(user)
    assert client.post(thread_url(thread_id, "delete")).status_code == 403
    assert "Delete" not in text_of(client.get(thread_url(thread_id)))
    assert AgentThread.everyones.exists()


def test_export(root_client: Client) -> None:
    thread_id = busy_afternoon("ada")
    response = root_client.get(thread_url(thread_id, "export"))
    assert response.headers["Content-Disposition"] == 'attachment; filename="thread.json"'
    thread = json.loads(response.content)
    assert (thread["id"], thread["resourceId"], len(thread["runs"])) == (thread_id, "ada", 2)
    assert thread["workingMemory"]["wants"] == "refund"
    assert [score["score"] for run in thread["runs"] for score in run["scores"]] == [0.6, 0.9, 1]
    assert thread["messages"][0]["role"] == "system"


# -- hostile data ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", HOSTILE)
def test_ids_of_any_shape(root_client: Client, storage: AgentStorageService, name: str) -> None:
    thread_id, call_id = waiting(name, thread_id=name, call_id=f"call {name}", title=name)
    run = AgentRun.everyones.get()
    storage.save_messages(thread_id, [{"id": f"m {name}", "role": name[:50], "content": "words"}])
    storage.save_working_memory(thread_id, "thread", {name: name})
    pages = [
        address(THREADS),
        address("agentrun"),
        address("agentapproval"),
        thread_url(thread_id),
        thread_url(thread_id, "delete"),
        address("agentrun", "change", run.pk),
        approval_url(call_id),
    ]
    links = set()
    for url in pages:
        page = root_client.get(url)
        assert name in text_of(page).replace("…", ""), url
        links |= {html.unescape(link) for link in re.findall(r'href="([^"]+)"', page.content.decode())}
    # Each link of these pages leads somewhere.
    ours = {link for link in links if "/pikku_agents/" in link}
    assert thread_url(thread_id, "message", f"m {name}") in ours
    for link in ours:
        assert root_client.get(link).status_code == 200, link
    assert root_client.post(approval_url(call_id), {"decision": "approved"}).status_code == 302
    assert root_client.post(thread_url(thread_id, "delete")).status_code == 302
    assert not AgentThread.everyones.exists()


def test_markup_is_text(root_client: Client, storage: AgentStorageService) -> None:
    words = MARKUP
    thread_id, call_id = waiting(
        words, title=words, args={words: words}, displayToolName=words, displayArgs={words: words}
    )
    parts = [
        {"type": kind, **dict.fromkeys(("text", "thinking", "image", "filename", "mediaType"), words)}
        for kind in ("text", "thinking", "image", words)
    ]
    storage.save_messages(
        thread_id,
        [
            {"role": words[:50], "content": parts, "toolCalls": [{"id": "c", "name": words, "args": {words: 1}}]},
            {"role": "tool", "toolResults": [{"id": "c", "name": words, "result": words}]},
        ],
    )
    storage.save_working_memory(thread_id, "thread", {words: words})
    run_id = storage.create_run(
        agent_name=words,
        thread_id=thread_id,
        resource_id=words,
        status="failed",
        error_message=words,
        suspend_reason="rpc-missing",
        missing_rpcs=[words],
        usage={"model": words},
    )
    storage.save_score(run_id, words, 1, reason=words)
    storage.resolve_approval(call_id, "denied", by=words, reason=words)
    for url in (
        address(THREADS),
        address("agentrun"),
        thread_url(thread_id),
        thread_url(thread_id, "delete"),
        address("agentrun", "change", run_id),
        approval_url(call_id),
    ):
        page = root_client.get(url).content.decode()
        assert "<script>alert" not in page, url
        assert "<b onmouseover" not in page, url
        assert "&lt;script&gt;alert" in page, url


def test_what_other_programs_store_breaks_nothing(root_client: Client, storage: AgentStorageService) -> None:
    """No JSON, halves of characters, numbers of users that no column holds, and absent columns."""
    thread_id, call_id = waiting("9" * 40)
    AgentToolCall.everyones.filter(pk=call_id).update(
        approval_asked_at=None, result='{"half": "\\ud83d"}', approval_resolved_by="8" * 40, args=None
    )
    AgentRun.everyones.update(usage_model="")
    storage.save_messages(thread_id, [{"role": "user", "content": None}])
    for url in (
        address(THREADS),
        address("agentrun"),
        address("agentapproval"),
        thread_url(thread_id),
        approval_url(call_id),
        thread_url(thread_id, "export"),
    ):
        assert root_client.get(url).status_code == 200, url


def test_a_thousand_and_one(storage: AgentStorageService) -> None:
    assert COUNT_UP_TO == 1000
    thread_id = conversation("ada")
    many_messages(thread_id, COUNT_UP_TO - 2)
    assert reads.read_facts(storage.using, [thread_id])[thread_id].messages == COUNT_UP_TO
    storage.save_messages(thread_id, [{"role": "user", "content": "one more"}])
    assert reads.read_facts(storage.using, [thread_id])[thread_id].messages is None
