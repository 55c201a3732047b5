"""The page of a run and what it loads: content, cost, hostile text, and the past."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import translation

from console.workflows.drawing import LANES_PER_PAGE
from pikku_storage.workflows import function, graph, node, workflow
from pikku_storage.workflows.models import WorkflowStep
from pikku_storage.workflows.registry import registry
from pikku_storage.workflows.service import WorkflowService
from pikku_storage.workflows.timeline import reconstruct_state_at
from tests.console.conftest import context_of
from tests.console.stories import Story, Try, failed_order, now, order_in_flight, sleeping_order
from tests.console.urls import url_of

pytestmark = pytest.mark.django_db

HOSTILE = """<script>alert('1')</script>/_%"' & \N{PILE OF POO}\N{RIGHT-TO-LEFT OVERRIDE}"""


@function(name="console_tests.double", retries=0)
def double(number: int) -> int:
    return 2 * number


@function(name="console_tests.fail", retries=1, retry_delay="1ms")
def fail(why: str) -> None:
    raise ValueError(why)


@function(name="console_tests.undo")
def undo(error: dict[str, Any], input: dict[str, Any], invocation_id: str) -> str:
    return f"undone {input['why']}"


@workflow(name="console_tests.everything")
def everything(flow: Any, numbers: list[int]) -> int:
    doubled = flow.map("double", double, [{"number": number} for number in numbers])
    flow.sleep("nap", 5)
    flow.set_state("doubled", doubled)
    flow.do("fail", fail, {"why": "no <b>reason</b>"}, on_error=undo)
    return sum(doubled)


def page_of(client: Client, run_id: str, **params: Any) -> str:
    response = client.get(url_of(run_id), params)
    assert response.status_code == 200
    return response.content.decode()


def lanes_of(page: str) -> dict[str, str]:
    """Step or group → its state, in the order of the page."""
    found = re.findall(r'data-state="(\w+)" data-(?:step|group)="[^"]*">.*?pk-name">(.*?)</span>', page)
    return {html.unescape(name): state for state, name in found}


def test_a_real_run_from_end_to_end(root_client: Client, superuser: User) -> None:
    run = everything.run({"numbers": [1, 2, 3]}, owner=superuser, idempotency_key="once")
    assert run.status == "failed"
    page = page_of(root_client, run.id)
    assert lanes_of(page) == {
        "double": "succeeded",
        "double[0]": "succeeded",
        "double[1]": "succeeded",
        "double[2]": "succeeded",
        "nap": "succeeded",
        "fail": "failed",
        "fail:onError": "succeeded",
    }
    for text in (
        "root",
        "once",
        "code · inline",
        "5 of 6 done",
        "(2 failed)",
        "· current",
        "failed after 2 attempts",
        "sleep 5 ms",
    ):
        assert text in page
    assert "Failed in <b>fail</b> with <b>ValueError</b>: no &lt;b&gt;reason&lt;/b&gt;" in page
    # The failed step is opened by itself: its attempts, its error, its traceback.
    assert "no &lt;b&gt;reason&lt;/b&gt;" in page
    assert page.count("ValueError") >= 2
    assert "traceback, " in page
    assert "undoes fail" in page
    assert "&quot;doubled&quot;" in page
    [compensation] = [step for step in run.steps() if step.step_name == "fail:onError"]
    panel = root_client.get(url_of(run.id, "step", compensation.step_id)).content.decode()
    assert "undoes what fail left behind" in panel
    assert "undone no &lt;b&gt;reason&lt;/b&gt;" in panel


def test_the_head_says_what_there_is_to_know(root_client: Client) -> None:
    version = registry.workflows["fulfil_order"].graph_hash
    run_id = order_in_flight(now() - timedelta(seconds=470), graph_hash=version).tell()
    page = page_of(root_client, run_id)
    for text in (
        "alice",
        "http · queued",
        "not yet",
        "7 of 8 done",
        "order-A17",
        "celery@web-1",
        version[:8],
        "· current",
    ):
        assert text in page
    assert f'data-copy="{run_id}"' in page


