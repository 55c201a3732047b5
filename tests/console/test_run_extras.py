"""What the page of a run tells beside its timeline: its origin, who listens, its children, and all of it as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.utils import quote
from django.contrib.auth.models import User
from django.core.cache import cache
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone
from pytest_django import Settings

from console.jsontree import MOST_TEXT, render_tree
from console.workflows import listening
from console.workflows.reads import ATTEMPTS_SHOWN
from console.workflows.walk import MOST_NODES as MOST_WALKED
from pikku_storage import auditing
from pikku_storage.agents.models import AgentMessage, AgentThread, AgentToolCall
from pikku_storage.workflows.models import WorkflowRun, WorkflowStep
from pikku_storage.workflows.service import WorkflowService
from tests.conformance.recording import RecordingDispatcher
from tests.console.conftest import client_of, staff_with
from tests.console.stories import Story, Try, declined, failed_order, now, order_in_flight
from tests.console.urls import url_of

pytestmark = pytest.mark.django_db

HOSTILE = """<script>alert('1')</script>/_%"' & \N{PILE OF POO}"""
exported: list[auditing.AuditEvent] = []


def keep(event: auditing.AuditEvent) -> None:
    """A sink for what is said about exports."""
    if event.type == "workflow.run.exported":
        exported.append(event)


@pytest.fixture(autouse=True)
def _alone(settings: Settings) -> None:
    """No broker, a trail in memory, and no answers of workers that an earlier test was given."""
    exported.clear()
    cache.clear()
    settings.PIKKU_STORAGE = {
        **settings.PIKKU_STORAGE,
        "DISPATCHER": RecordingDispatcher.PATH,
        "AUDIT_SINK": f"{__name__}.keep",
    }


def head_of(client: Client, run_id: str) -> str:
    page: str = client.get(url_of(run_id)).content.decode()
    return page.split('id="pk-head"')[1].split("</header>")[0]


def plain(html: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", "", html))


# -- where it came from ----------------------------------------------------------------------------------------------


def test_the_origin_is_told_both_ways(root_client: Client, superuser: User) -> None:
    service = WorkflowService()
    old = failed_order(now(), input={}).tell()
    fork = service.fork_run(old, "charge card", reason="another <b>card</b>", by=superuser).id
    retry = service.retry_run(old, by="somebody").id
    assert "Forked from" in head_of(root_client, fork)
    text = plain(head_of(root_client, fork))
    assert "at charge card, by root: another &lt;b&gt;card&lt;/b&gt;" in text
    assert url_of(old) in head_of(root_client, fork)
    assert re.search(r"A new try of \S+, by somebody ", plain(head_of(root_client, retry)))
    aside = root_client.get(url_of(old)).content.decode().split('id="pk-aside"')[1]
    assert plain(aside).count("forked as") == 1
    assert plain(aside).count("tried again as") == 1
    assert url_of(fork) in aside
    assert url_of(retry) in aside


def test_what_is_gone_is_named_without_a_link(root_client: Client) -> None:
    run_id = Story(options={"wire": {"forkOf": "gone", "parentRunId": "away"}, "parent_run_id": "away"}).tell()
    head = head_of(root_client, run_id)
    assert "<code>gone</code>" in head
    assert "<code>away</code>" in head
    for missing in ("gone", "away"):
        assert url_of(missing) not in head


def test_who_cancelled_it_and_why(root_client: Client, superuser: User) -> None:
    run_id = order_in_flight(now()).tell()
    WorkflowService().cancel_workflow(run_id, "the <b>customer</b> called", by=superuser)
    assert re.search(
        r"Cancelled \S+ \S+ \S+ by root: the &lt;b&gt;customer&lt;/b&gt; called", plain(head_of(root_client, run_id))
    )
    undoing = order_in_flight(now()).tell()
    WorkflowService().cancel_workflow(undoing, "undo it", by=superuser, compensate=True)
    assert "Being undone, then cancelled by root: undo it" in plain(head_of(root_client, undoing))


def test_times_are_in_the_viewers_zone_and_it_is_named(root_client: Client) -> None:
    run_id = failed_order(now()).tell()
    with timezone.override("Asia/Tokyo"):
        head = head_of(root_client, run_id)
    assert "Asia/Tokyo" in head
    assert "JST" in head


# -- who listens -----------------------------------------------------------------------------------------------------


def queued(**options: Any) -> str:
    story = Story(status="running", started=now() - timedelta(seconds=60), options={"last_worker": "w", **options})
    return story.step("pack", [Try(3)], function="pack", queue=options.pop("queue", HOSTILE)).tell()


@pytest.mark.parametrize(
    ("answers", "text"),
    [
        ({"celery@a": ["celery"]}, "No worker is listening on the queue"),
        ({"celery@a": [HOSTILE], "celery@b": [HOSTILE, "celery"]}, "2 workers listen on the queue"),
        ({}, "No worker is listening on the queue"),
        (None, "Nobody can be asked"),
    ],
)
def test_who_listens_is_asked_apart_from_the_page(
    root_client: Client, monkeypatch: pytest.MonkeyPatch, answers: Any, text: str
) -> None:
    asked = []

    def answer() -> Any:
        asked.append(1)
        return answers

    monkeypatch.setattr(listening, "_asked", answer)
    monkeypatch.setattr(listening, "CeleryDispatcher", RecordingDispatcher)
    run_id = queued()
    assert 'data-waits-for-worker="yes"' in head_of(root_client, run_id)
    assert not asked
    for params in ("", "?part=1"):
        page = root_client.get(url_of(run_id, "workers") + params).content.decode()
        assert text in page
        assert "<script>alert" not in page
    # What workers answered is good for a moment, for everybody.
    assert len(asked) == (2 if answers is None else 1)


def test_what_does_not_wait_for_a_worker_asks_nobody(root_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "_asked", lambda: pytest.fail("nobody is waited for"))
    for run_id in (failed_order(now()).tell(), queued(inline=True)):
        assert "data-waits-for-worker" not in head_of(root_client, run_id)
        assert "does not wait for a worker" in root_client.get(url_of(run_id, "workers")).content.decode()


def test_only_celery_can_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "_asked", lambda: pytest.fail("there is no Celery here"))
    assert listening.listening_on(["celery"]) is None


