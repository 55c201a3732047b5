"""The lists: what they show, how they are searched, filtered and paged, and what that costs."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from pikku_storage.workflows.models import WorkflowRun
from pikku_storage.workflows.service import WorkflowService
from tests.console.conftest import client_of, context_of
from tests.console.stories import ON_DJONGO, Story, Try, failed_order, now, order_in_flight
from tests.console.urls import list_url

pytestmark = pytest.mark.django_db


def listed(response: Any) -> list[str]:
    """The ids of the listed rows."""
    assert response.status_code == 200
    return [row.pk for row in context_of(response)["cl"].result_list]


def test_columns(root_client: Client) -> None:
    alice = User.objects.create_user("alice")
    failed_order(now() - timedelta(minutes=3), owner_id=str(alice.pk)).tell()
    page = root_client.get(list_url()).content.decode()
    for text in ("fulfil_order", "alice", "31.0 s", "2/3", "(+2)", "E_FUNDS", "insufficient funds"):
        assert text in page
    # Of the error only the beginning of its message is read.
    assert "Traceback" not in page


def test_newest_first(root_client: Client) -> None:
    at = now()
    ids = [Story(started=at - timedelta(minutes=minutes)).tell() for minutes in (5, 1, 3)]
    assert listed(root_client.get(list_url())) == [ids[1], ids[2], ids[0]]


def test_paging_by_key_goes_through_all_rows_and_back(root_client: Client) -> None:
    at = now()
    # Several share a time, so that the id decides.
    ids = [Story(started=at - timedelta(seconds=index // 4)).tell() for index in range(120)]
    url, seen, pages = list_url(), [], []
    while True:
        response = root_client.get(url)
        seen += listed(response)
        pages.append(listed(response))
        older = context_of(response)["cl"].older_url
        if not older:
            break
        url = list_url() + older
    assert sorted(seen) == sorted(ids)
    assert [len(page) for page in pages] == [50, 50, 20]
    newer = root_client.get(list_url() + context_of(response)["cl"].newer_url)
    assert listed(newer) == pages[1]
    first = root_client.get(list_url() + context_of(newer)["cl"].newer_url)
    assert listed(first) == pages[0]
    assert context_of(first)["cl"].newer_url == ""


def test_no_list_counts_its_rows(root_client: Client) -> None:
    for _ in range(3):
        Story().step("a", [Try(0, 0, 1)]).tell()
    for url in (
        list_url(),
        f"{list_url()}?status=completed",
        list_url("workflowstep"),
        list_url("workflowstephistory"),
    ):
        with CaptureQueriesContext(
            connection,
        ) as captured:
            root_client.get(url)
        for query in captured.captured_queries:
            sql = query["sql"]
            bounded = "GROUP BY" in sql or "LIMIT 1001" in sql
            assert "COUNT(" not in sql or bounded, sql


def test_payloads_are_not_read(root_client: Client) -> None:
    failed_order(now()).tell()
    for model in ("workflowrun", "workflowstep", "workflowstephistory", "workflowversion"):
        with CaptureQueriesContext(connection) as captured:
            root_client.get(f"{list_url(model)}?run=x" if "step" in model else list_url(model))
        for query in captured.captured_queries:
            for column in ("input", "output", "state", "data", "result", "graph"):
                assert f'"{column}"' not in query["sql"]


@pytest.mark.parametrize("rows", [1, 50])
def test_a_page_of_runs_costs_the_same_however_many(root_client: Client, rows: int) -> None:
    for index in range(rows):
        story = failed_order(now(), owner_id=str(index))
        story.tell()
    with CaptureQueriesContext(connection) as captured:
        assert len(listed(root_client.get(list_url()))) == rows
    # Session, user; workflow names; five status counts; the page; steps, errors, owners (but those whose ids are none).
    assert len(captured) == (11 if connection.vendor == "mongodb" and not ON_DJONGO else 12)


def test_status_tabs(root_client: Client) -> None:
    failed_order(now()).tell()
    Story().tell()
    Story().tell()
    response = root_client.get(list_url())
    counts = {tab.status: tab.count for tab in context_of(response)["tabs"]}
    assert counts == {"": "", "running": "0", "suspended": "0", "completed": "2", "failed": "1", "cancelled": "0"}
    assert len(listed(root_client.get(f"{list_url()}?status=failed"))) == 1
    # Under another filter the numbers would be of something else.
    tabs = context_of(root_client.get(f"{list_url()}?workflow=fulfil_order"))["tabs"]
    assert {tab.count for tab in tabs} == {""}


def test_counts_stop_at_a_thousand(root_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("console.tabs.COUNT_UP_TO", 2)
    for _ in range(4):
        Story().tell()
    response = root_client.get(list_url())
    assert next(tab.count for tab in context_of(response)["tabs"] if tab.status == "completed") == "2+"


def test_filters(root_client: Client) -> None:
    old = Story(workflow="restock", started=now() - timedelta(days=3)).tell()
    new = Story(workflow="fulfil_order").tell()
    assert listed(root_client.get(f"{list_url()}?workflow=restock")) == [old]
    assert listed(root_client.get(f"{list_url()}?started=24h")) == [new]
    assert listed(root_client.get(f"{list_url()}?started=7d")) == [new, old]
    assert listed(root_client.get(f"{list_url()}?status=")) == [new, old]


@pytest.mark.parametrize("query", ["status=bogus", "started=bogus"])
def test_a_filter_that_does_not_exist_matches_nothing(root_client: Client, query: str) -> None:
    Story().tell()
    response = root_client.get(f"{list_url()}?{query}")
    assert listed(response) == []
    assert "Nothing matches." in response.content.decode()


def test_handled_failures_are_counted(root_client: Client) -> None:
    def steps(status: str) -> Story:
        return Story(status=status).step("a", [Try(0, 0, 1)]).step("b", [Try(1, 1, 2, error={"message": "no"})])

    steps("completed").tell()
    assert "1/2 · 1 failed" in root_client.get(list_url()).content.decode()
    # While the run lives, the step may be tried again.
    steps("running").tell()
    page = root_client.get(f"{list_url()}?status=running").content.decode()
    assert "1/2" in page
    assert "1 failed" not in page


def test_filter_links_start_at_the_first_page(root_client: Client) -> None:
    for _ in range(60):
        Story().tell()
    older = context_of(root_client.get(list_url()))["cl"].older_url
    page = root_client.get(list_url() + older).content.decode()
    links = re.findall(r'href="(\?[^"]*started[^"]*)"', page)
    assert links
    assert all("before" not in html.unescape(link) for link in links)


def test_search_finds_by_each_of_four_ways(root_client: Client) -> None:
    alice = User.objects.create_user("alice")
    by_id = Story(options={"id": "ab_c%d-1"}).tell()
    by_key = Story(options={"idempotency_key": "order/7"}).tell()
    by_workflow = Story(workflow="restock").tell()
    by_owner = Story(options={"owner_id": str(alice.pk)}).tell()
    Story(options={"id": "abXcYd-2"}).tell()

    def search(term: str) -> list[str]:
        return listed(root_client.get(list_url(), {"q": term}))

    assert search("ab_c%d") == [by_id]
    assert search("order/7") == [by_key]
    assert search("restock") == [by_workflow]
    assert search("alice") == [by_owner]
    assert search(str(alice.pk)) == [by_owner]
    assert search("  restock ") == [by_workflow]
    assert search("resto") == []
    assert search("order") == []


def test_search_uses_indexes_only(root_client: Client) -> None:
    Story(workflow="restock", options={"owner_id": "x", "idempotency_key": "k"}).tell()
    for term in ("restock", "x", "k", "01"):
        with CaptureQueriesContext(connection) as captured:
            root_client.get(list_url(), {"q": term})
        for query in captured.captured_queries:
            sql = query["sql"]
            assert "LIKE" not in sql.upper() or connection.vendor == "postgresql"
            if connection.vendor == "sqlite" and 'FROM "workflow_runs"' in sql and "COUNT" not in sql:
                with connection.cursor() as cursor:
                    cursor.execute(f"EXPLAIN QUERY PLAN {sql}")
                    plan = " ".join(str(row[-1]) for row in cursor.fetchall())
                assert "USING" in plan, (sql, plan)
                assert "INDEX" in plan, (sql, plan)


@pytest.mark.parametrize("cursor", ["nonsense", "~", "2026-99-99~x", "2026-01-01T00:00:00Z"])
def test_a_broken_cursor_leads_to_the_first_page(root_client: Client, cursor: str) -> None:
    Story().tell()
    response = root_client.get(list_url(), {"before": cursor})
    assert response.status_code == 302
    assert len(listed(root_client.get(response.headers["Location"]))) == 1


@pytest.mark.parametrize(
    ("model", "params", "text"),
    [
        ("workflowrun", {}, "No workflow has run yet."),
        ("workflowrun", {"q": "zzz"}, "Nothing matches."),
        ("workflowrun", {"status": "failed"}, "Nothing matches."),
        ("workflowrun", {"before": "2020-01-01T00:00:00Z~x"}, "There is nothing further."),
        ("workflowstep", {}, "Nothing is due."),
        ("workflowstep", {"run": "zzz"}, "Nothing matches."),
        ("workflowstephistory", {}, "Choose a run."),
        ("workflowversion", {}, "No version is stored yet."),
    ],
)
def test_an_empty_list_says_why(root_client: Client, model: str, params: dict[str, str], text: str) -> None:
    assert text in root_client.get(list_url(model), params).content.decode()


def test_steps_without_a_run_are_those_that_are_due(root_client: Client) -> None:
    order_in_flight(now() - timedelta(seconds=470)).tell()
    response = root_client.get(list_url("workflowstep"))
    assert [step.step_name for step in context_of(response)["cl"].result_list] == ["book parcel"]


def test_steps_and_attempts_of_a_run(root_client: Client) -> None:
    run_id = order_in_flight(now() - timedelta(seconds=470)).tell()
    steps = root_client.get(list_url("workflowstep"), {"run": run_id})
    assert len(listed(steps)) == 8
    assert len(listed(root_client.get(list_url("workflowstep"), {"run": run_id, "status": "failed"}))) == 1
    assert len(listed(root_client.get(list_url("workflowstep"), {"q": run_id}))) == 8
    assert len(listed(root_client.get(list_url("workflowstephistory"), {"run": run_id}))) == 11
    assert len(listed(root_client.get(list_url("workflowstephistory"), {"q": run_id}))) == 11


@pytest.mark.parametrize("model", ["workflowstep", "workflowstephistory"])
def test_lists_of_steps_and_attempts_cost_the_same_however_many(
    root_client: Client, model: str, django_assert_num_queries: Callable[..., Any]
) -> None:
    # On MongoDB the steps are asked for first, whose attempts these are.
    more = 1 if connection.vendor == "mongodb" and model == "workflowstephistory" else 0
    for count in (1, 45):
        story = Story()
        for index in range(count):
            story.step(f"s{index}", [Try(index, index, index + 1)], function="f")
        run_id = story.tell()
        with django_assert_num_queries(3 + more):
            assert len(listed(root_client.get(list_url(model), {"run": run_id}))) == count


def test_versions(root_client: Client) -> None:
    service = WorkflowService()
    service.upsert_workflow_version("restock", "abc123", {"source": "def restock(flow):\n    <b>"}, "complex")
    service.upsert_workflow_version("ship", "def456", {"nodes": [1]}, "graph")
    response = root_client.get(list_url("workflowversion"))
    assert len(listed(response)) == 2
    assert len(listed(root_client.get(list_url("workflowversion"), {"q": "restock"}))) == 1
    assert len(listed(root_client.get(list_url("workflowversion"), {"q": "def456"}))) == 1
    assert len(listed(root_client.get(list_url("workflowversion"), {"source__exact": "graph"}))) == 1


def test_the_changelist_offers_nothing_to_change(root_client: Client, operator: User) -> None:
    run_id = Story().tell()
    page = root_client.get(list_url()).content.decode()
    assert "addlink" not in page
    assert "delete_selected" not in page
    assert 'class="action-select"' not in client_of(operator).get(list_url()).content.decode()
    for client in (root_client, client_of(operator)):
        for action in ("delete_selected", "no_such_action"):
            client.post(list_url(), {"action": action, "_selected_action": [run_id], "index": "0"})
    assert WorkflowRun.objects.count() == 1


def test_by_owner(root_client: Client, superuser: User) -> None:
    alice = User.objects.create_user("alice")
    mine = Story(options={"owner_id": str(superuser.pk)}).tell()
    hers = Story(options={"owner_id": str(alice.pk)}).tell()
    nobodys = Story().tell()
    hostile = Story(options={"owner_id": "<b>/_%&"}).tell()

    def by(owner: str, **more: str) -> list[str]:
        return listed(root_client.get(list_url(), {"owner": owner, **more}))

    assert by(str(superuser.pk)) == [mine]
    assert by("~") == [nobodys]
    assert by("alice") == by(str(alice.pk)) == [hers]
    assert by("<b>/_%&") == [hostile]
    assert by("nobody-knows") == []
    assert by("alice", status="failed") == []
    page = root_client.get(list_url(), {"owner": "<b>/_%&", "status": "completed"}).content.decode()
    assert "<b>/_%&" not in page
    assert '<input type="hidden" name="status" value="completed">' in page
    assert f'href="?owner={alice.pk}"' in root_client.get(list_url()).content.decode()


def test_by_trigger(root_client: Client) -> None:
    at = now()
    ids = [
        Story(started=at - timedelta(minutes=age), options={"wire": wire}).tell()
        for age, wire in enumerate([{"type": "http"}, {"type": "schedule"}, None, {"type": "x<b>"}, {"type": "http"}])
    ]

    def by(trigger: str) -> list[str]:
        return listed(root_client.get(list_url(), {"trigger": trigger}))

    assert by("http") == [ids[0], ids[4]]
    assert by("schedule") == [ids[1]]
    assert by("x<b>") == [ids[3]]
    assert by("code") == []
    assert "x<b>" not in root_client.get(list_url(), {"trigger": "x<b>"}).content.decode()


def test_a_real_run_is_found_by_its_trigger(root_client: Client) -> None:
    service = WorkflowService()
    run_id = service.create_run("fulfil_order", {}, wire={"type": "http"})
    long = service.create_run("fulfil_order", {}, wire={"type": "x" * 65})
    copied = service.fork_run(run_id, service.insert_step_state(run_id, "a", "f", {}).step_name).id
    assert listed(root_client.get(list_url(), {"trigger": "http"})) == [copied, run_id]
    assert WorkflowRun.objects.get(pk=long).wire_type is None


@pytest.mark.parametrize(("status", "is_active"), [("running", True), ("suspended", True), ("failed", False)])
def test_a_list_says_whether_something_goes_on(root_client: Client, status: str, is_active: bool) -> None:
    Story().tell()
    Story(status=status).tell()
    assert ("pk-is-active-list" in root_client.get(list_url()).content.decode()) is is_active