@pytest.mark.parametrize(
    ("name", "hash_", "remark"),
    [("fulfil_order", "0" * 32, "older; now"), ("nobody_knows_it", "0" * 32, "not registered here")],
)
def test_the_version_is_compared_with_what_is_registered(
    root_client: Client, name: str, hash_: str, remark: str
) -> None:
    run_id = Story(workflow=name, options={"graph_hash": hash_}).tell()
    assert remark in page_of(root_client, run_id)


def test_a_run_without_steps_says_so(root_client: Client) -> None:
    assert "No step yet" in page_of(root_client, Story(status="running").tell())
    assert "ended before its first step" in page_of(root_client, Story(status="cancelled").tell())


def test_relations_lead_to_other_runs(root_client: Client) -> None:
    parent, old, child = (Story(workflow=name).tell() for name in ("parent_flow", "first_try", "child_flow"))
    story = Story(options={"wire": {"type": "workflow", "parentRunId": parent, "retryOf": old}})
    story.step("call", [Try(0, 0, 1)], child_run_id=child).step("gone", [Try(1, 1, 2)], child_run_id="gone-run")
    page = page_of(root_client, story.tell())
    for run_id in (parent, old, child):
        assert f'href="{url_of(run_id)}"' in page
    assert "gone-run" in page
    assert url_of("gone-run") not in page


def test_the_trigger_may_be_anything(root_client: Client) -> None:
    wires: list[Any] = [None, [], "text", {"type": 7}, {"type": "http"}]
    for wire in wires:
        assert "Trigger" in page_of(root_client, Story(options={"wire": wire}).tell())


# -- the past --------------------------------------------------------------------------------------------------------


def test_the_page_can_be_looked_at_as_it_was(root_client: Client) -> None:
    run_id = order_in_flight(now() - timedelta(seconds=470)).tell()
    service = WorkflowService()
    timeline = service.get_run_timeline(run_id)
    assert timeline is not None
    for seq in (-1, 0, 3, 7, len(timeline) - 2):
        lanes = lanes_of(page_of(root_client, run_id, at=seq + 1))
        then = {step.step_name: step.status for step in reconstruct_state_at(timeline, seq).steps}
        for name in ("reserve stock", "charge card", "pack[1]", "book parcel"):
            expected = {"pending": "queued", "scheduled": "queued"}.get(then.get(name, "unreached"), then.get(name))
            assert lanes[name] == (expected or "unreached")
    page = page_of(root_client, run_id, at=4)
    assert "pk-travelling" in page
    assert "pk-in-past" in page
    assert "pk-in-past" not in page_of(root_client, run_id)
    assert "Past" in page
    assert "← from" in page


def test_the_past_is_described_by_its_event(root_client: Client) -> None:
    run_id = order_in_flight(now() - timedelta(seconds=470)).tell()
    page = page_of(root_client, run_id, at=4)
    assert re.search(r'id="pk-event".*?<b>reserve stock</b> succeeded', page, re.DOTALL)
    for number in (0, -1):
        assert "before the first event" in page_of(root_client, run_id, at=number)


def test_events_have_one_number_everywhere(root_client: Client) -> None:
    run_id = order_in_flight(now() - timedelta(seconds=470)).tell()
    page = html.unescape(page_of(root_client, run_id, at=4))
    assert re.search(r'id="pk-position">4</span>', page)
    assert re.search(r'id="pk-previous"[^>]*href="\?at=3"', page)
    assert re.search(r'id="pk-next"[^>]*href="\?at=5"', page)
    assert re.search(r'<a href="\?at=4" data-at="3"[^>]*>4</a>', page)
    raw = root_client.get(url_of(run_id, "events"), {"raw": "1"}).json()
    assert raw[3]["number"] == 4


def test_a_handled_failure_is_in_the_head(root_client: Client) -> None:
    story = Story().step("a", [Try(0, 0, 1)]).step("b", [Try(1, 1, 2, error={"message": "no"})])
    assert "1 of 2 done · 1 failed" in page_of(root_client, story.tell())


def test_a_sleep_says_what_was_planned(root_client: Client) -> None:
    run_id = Story().step("nap", [Try(0, None, 10.1, scheduled=0)], data={"duration": 2000}).tell()
    page = page_of(root_client, run_id)
    assert "sleep 2 s" in page
    assert "slept 10.1 s" in page


