"""Channels, deployments, webhooks, the audit trail and virtual users: what is shown, to what cost, and what is done."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.admin.utils import quote
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from console.audit import export
from console.channels.states import ChannelState, state_of
from console.deployments.states import Liveness, liveness_of
from console.webhooks.sent import host_of, shown_headers, shown_url
from pikku_storage import auditing
from pikku_storage.audit.models import AuditEntry
from pikku_storage.channels.models import Channel, ChannelSubscription
from pikku_storage.channels.querysets import CLOSING
from pikku_storage.channels.service import ChannelStore, EventHubStore
from pikku_storage.deployments.models import Deployment
from pikku_storage.virtual_users.models import VirtualUserRun, VirtualUserRunStep
from pikku_storage.virtual_users.records import VirtualUserStep
from pikku_storage.virtual_users.service import VirtualUserRunStore
from pikku_storage.webhooks.models import WebhookDelivery, WebhookDeliveryAttempt
from tests.console.conftest import client_of, context_of, staff_with
from tests.console.stories import failed_order, now

pytestmark = pytest.mark.django_db

HOSTILE = "a/b_2F%20'\"<script>alert(1)</script>\U0001f375 ä"
"""An id, a name and a text that mean harm."""


def delivery(
    delivery_id: str = "d", *, status: str = "failed", attempts: int = 1, minutes: float = 0, **options: Any
) -> WebhookDelivery:
    """A delivery, with attempts that were not answered well."""
    at = now() - timedelta(minutes=minutes)
    values = {"url": "https://hooks.test/x?key=s3cret", "event": "order.paid", "body": '{"n":1}', "retries": 3}
    row = WebhookDelivery.objects.create(
        delivery_id=delivery_id,
        status=status,
        attempts=attempts,
        created_at=at,
        updated_at=at,
        **{**values, "max_attempts": 4, **options},
    )
    for number in range(1, attempts + 1):
        WebhookDeliveryAttempt._default_manager.create(
            attempt_id=f"{delivery_id}-{number}",
            delivery=row,
            attempt_number=number,
            status_code=503 if number == attempts else None,
            error=None if number == attempts else "no answer",
            response_body="<b>gone</b>",
            created_at=at,
        )
    return row


def entry(audit_id: str = "e", *, minutes: float = 0, metadata: Any = None, **options: Any) -> AuditEntry:
    """An event of the trail."""
    data = metadata if isinstance(metadata, str) else json.dumps(metadata or {})
    values = {"type": "order.read", "outcome": "success", "source": "explicit", "data": data}
    at = now() - timedelta(minutes=minutes)
    return AuditEntry.objects.create(audit_id=audit_id, occurred_at=at, **{**values, **options})


def virtual_run(persona: str = "Grace", steps: int = 2) -> str:
    """A run of a virtual user."""
    store = VirtualUserRunStore()
    run_id = store.start(persona, "careless", 7, goals=[HOSTILE], started_by=HOSTILE)
    made = [
        VirtualUserStep(
            step_index=index,
            action={"do": HOSTILE},
            response={"said": HOSTILE},
            finding_kinds=[HOSTILE],
            ok=True,
            status=200,
            tokens_in=2,
            tokens_out=3,
        )
        for index in range(steps)
    ]
    store.complete(run_id, steps=made, stopped_by=HOSTILE)
    return run_id


def channel(channel_id: str, *topics: str, name: str = "chat", **options: Any) -> None:
    """A channel that hears of these topics."""
    ChannelStore().add_channel(channel_id, name, {"path": HOSTILE}, **{"holder": "a process", **options})
    for topic in topics:
        EventHubStore().subscribe(topic, channel_id)


def url_of(model: Any, view: str = "changelist", *args: str) -> str:
    meta = model._meta
    return reverse(f"admin:{meta.app_label}_{meta.model_name}_{view}", args=[quote(arg) for arg in args])


def listed(response: Any) -> list[str]:
    assert response.status_code == 200
    return [row.pk for row in context_of(response)["cl"].result_list]


MAKERS: dict[Any, Callable[[str], Any]] = {
    Channel: lambda text: channel(text, text, name=text, pikku_user_id=text),
    ChannelSubscription: lambda text: channel(text, text),
    Deployment: lambda text: Deployment.objects.put(text, f"https://{text}", [text], at=now()),
    WebhookDelivery: lambda text: delivery(text, event=text, headers={text: text}, body=json.dumps({text: text})),
    AuditEntry: lambda text: entry(
        text, type=text, user_id=text, org_id=text, wire_type="x", metadata={"runId": text, text: text}
    ),
    VirtualUserRun: virtual_run,
}
"""By model, what makes a row of it whose texts are all that text."""

each_model = pytest.mark.parametrize("model", MAKERS, ids=lambda model: model.__name__)


# -- all of them -------------------------------------------------------------------------------------------------------


@each_model
def test_a_list_costs_the_same_however_long_it_is(root_client: Client, model: Any) -> None:
    counts = []
    for count in (3, 57):
        for index in range(count):
            MAKERS[model](f"{count} {index}")
        with CaptureQueriesContext(connection) as captured:
            response = root_client.get(url_of(model))
        assert len(listed(response)) >= min(count, 50)
        assert len(response.content) < 300_000
        counts.append(len(captured))
        for query in captured.captured_queries:
            bounded = "GROUP BY" in query["sql"] or "LIMIT 1001" in query["sql"]
            assert "COUNT(" not in query["sql"] or bounded, query["sql"]
    assert counts[0] == counts[1]


@each_model
def test_texts_are_text_and_links_lead_there(root_client: Client, model: Any) -> None:
    MAKERS[model](HOSTILE)
    response = root_client.get(url_of(model))
    (row_id,) = listed(response)
    page = root_client.get(url_of(model, "change", row_id))
    assert page.status_code == 200
    for content in (response.content.decode(), page.content.decode()):
        assert "<script>alert" not in content
    # Found again by what its search says that it finds; a run of a virtual user by its persona.
    assert listed(root_client.get(url_of(model), {"q": HOSTILE})) == [row_id]
    assert listed(root_client.get(url_of(model), {"q": "nothing"})) == []


@each_model
def test_paging_by_key_goes_through_all_rows(root_client: Client, model: Any) -> None:
    for index in range(111):
        MAKERS[model](f"row {index:03}")
    url, seen = url_of(model), []
    while True:
        response = root_client.get(url)
        seen += listed(response)
        older = context_of(response)["cl"].older_url
        if not older:
            break
        url = url_of(model) + older
    assert len(seen) == len(set(seen)) == 111


@each_model
def test_an_empty_list_says_why(root_client: Client, model: Any) -> None:
    state = context_of(root_client.get(url_of(model)))["empty_state"]
    assert state.title != "There is nothing yet."
    assert state.text
    assert "Nothing matches." in root_client.get(url_of(model), {"q": "x"}).content.decode()


@each_model
def test_nobody_adds_changes_or_deletes_rows(root_client: Client, model: Any) -> None:
    MAKERS[model]("a row")
    (row_id,) = listed(root_client.get(url_of(model)))
    before = list(model._default_manager.order_by("pk").values())
    for tail in ("add/", f"{quote(row_id)}/delete/", f"{quote(row_id)}/history/"):
        assert root_client.post(f"{url_of(model)}{tail}", {"post": "yes"}).status_code == 404
    root_client.post(url_of(model, "change", row_id), {"type": "x", "status": "x", "_save": "1"})
    root_client.post(url_of(model), {"action": "delete_selected", "_selected_action": [row_id], "post": "yes"})
    assert list(model._default_manager.order_by("pk").values()) == before


# -- webhooks ----------------------------------------------------------------------------------------------------------


def test_what_is_shown_of_a_delivery(root_client: Client) -> None:
    headers = {"X-Pikku-Signature": "sha256=s3cret", "Cookie": "s3cret", "X-Shop": "kettles"}
    row = delivery(attempts=2, headers=headers, secret_name="acme")
    page = root_client.get(url_of(WebhookDelivery, "change", row.pk)).content.decode()
    for text in ("hooks.test/x?key=…", "503", "no answer", "&lt;b&gt;gone&lt;/b&gt;", "kettles", "acme", "not shown"):
        assert text in page
    assert "s3cret" not in page
    listing = root_client.get(url_of(WebhookDelivery)).content.decode()
    assert "hooks.test" in listing
    assert "s3cret" not in listing
    body = root_client.get(url_of(WebhookDelivery, "body", row.pk))
    assert (body.content, body.headers["X-Content-Type-Options"]) == (b'{"n":1}', "nosniff")


def test_what_may_be_secret_is_left_out() -> None:
    assert shown_url("https://ada:pw@hooks.test:8443/a/b?x=1&key=2") == "https://hooks.test:8443/a/b?x=…&key=…"
    assert host_of("https://ada:pw@hooks.test:8443/a") == "hooks.test:8443"
    assert (shown_url("http://[broken"), host_of("http://[broken")) == ("", "")
    shown = shown_headers({"X-Sign": "1", "X-Auth": "2", "X-Session-Id": "3", "X-Shop": "4"}, "x-sign")
    assert [header.value for header in shown] == [None, None, "4", None]
    assert shown_headers(None, "x") == []


def test_deliveries_by_status_go_by_when_that_was_last_so(root_client: Client) -> None:
    old, new = delivery("old", minutes=9), delivery("new", minutes=1)
    delivery("other", status="delivered")
    WebhookDelivery.objects.filter(pk=old.pk).update(updated_at=now())
    response = root_client.get(url_of(WebhookDelivery), {"status": "failed"})
    assert listed(response) == [old.pk, new.pk]
    counts = {tab.status: tab.count for tab in context_of(response)["tabs"]}
    assert counts == {"": "", "pending": "0", "delivered": "1", "failed": "2"}
    assert listed(root_client.get(url_of(WebhookDelivery), {"status": "unknown"})) == []


def operate(client: Client, model: Any, row_id: str, operation: str, **data: str) -> Any:
    return client.post(url_of(model, "operation", row_id, operation), {"reason": "because", **data}, follow=True)


@pytest.mark.parametrize(
    ("status", "operation", "after", "says"),
    [
        ("failed", "replay", "pending", "is sent again"),
        ("delivered", "replay", "pending", "is sent again"),
        ("pending", "replay", "pending", "still under way"),
        ("pending", "give-up", "failed", "is given up"),
        ("failed", "give-up", "failed", "waits for another attempt"),
    ],
)
def test_sending_again_and_giving_up(
    root_client: Client, superuser: User, settings: Any, status: str, operation: str, after: str, says: str
) -> None:
    settings.PIKKU_STORAGE = {**settings.PIKKU_STORAGE, "AUDIT_SINK": "tests.conformance.recording.keep"}
    row = delivery(HOSTILE, status=status)
    page = operate(root_client, WebhookDelivery, row.pk, operation)
    assert says in page.content.decode()
    assert WebhookDelivery.objects.get().status == after
    assert LogEntry.objects.filter(user=superuser).count() == (status != after)


def test_an_attempt_that_is_under_way_is_not_given_up(root_client: Client) -> None:
    row = delivery(status="pending", claim_token="t")
    assert "can be given up" in operate(root_client, WebhookDelivery, row.pk, "give-up").content.decode()
    assert WebhookDelivery.objects.get().status == "pending"


def test_who_may_only_look_sends_nothing(root_client: Client) -> None:
    row, client = delivery(), client_of(staff_with("admin:webhooks:read", name="reader"))
    assert "Send again" not in client.get(url_of(WebhookDelivery, "change", row.pk)).content.decode()
    assert operate(client, WebhookDelivery, row.pk, "replay").status_code == 403
    client.post(url_of(WebhookDelivery), {"action": "replay_selected", "_selected_action": [row.pk], "confirmed": "1"})
    assert WebhookDelivery.objects.get().status == "failed"
    assert operate(root_client, WebhookDelivery, row.pk, "no-such-thing").status_code == 404


def test_sending_many_again(root_client: Client) -> None:
    ids = [delivery(f"d{index}", status=status).pk for index, status in enumerate(("failed", "delivered", "pending"))]
    chosen = {"action": "replay_selected", "_selected_action": ids}
    asked = root_client.post(url_of(WebhookDelivery), chosen)
    assert (len(context_of(asked)["rows"]), context_of(asked)["left"]) == (2, 1)
    assert WebhookDelivery.objects.filter(status="pending").count() == 1, "it was only asked"
    done = root_client.post(url_of(WebhookDelivery), {**chosen, "confirmed": "1", "reason": "back"}, follow=True)
    assert "Send again: done for 2." in done.content.decode()
    assert "1 was left as it is." in done.content.decode()
    assert WebhookDelivery.objects.filter(status="pending").count() == 3


# -- channels ----------------------------------------------------------------------------------------------------------


def test_a_channel_and_who_else_hears(root_client: Client) -> None:
    ada = User.objects.create_user("ada")
    channel("c1", "news", "a&b", pikku_user_id=ada)
    channel("c2", "news")
    page = root_client.get(url_of(Channel, "change", "c1"))
    assert [(topic.name, topic.subscribers) for topic, _ in context_of(page)["topics"]] == [("a&b", 1), ("news", 2)]
    assert "ada" in page.content.decode()
    assert listed(root_client.get(url_of(Channel), {"q": "ada"})) == ["c1"]
    (url,) = [url for topic, url in context_of(page)["topics"] if topic.name == "news"]
    topic = root_client.get(url)
    assert [row.channel_id for row in context_of(topic)["cl"].result_list] == ["c1", "c2"]
    assert "2 channels hear of news." in topic.content.decode()


def test_whether_a_channel_is_there() -> None:
    at = now()
    later, before = at + timedelta(seconds=1), at - timedelta(seconds=1)
    states = [state_of(holder, until, at) for holder, until in (("p", later), ("p", before), (CLOSING, later))]
    assert states == [ChannelState.OPEN, ChannelState.LAPSED, ChannelState.CLOSING]
    assert state_of(None, None, at) is ChannelState.UNLEASED


def test_closing_channels(root_client: Client) -> None:
    channel(HOSTILE, "news")
    channel("nobody looks after", holder=None)
    page = operate(root_client, Channel, HOSTILE, "close")
    assert "is closed." in page.content.decode()
    assert "It was closed." in page.content.decode()
    assert not ChannelSubscription.everyones.exists()
    assert "It is closing already." in operate(root_client, Channel, HOSTILE, "close").content.decode()
    # One that is gone leads to the list.
    assert operate(root_client, Channel, "nobody looks after", "close").redirect_chain[-1][0] == url_of(Channel)
    assert list(Channel.everyones.values_list("pk", "holder")) == [(HOSTILE, CLOSING)]


# -- deployments -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("seconds", "state"), [(0, "live"), (14, "live"), (16, "late"), (29, "late"), (30, "gone")])
def test_whether_a_deployment_is_up(seconds: int, state: str) -> None:
    at = now()
    assert liveness_of(at - timedelta(seconds=seconds), at) is Liveness(state)


def test_who_serves_what(root_client: Client) -> None:
    put = Deployment.objects.put
    put("web-1", "https://a.test", ["charge", "label"], at=now())
    put("web-2", "https://b.test", ["charge"], at=now() - timedelta(seconds=20))
    put("web-3", "https://c.test", ["charge"], at=now() - timedelta(hours=1))
    page = root_client.get(url_of(Deployment, "functions"))
    found = {name: [(each["id"], each["is_late"]) for each in served] for name, served in context_of(page)["functions"]}
    assert found == {"charge": [("web-1", False), ("web-2", True)], "label": [("web-1", False)]}
    assert "nobody calls it" in root_client.get(url_of(Deployment, "change", "web-3")).content.decode()


# -- audit -------------------------------------------------------------------------------------------------------------


class _Played(User):
    """A user of a project that marks the actors of scenarios."""

    actor = True

    class Meta:
        proxy = True
        app_label = "auth"


def test_who_did_it(root_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    ada = User.objects.create_user("ada", first_name="Ada", last_name="L")
    entry("a", user_id=str(ada.pk), minutes=0)
    entry("b", user_id="somebody gone", minutes=1)
    entry("c", pikku_user_id="telegram:1", minutes=2)
    entry("d", minutes=3)
    rows = context_of(root_client.get(url_of(AuditEntry)))["cl"].result_list
    who = [row.__dict__["console_who"] for row in rows]
    assert who[0] == "Ada L"
    assert who[1] == "somebody gone"
    assert "telegram:1" in who[2]
    assert "named by the wire" in who[2]
    assert "system" in who[3]
    monkeypatch.setattr("console.owners.get_user_model", lambda: _Played)
    (first, *_) = context_of(root_client.get(url_of(AuditEntry)))["cl"].result_list
    assert "scenario actor" in first.__dict__["console_who"]


def test_what_it_was_about(root_client: Client) -> None:
    run_id = failed_order(now()).tell()
    entry("a", metadata={"reason": "x", "runId": run_id})
    entry("b", metadata="no JSON {", minutes=1)
    entry("c", metadata={"runId": "r" * 3000}, minutes=2)
    page = root_client.get(url_of(AuditEntry))
    subjects = [row.__dict__["console_subject"] for row in context_of(page)["cl"].result_list]
    assert f'href="/admin/pikku_workflows/workflowrun/{quote(run_id)}/change/"' in subjects[0]
    assert subjects[1:] == [None, None], "of much metadata only the beginning is read"
    assert "no JSON {" in root_client.get(url_of(AuditEntry, "change", "b")).content.decode()
    # Who may not see runs gets no link to one.
    client = client_of(staff_with("admin:audit:read", name="auditor"))
    assert "workflowrun" not in client.get(url_of(AuditEntry)).content.decode()
    assert "workflowrun" not in client.get(url_of(AuditEntry, "change", "a")).content.decode()


@pytest.mark.parametrize(
    ("params", "ids"),
    [
        ({"type": "b"}, ["2"]),
        ({"outcome": "denied"}, ["1", "2"]),
        ({"user": "ada"}, ["0", "1"]),
        ({"when": "1h"}, ["0", "1"]),
        ({"when": "7d", "user": "ada", "outcome": "denied"}, ["1"]),
        ({"q": "ada"}, ["0", "1"]),
        ({"q": "b"}, ["2"]),
    ],
)
def test_filters_of_the_trail(root_client: Client, params: dict[str, str], ids: list[str]) -> None:
    entry("0", type="a", user_id="ada")
    entry("1", type="a", user_id="ada", outcome="denied", minutes=5)
    entry("2", type="b", user_id="eve", outcome="denied", minutes=90)
    assert listed(root_client.get(url_of(AuditEntry), params)) == ids
    exported = root_client.get(url_of(AuditEntry, "export", "jsonl"), params).getvalue().decode()
    assert [json.loads(line)["audit_id"] for line in exported.splitlines()] == ids


def test_exporting_the_trail(root_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("console.audit.admin.entries.MOST_EXPORTED", 3)
    for index in range(5):
        entry(f"{index}", type="=cmd()", minutes=index, metadata={"n": [1, "ä"], "x": 'a,"b"\n'})
    response = root_client.get(url_of(AuditEntry, "export", "csv"))
    assert response.headers["Content-Disposition"].endswith('.csv"')
    rows = list(csv.DictReader(StringIO(response.getvalue().decode(), newline="")))
    assert [row["audit_id"] for row in rows] == ["0", "1", "2"]
    assert rows[0]["type"] == "'=cmd()", "no program for tables takes it for a formula"
    assert json.loads(rows[0]["data"]) == {"n": [1, "ä"], "x": 'a,"b"\n'}
    lines = root_client.get(url_of(AuditEntry, "export", "jsonl")).getvalue().decode().splitlines()
    assert json.loads(lines[0])["data"] == {"n": [1, "ä"], "x": 'a,"b"\n'}
    assert json.loads(lines[0])["type"] == "=cmd()"
    assert root_client.get(url_of(AuditEntry, "export", "xls")).status_code == 404
    assert set(export.CONTENT_TYPES) == {"csv", "jsonl"}


@pytest.mark.parametrize("sink", [None, "pikku_storage.auditing.log_event"])
def test_a_trail_that_is_kept_elsewhere_is_not_an_empty_one(
    root_client: Client, settings: Any, sink: str | None
) -> None:
    assert "not readable here" not in root_client.get(url_of(AuditEntry)).content.decode()
    settings.PIKKU_STORAGE = {**settings.PIKKU_STORAGE, "AUDIT_SINK": sink}
    page = root_client.get(url_of(AuditEntry)).content.decode()
    assert "The trail is not readable here." in page
    assert "Nothing was recorded yet." not in page
    assert ("AUDIT_SINK is None" in page) == (sink is None)


def test_events_that_were_lost_are_told_of(root_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auditing, "lost", auditing.Lost(events=3, last_error="gone"))
    assert "could not keep 3 events" in root_client.get(url_of(AuditEntry)).content.decode()


# -- virtual users -----------------------------------------------------------------------------------------------------


def test_a_virtual_users_steps_come_in_pages(root_client: Client) -> None:
    run_id = virtual_run(steps=230)
    url, seen = url_of(VirtualUserRun, "change", run_id), []
    for after in ("", "?after=99", "?after=199", "?after=x", "?after=-5"):
        page = root_client.get(url + after)
        seen.append([step.step_index for step, *_ in context_of(page)["steps"]])
        assert len(page.content) < 300_000
    first, second, third, *wrong = seen
    assert [*first, *second, *third] == list(range(230))
    assert wrong == [first, first]
    with CaptureQueriesContext(connection) as captured:
        root_client.get(url)
    assert not any("response" in query["sql"] for query in captured.captured_queries)


def test_a_virtual_users_run_and_a_step_of_it(root_client: Client) -> None:
    run_id, other = virtual_run(), virtual_run("Linus", steps=1)
    row = context_of(root_client.get(url_of(VirtualUserRun), {"q": "Grace"}))["cl"].result_list[0]
    assert (row.pk, row.__dict__["console_totals"]) == (run_id, (2, 10))
    step = reverse("admin:pikku_virtual_users_virtualuserrun_step", args=[run_id, 1])
    assert HOSTILE[:6] in root_client.get(step).content.decode()
    assert "<script>alert" not in root_client.get(step).content.decode()
    assert root_client.get(f"{step}response/").json() == {"said": HOSTILE}
    assert root_client.get(f"{step}run_id/").status_code == 404
    assert root_client.get(url_of(VirtualUserRun, "payload", run_id, "seed")).status_code == 404
    assert root_client.get(step.replace(quote(run_id), quote(other))).status_code == 404
    assert VirtualUserRunStep.objects.count() == 3