# -- children --------------------------------------------------------------------------------------------------------


def family(children: int, steps: int = 3) -> tuple[str, list[str]]:
    at = now() - timedelta(seconds=100)
    parent, ids = Story(started=at, ended=90), []
    for number in range(children):
        child = Story(workflow="child", started=at + timedelta(seconds=number), ended=50)
        for index in range(steps):
            child.step(f"inner {index} <b>", [Try(index, index, index + 1)], function="f")
        ids.append(child.tell())
        parent.step(f"outer {number}", [Try(number, number, number + 50)], child_run_id=ids[-1])
    return parent.tell(), ids


def test_an_opened_child_shows_its_lanes_beneath_its_step(root_client: Client) -> None:
    parent, (one, other) = family(2)
    page = root_client.get(url_of(parent)).content.decode()
    assert "inner 0" not in page
    assert f'href="?open={one}"' in page
    page = root_client.get(url_of(parent), [("open", one), ("open", "no-such-run"), ("open", parent)]).content.decode()
    names = re.findall(r'pk-name">(.*?)</span>', page)
    assert names == ["outer 0", *(f"inner {index} &lt;b&gt;" for index in range(3)), "outer 1"]
    assert f"open={one}&amp;open=no-such-run" in page
    # A step of a child is looked at without leaving.
    step = WorkflowStep.objects.get(run_id=one, step_name="inner 1 <b>")
    assert url_of(one, "step", step.pk) in page
    panel = root_client.get(url_of(parent), {"open": one, "step": step.pk}).content.decode()
    assert 'title="inner 1 &lt;b&gt;">inner 1 &lt;b&gt;' in panel
    closed = root_client.get(url_of(parent), {"step": step.pk}).content.decode()
    assert "no such step" in closed
    assert other in panel


def test_opened_children_are_as_they_were_then(root_client: Client) -> None:
    parent, (one,) = family(1)
    page = root_client.get(url_of(parent), {"open": one, "at": "2"}).content.decode()
    states = re.findall(r'pk-lane[^"]*" data-state="(\w+)" data-nested', page)
    # The moment is that of the second event: the child's first step was begun just then.
    assert states == ["running", "unreached", "unreached"]


def test_children_cost_the_same_however_many_are_open(root_client: Client) -> None:
    counts = []
    for children in (1, 6):
        parent, ids = family(children)
        with CaptureQueriesContext(connection) as captured:
            root_client.get(url_of(parent), {"open": ids})
        counts.append(len(captured))
    assert counts[0] == counts[1]


# -- the panel -------------------------------------------------------------------------------------------------------


def test_the_panel_says_when_and_what_may_be_done(root_client: Client, operator: User) -> None:
    story = failed_order(now(), input={})
    run_id = story.tell()
    charge = url_of(run_id, "step", story.steps[1].pk)
    panel = root_client.get(charge).content.decode()
    assert re.findall(r"<dt>(.*?)</dt><dd><time", panel) == ["Created", "Queued", "Started", "Ended"]
    assert f"{url_of(run_id, 'operation', 'fork')}?from_step=charge+card" in panel
    assert url_of(run_id, "operation", "retry") in panel
    reserved = root_client.get(url_of(run_id, "step", story.steps[0].pk)).content.decode()
    assert "It has succeeded: fork from it to carry it out once more." in reserved
    assert "pk-step-operations" not in client_of(operator).get(charge).content.decode()


def test_many_attempts_are_bounded(root_client: Client) -> None:
    tries = [Try(index, index, index + 0.5, error=declined()) for index in range(ATTEMPTS_SHOWN + 15)]
    story = Story(status="failed").step("charge", tries, function="charge", max_attempts=50)
    run_id = story.tell()
    panel = root_client.get(url_of(run_id, "step", story.steps[0].pk)).content.decode()
    assert panel.count('data-keep="traceback-') == ATTEMPTS_SHOWN
    assert "15 earlier attempts are not shown." in panel
    assert "<td>35</td>" in panel
    assert "<td>15</td>" not in panel