def test_the_banner_names_the_step_and_its_own_error(root_client: Client) -> None:
    page = page_of(root_client, failed_order(now()).tell())
    assert "Failed in <b>charge card</b> with <b>CardDeclined</b>: insufficient funds" in page
    assert "WorkflowStepFailedError" not in page


def test_the_slider_has_the_services_own_events(root_client: Client) -> None:
    run_id = order_in_flight(now() - timedelta(seconds=470)).tell()
    timeline = WorkflowService().get_run_timeline(run_id)
    assert timeline is not None
    data = root_client.get(url_of(run_id, "events")).json()
    letters = {"pending": "p", "scheduled": "q", "running": "r", "succeeded": "s", "failed": "f"}
    assert data["type"] == "".join(letters[event.type] for event in timeline)
    assert [data["names"][step] for step in data["step"]] == [event.step_name for event in timeline]
    assert data["attempt"] == [event.attempt_count for event in timeline]
    assert data["x"] == sorted(data["x"])
    assert data["groups"] == {"pack": [data["names"].index(f"pack[{index}]") for index in range(4)]}
    assert [data["names"][step] for step in data["sleeps"]] == ["cool down"]
    raw = root_client.get(url_of(run_id, "events"), {"raw": "1"}).json()
    assert [event["seq"] for event in raw] == list(range(len(timeline)))
    assert {"at", "type", "step_name", "attempt_count", "from_step_name"} <= raw[0].keys()


# -- filters ---------------------------------------------------------------------------------------------------------


def test_lanes_are_filtered_by_status_and_name(root_client: Client) -> None:
    run_id = order_in_flight(now() - timedelta(seconds=470)).tell()
    assert set(lanes_of(page_of(root_client, run_id, state="waiting"))) == {"book parcel"}
    assert set(lanes_of(page_of(root_client, run_id, name="pack[1"))) == {"pack", "pack[1]"}
    page = page_of(root_client, run_id, name=HOSTILE)
    assert "None of the run&#x27;s" in page or "None of the run's" in page
    assert "<script>alert" not in page
    assert set(lanes_of(page_of(root_client, run_id, group="pack"))) == {f"pack[{index}]" for index in range(4)}


@pytest.mark.parametrize("params", [{"page": "x"}, {"page": "-4"}, {"at": "x"}, {"at": "99999"}, {"state": "<b>"}])
def test_nonsense_in_the_address_is_left_out(root_client: Client, params: dict[str, str]) -> None:
    run_id = failed_order(now()).tell()
    assert len(lanes_of(page_of(root_client, run_id, **params))) == 3


def test_a_step_that_is_not_there(root_client: Client) -> None:
    assert "no such step" in page_of(root_client, failed_order(now()).tell(), step="zzz")


# -- following -------------------------------------------------------------------------------------------------------


def fingerprint(page: str) -> str:
    return re.search(r'data-fingerprint="([^"]*)"', page)[1]  # type: ignore[index]


def test_a_live_run_is_followed(root_client: Client) -> None:
    service = WorkflowService()
    run_id = service.create_run("fulfil_order", {})
    seen = fingerprint(page_of(root_client, run_id))

    def look() -> Any:
        nonlocal seen
        response = root_client.get(url_of(run_id, "live"), {"seen": seen})
        if response.status_code == 200:
            seen = fingerprint(response.content.decode())
        return response

    assert look().status_code == 204
    step = service.insert_step_state(run_id, "ship", "ship", {})
    assert lanes_of(look().content.decode()) == {"ship": "queued"}
    assert look().status_code == 204
    service.set_step_running(step.step_id)
    assert lanes_of(look().content.decode()) == {"ship": "running"}
    service.set_step_result(step.step_id, {"ok": True})
    assert lanes_of(look().content.decode()) == {"ship": "succeeded"}
    service.update_run_status(run_id, "completed", {"done": 1})
    last = look().content.decode()
    assert 'data-active="no"' in last
    assert "&quot;done&quot;" in last


def test_growing_bars_do_not_read_payloads(root_client: Client) -> None:
    run_id = sleeping_order(now()).tell()
    seen = fingerprint(page_of(root_client, run_id))
    with CaptureQueriesContext(connection) as captured:
        response = root_client.get(url_of(run_id, "live"), {"seen": seen, "grow": "1"})
    assert response.status_code == 200
    assert "pk-aside" not in response.content.decode()
    # Of a step's data only the length of a sleep is read, and that only where there is no function.
    whole_column = re.compile(r'"(input|data)"(,(?! \'\$)| FROM| AS)')
    assert not [query["sql"] for query in captured.captured_queries if whole_column.search(query["sql"])]


# -- cost ------------------------------------------------------------------------------------------------------------


def many_steps(count: int) -> str:
    story = Story(ended=count, options={"owner_id": "1", "wire": {"parentRunId": "x"}})
    for index in range(count):
        story.step(f"step {index}", [Try(index, index, index + 0.5)], function="work", child_run_id=f"child-{index}")
    return story.tell()


@pytest.mark.parametrize("steps", [10, 500])
def test_a_page_costs_the_same_however_long_the_run(
    root_client: Client, steps: int, django_assert_num_queries: Callable[..., Any]
) -> None:
    run_id = many_steps(steps)
    # Session, user; run, steps, attempts; owner, relations, forks, agents; payloads; the opened step, attempts, child.
    with django_assert_num_queries(13):
        page_of(root_client, run_id)
    step_id = WorkflowStep.objects.filter(run_id=run_id).values_list("pk", flat=True)[0]
    with django_assert_num_queries(6):
        root_client.get(url_of(run_id, "step", step_id))
    # On MongoDB the steps are asked for first, whose attempts these are.
    with django_assert_num_queries(6 if connection.vendor == "mongodb" else 5):
        root_client.get(url_of(run_id, "events"))
    seen = fingerprint(page_of(root_client, run_id))
    with django_assert_num_queries(4):
        assert root_client.get(url_of(run_id, "live"), {"seen": seen}).status_code == 204


def test_a_long_run_is_paged(root_client: Client) -> None:
    run_id = many_steps(LANES_PER_PAGE + 20)
    first, second = page_of(root_client, run_id), page_of(root_client, run_id, page=2)
    assert (len(lanes_of(first)), len(lanes_of(second))) == (LANES_PER_PAGE, 20)
    assert "page 1 of 2" in first
    assert "?page=2" in html.unescape(first)


def test_a_very_long_run_is_a_light_page(root_client: Client) -> None:
    story = Story(ended=4000)
    for index in range(1500):
        story.step(
            f"a step with a name {index}", [Try(index, index, index + 1, worker="celery@web-1")], function="work"
        )
    for index in range(1500):
        story.step(f"pack[{index}]", [Try(1500, 1501 + index, 1502 + index)], function="work", group="pack")
    page = page_of(root_client, story.tell())
    assert len(page.encode()) < 300_000
    assert 'id="pk-events-data"' not in page


def test_huge_payloads_are_previewed(root_client: Client) -> None:
    huge = {"text": "x" * 1_000_000, "list": list(range(100_000))}
    story = Story(options={"input": huge, "output": huge, "state": huge})
    story.step("big", [Try(0, 0, 1)], data=huge, result=huge)
    run_id = story.tell()
    page = page_of(root_client, run_id)
    assert len(page.encode()) < 100_000
    assert "1000000 characters in all" in page
    assert "99900 more are not shown" in page
    assert "1.5\xa0MB" in page
    whole = root_client.get(url_of(run_id, "payload", "input"))
    assert json.loads(whole.content) == huge
    assert whole.headers["Content-Type"].startswith("application/json")
    assert whole.headers["X-Content-Type-Options"] == "nosniff"
    assert json.loads(root_client.get(url_of(run_id, "step_payload", story.steps[0].pk, "output")).content) == huge


def test_a_long_traceback_is_folded(root_client: Client) -> None:
    error = {"name": "E", "message": "m" * 5_000, "stack": "line\n" * 500}
    page = page_of(root_client, Story(status="failed").step("a", [Try(0, 0, 1, error=error)]).tell())
    assert "traceback, 500 lines" in page
    assert "m" * 1_100 not in page