# -- the whole as JSON -----------------------------------------------------------------------------------------------


def test_the_export_has_everything_and_is_audited(operator: User) -> None:
    story = order_in_flight(now() - timedelta(seconds=470), id=f"run-{HOSTILE}")
    run_id = story.tell()
    WorkflowRun.objects.filter(pk=run_id).update(pass_token="secret-token")
    response: Any = client_of(operator).get(url_of(run_id, "export"))
    assert response.streaming
    assert response.headers["Content-Disposition"].startswith("attachment; ")
    text = b"".join(response.streaming_content).decode()
    document = json.loads(text)
    assert document["run"]["input"]["items"][0] == {"sku": "TEA-SENCHA-100", "quantity": 2}
    assert [step["step_name"] for step in document["steps"]] == [step.step_name for step in story.steps]
    assert document["steps"][1]["result"] == {"payment_id": "pay_01HF7Q", "captured": True}
    assert len(document["attempts"]) == len(story.attempts)
    assert any((attempt["error"] or {}).get("stack") for attempt in document["attempts"])
    timeline = WorkflowService().get_run_timeline(run_id) or []
    assert [(event["number"], event["type"]) for event in document["events"]] == [
        (event.seq + 1, event.type) for event in timeline
    ]
    assert "secret-token" not in text
    assert [(event.actor.user_id, event.metadata["runId"]) for event in exported] == [(str(operator.pk), run_id)]


def test_an_export_that_is_refused_is_none(clerk: User) -> None:
    run_id = failed_order(now()).tell()
    assert client_of(clerk).get(url_of(run_id, "export")).status_code == 404
    assert exported == []


# -- the thread ------------------------------------------------------------------------------------------------------


def thread(**options: Any) -> AgentThread:
    made: AgentThread = AgentThread.everyones.create(
        resource_id="alice", title=HOSTILE, created_at=now(), updated_at=now(), **options
    )
    return made


def test_the_thread_of_an_agent_is_named_to_whoever_may_see_it(superuser: User, operator: User) -> None:
    talk = thread()
    message = AgentMessage.everyones.create(thread=talk, role="assistant", created_at=now())
    call = AgentToolCall.everyones.create(
        id="call-7", thread=talk, message=message, tool_name="refund", created_at=now()
    )
    runs = [
        Story(options={"wire": {"type": "code", "threadId": talk.pk}}).tell(),
        Story(options={"idempotency_key": call.pk}).tell(),
    ]
    unrelated = [
        Story(options={"wire": {"threadId": "gone"}}).tell(),
        Story(options={"idempotency_key": "order-1"}).tell(),
    ]
    root, workflows_only = client_of(superuser), client_of(operator)
    for run_id in runs:
        page = root.get(url_of(run_id)).content.decode()
        assert 'id="pk-agents"' in page
        assert f'href="{reverse("admin:pikku_agents_agentthread_change", args=[quote(talk.pk)])}"' in page
        assert 'id="pk-agents"' not in workflows_only.get(url_of(run_id)).content.decode()
    for run_id in unrelated:
        assert 'id="pk-agents"' not in root.get(url_of(run_id)).content.decode()
    assert "&lt;script&gt;alert" in root.get(url_of(runs[0])).content.decode()
    both = staff_with("admin:workflows:read", "admin:agents:read", name="both")
    assert 'id="pk-agents"' in client_of(both).get(url_of(runs[0])).content.decode()


# -- size ------------------------------------------------------------------------------------------------------------


def test_ten_thousand_events_and_large_payloads_are_a_light_page(
    root_client: Client, django_assert_max_num_queries: Callable[..., Any]
) -> None:
    large = {"rows": [{"name": "x" * 500, "value": index} for index in range(2000)]}
    story = Story(ended=4000, options={"input": large, "output": large, "state": large})
    for index in range(2000):
        function = f"a function with quite a long name {index % 7}"
        tries = [Try(index, index, index + 0.4, error=declined(), worker="celery@web-1")]
        story.step(f"a step with a name {index}", [*tries, Try(index + 0.5, index + 0.6, index + 1)], function=function)
    story.steps[3].data = story.steps[3].result = large
    run_id = story.tell()
    assert sum(1 for _ in WorkflowService().get_run_timeline(run_id) or []) >= 10_000
    with django_assert_max_num_queries(13):
        page = root_client.get(url_of(run_id), {"step": story.steps[3].pk})
    assert len(page.content) < 300_000
    assert page.content.decode().count('class="pk-node"') == MOST_WALKED
    with django_assert_max_num_queries(9):
        live = root_client.get(url_of(run_id, "live"), {"grow": "1", "seen": "x"})
    assert len(live.content) < 300_000


def test_a_tree_of_many_texts_is_bounded() -> None:
    html = render_tree([{"text": "y" * 590} for _ in range(99)])
    assert html.count("y") < MOST_TEXT + 100
    assert len(html) < 20_000
    assert render_tree({f"k{index}": index for index in range(90)}).count("<li>") == 90