# -- hostile ids and texts ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "identifier",
    [
        "a/b",
        "a_b",
        "100%",
        "_2F",
        'quo"te',
        "it's",
        "<b>bold</b>",
        "a?b#c&d=e",
        "\N{PILE OF POO}",
        "with space",
        "a+b;c,d",
    ],
)
def test_every_id_has_a_page(root_client: Client, identifier: str) -> None:
    step_id = f"step:{identifier}"
    story = Story(options={"id": identifier}).step("a", [Try(0, 0, 1)], id=step_id)
    story.tell()
    page = page_of(root_client, identifier)
    assert f'data-copy="{html.escape(identifier)}"' in page
    assert "<b>bold</b>" not in page
    assert root_client.get(url_of(identifier, "step", step_id)).status_code == 200
    assert root_client.get(url_of(identifier, "live")).status_code == 200
    assert root_client.get(url_of(identifier, "payload", "input")).status_code == 200
    assert root_client.get(url_of(identifier, "step_payload", step_id, "input")).status_code == 200
    listed = root_client.get("/admin/pikku_workflows/workflowrun/").content.decode()
    assert html.escape(url_of(identifier)) in listed


def test_every_text_is_text(root_client: Client) -> None:
    error = {"name": HOSTILE, "message": HOSTILE, "code": HOSTILE, "stack": HOSTILE}
    story = Story(
        workflow=HOSTILE,
        status="failed",
        options={
            "owner_id": HOSTILE,
            "idempotency_key": HOSTILE,
            "error": error,
            "input": {HOSTILE: HOSTILE},
            "state": {HOSTILE: [HOSTILE]},
            "graph_hash": HOSTILE[:60],
            "last_worker": HOSTILE,
            "wire": {"type": HOSTILE, "parentRunId": HOSTILE},
        },
    )
    story.step(f"{HOSTILE}[0]", [Try(0, 1, 2, worker=HOSTILE)], group=HOSTILE, function=HOSTILE, queue=HOSTILE)
    story.step(HOSTILE + ":onError", [Try(2, 2, 3, error=error)], function=HOSTILE, child_run_id=HOSTILE)
    run_id = story.tell()
    pages = [
        page_of(root_client, run_id),
        page_of(root_client, run_id, at=1),
        page_of(root_client, run_id, group=HOSTILE, name=HOSTILE, step=HOSTILE),
        root_client.get(url_of(run_id, "live")).content.decode(),
        *(root_client.get(url_of(run_id, "step", step.pk)).content.decode() for step in story.steps),
    ]
    for model in ("workflowrun", "workflowstep", "workflowstephistory"):
        url = f"/admin/pikku_workflows/{model}/"
        params = {"q": HOSTILE} if model == "workflowrun" else {"run": run_id}
        pages += [root_client.get(url).content.decode(), root_client.get(url, params).content.decode()]
    pages.append(root_client.get("/admin/pikku_workflows/workflowrun/", {"workflow": HOSTILE}).content.decode())
    for page in pages:
        assert "<script>alert" not in page
        assert "<script>" not in page.replace("<script src", "")


@pytest.mark.skipif(apps.is_installed("unfold"), reason="django-unfold's own pages hold styles and scripts")
def test_nothing_inline(root_client: Client) -> None:
    run_id = order_in_flight(now() - timedelta(seconds=470)).tell()
    for url in (url_of(run_id), "/admin/pikku_workflows/workflowrun/", "/admin/pikku_workflows/workflowstep/"):
        page = root_client.get(url).content.decode()
        assert not re.search(r"\sstyle=", page)
        assert "<style" not in page
        assert not re.search(r"\son\w+=", page)
        for script in re.findall(r"<script([^>]*)>", page):
            assert "src=" in script or 'type="application/json"' in script


def test_numbers_in_the_drawing_do_not_follow_the_language(root_client: Client, settings: Any) -> None:
    settings.USE_THOUSAND_SEPARATOR = True
    settings.LANGUAGE_CODE = "de"
    run_id = many_steps(1200)
    with translation.override("de"):
        page = page_of(root_client, run_id)
    assert 'max="3599"' in page
    assert not re.search(r'(?:x|width|cx)="[^"]*,[^"]*%"', page)


# -- pages of steps, attempts and versions -----------------------------------------------------------------------------


def test_a_step_and_an_attempt_have_the_steps_panel(root_client: Client) -> None:
    story = failed_order(now())
    run_id = story.tell()
    for url in (
        f"/admin/pikku_workflows/workflowstep/{story.steps[1].pk}/change/",
        f"/admin/pikku_workflows/workflowstephistory/{story.attempts[2].pk}/change/",
    ):
        page = root_client.get(url).content.decode()
        assert "CardDeclined" in page
        assert f"{url_of(run_id)}?step={story.steps[1].pk}" in page


def test_a_run_of_a_graph_shows_how_far_each_node_is(root_client: Client) -> None:
    definition = graph(
        "console_tests.drawn",
        entry="a <b>",
        nodes={
            "a <b>": node(double, next="fail", on_error="undo"),
            "fail": node(fail, input={"why": "no"}, on_error="undo"),
            "undo": node(undo, next={"more": "spare", "done": ()}),
            "spare": node(double, input={"number": 1}),
        },
    )
    run = definition.run({"number": 1})
    page = page_of(root_client, run.id)
    card = graph_card(page)
    cells = re.findall(r"<tr><td>(.*?)</td><td>.*?>(.*?)</span></td>", card)
    assert cells == [
        ("a &lt;b&gt;", "succeeded"),
        ("fail", "failed"),
        ("undo", "succeeded"),
        ("spare", "not reached"),
    ]
    assert "on error: undo" in card
    assert "graph TD" in card
    assert "<b>" not in card
    assert [html.unescape(name) for name in re.findall(r'pk-node-name"[^>]*>(.*?)<', card)] == [
        "a <b>",
        *"fail undo spare".split(),
    ]
    assert re.findall(r'pk-node" data-state="(\w+)"', card) == ["succeeded", "failed", "succeeded", "unreached"]
    # Of three edges that were not taken one leads to what was not reached; the error edge of the first node is another.
    assert card.count("pk-untaken") == 2
    past = graph_card(page_of(root_client, run.id, at=0))
    assert re.findall(r'pk-node" data-state="(\w+)"', past) == ["unreached"] * 4


def test_the_path_of_a_body_is_a_graph_too(root_client: Client) -> None:
    run = everything.run({"numbers": [1, 2]})
    card = graph_card(page_of(root_client, run.id))
    leads = re.findall(r"<tr><td>(.*?)</td><td>.*?>(.*?)</span></td><td>(.*?)</td></tr>", card)
    plain = [(name, state, re.sub("<.*?>", "", targets)) for name, state, targets in leads]
    assert plain == [
        ("double", "succeeded", "nap"),
        ("nap", "succeeded", "fail"),
        ("fail", "failed", "undone by: fail:onError"),
        ("fail:onError", "succeeded", ""),
    ]
    assert card.count("<path d=") == 3
    assert 'data-fan-out="double"' in card
    assert "pk-untaken" not in card
    assert graph_card(page_of(root_client, run.id, at=1)).count("pk-untaken") == 3
    assert 'id="pk-graph"' not in page_of(root_client, Story(status="running").tell())


def graph_card(page: str) -> str:
    return page.split('id="pk-graph"')[1].split("pk-columns")[0]


def test_a_version_of_a_graph_shows_its_diagram(root_client: Client) -> None:
    nodes = {"a": {"rpcName": "f", "next": "b"}, "b": {"rpcName": "g"}}
    WorkflowService().upsert_workflow_version("g", "h", {"nodes": nodes, "entryNodeIds": ["a"]}, "graph")
    (row,) = context_of(root_client.get("/admin/pikku_workflows/workflowversion/"))["cl"].result_list
    page = root_client.get(f"/admin/pikku_workflows/workflowversion/{row.pk}/change/").content.decode()
    assert "n0 --&gt; n1" in page


def test_a_version_shows_its_source(root_client: Client) -> None:
    WorkflowService().upsert_workflow_version("w", "h", {"source": "def w(flow):\n    return '<b>'"}, "complex")
    WorkflowService().upsert_workflow_version("g", "h", {"nodes": ["<b>"]}, "graph")
    for row in context_of(root_client.get("/admin/pikku_workflows/workflowversion/"))["cl"].result_list:
        page = root_client.get(f"/admin/pikku_workflows/workflowversion/{row.pk}/change/").content.decode()
        assert "&lt;b&gt;" in page
        assert "'<b>'" not in page
