"""The audit trail's table: what is written, found, and pruned."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.core.checks import run_checks
from django.core.management import CommandError, call_command
from django.db import DatabaseError, transaction
from pytest_django import Settings

from pikku_storage import auditing
from pikku_storage.access.actors import Actor
from pikku_storage.agents.service import AgentStorageService
from pikku_storage.audit import querysets
from pikku_storage.audit.models import AuditEntry
from pikku_storage.audit.records import AuditRecord
from pikku_storage.audit.service import LARGEST_PAGE, AuditService
from pikku_storage.auditing import AuditEvent, record, record_all
from pikku_storage.exceptions import AuditInputError, PayloadError
from pikku_storage.secrets.service import SecretService
from pikku_storage.workflows.service import WorkflowService
from tests.conformance.support import DATABASE, about_sql, data_statements, needs_transactions

pytestmark = pytest.mark.django_db(transaction=True)

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
STORE = "pikku_storage.audit.sinks.store"


def event(number: int = 0, *, user: str | None = "ada", org: str | None = None, **fields: Any) -> AuditEvent:
    given = {"type": "order.refunded", "outcome": "success", "wire_type": None, "event_id": f"e{number}", **fields}
    given.setdefault("occurred_at", NOON + timedelta(seconds=number))
    return AuditEvent(actor=Actor(user_id=user, org_id=org), **given)


@pytest.fixture
def trail(settings: Settings) -> AuditService:
    settings.PIKKU_STORAGE = {**settings.PIKKU_STORAGE, "AUDIT_SINK": STORE}
    return AuditService()


def ids(trail: AuditService, **filters: Any) -> list[str]:
    return [each.audit_id for each in trail.query(**filters).events]


# -- what is written ---------------------------------------------------------------------------------------------------


@pytest.mark.contract("AU-02", "AU-03")
def test_an_event_is_read_back_as_it_was(trail: AuditService) -> None:
    metadata = {"tables": ["orders"], "changedColumns": ["orders.paid"], "list": [1, {"ä": None}]}
    whole = event(org="shop", metadata=metadata, function_id="f", trace_id="t", transaction_id="x", query_id="q")
    by_wire = event(1, user=None, outcome=None, source="auto", pikku_user_id="mcp:key-7")
    assert trail.write([whole, by_wire]) == 2
    second, first = trail.query().events
    assert first == AuditRecord(
        audit_id="e0",
        occurred_at=NOON,
        type="order.refunded",
        source="explicit",
        outcome="success",
        function_id="f",
        trace_id="t",
        transaction_id="x",
        query_id="q",
        user_id="ada",
        org_id="shop",
        tables=["orders"],
        changed_cols=["orders.paid"],
        event="e0",
        data=metadata,
    )
    assert (second.user_id, second.pikku_user_id, second.outcome, second.data) == (None, "mcp:key-7", None, {})


def test_an_id_is_kept_once(trail: AuditService) -> None:
    assert trail.write([]) == 0
    assert trail.write([event(1), event(2, type="first"), event(2, type="again")]) == 2
    assert trail.write([event(2), event(3)]) == 1, "what is new in a batch is written"
    assert trail.write([event(3, type="other")]) == 0
    assert [each.type for each in trail.query().events] == ["order.refunded", "first", "order.refunded"]


@about_sql
def test_a_batch_takes_one_look_and_one_insert(trail: AuditService, statements: Any) -> None:
    batch = [event(number) for number in range(50)]
    with statements() as seen:
        trail.write(batch)
    assert len(data_statements(seen)) == 2
    with statements() as seen:
        trail.write([event(60)])
    assert [text.split()[0] for text in data_statements(seen)] == ["INSERT"]


def test_the_id_is_that_of_the_event_or_of_the_query_or_a_new_one(trail: AuditService) -> None:
    queries = [event(event_id=None, query_id="q1"), event(event_id="e1", query_id="q2"), event(event_id=None)]
    trail.write(queries)
    found = {each.audit_id: (each.event, each.query_id) for each in trail.query().events}
    assert found == {"q1": (None, "q1"), "e1": ("e1", "q2"), queries[2].audit_id: (None, None)}
    trail.write(queries)
    assert len(ids(trail)) == 3, "the same events have the same ids"


def test_what_cannot_be_stored_keeps_nothing_but_metadata_away(trail: AuditService) -> None:
    trail.write([event(1, metadata={"when": NOON})])
    assert "datetime is not JSON" in trail.query().events[0].data["notKept"]
    with pytest.raises(PayloadError, match="type"):
        trail.write([event(2), event(3, type="a\x00b")])
    with pytest.raises(AuditInputError, match="occurred_at"):
        trail.write([event(2, occurred_at=NOON.replace(tzinfo=None))])
    assert ids(trail) == ["e1"]


# -- what is found -----------------------------------------------------------------------------------------------------


@pytest.fixture
def filled(trail: AuditService) -> AuditService:
    trail.write(
        [
            event(1, type="a"),
            event(2, type="b", user="bob", org="shop"),
            event(3, type="b"),
            event(4, type="c", user=None),
        ]
    )
    return trail


@pytest.mark.contract("AU-01", "AU-04", "AU-05", "AU-06", "AU-07", "AU-08")
@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({}, ["e4", "e3", "e2", "e1"]),
        ({"user_ids": ["ada"]}, ["e3", "e1"]),
        ({"types": ["a", "c"]}, ["e4", "e1"]),
        ({"user_ids": ["ada", "bob"], "types": ["b"], "org_id": "shop"}, ["e2"]),
        ({"user_ids": []}, []),
        ({"types": [], "user_ids": ["ada"]}, []),
        ({"from_": NOON + timedelta(seconds=2), "to": NOON + timedelta(seconds=4)}, ["e3", "e2"]),
        ({"org_id": "none"}, []),
    ],
)
def test_all_that_is_given_must_hold(filled: AuditService, filters: Any, expected: list[str]) -> None:
    assert ids(filled, **filters) == expected


@pytest.mark.contract("AU-09", "AU-10")
def test_pages_by_offset_and_by_key_have_each_event_once(trail: AuditService) -> None:
    trail.write([event(number, occurred_at=NOON) for number in range(5)])
    everything = ["e4", "e3", "e2", "e1", "e0"]
    by_offset: list[str] = []
    cursor: int | None = 0
    while cursor is not None:
        page = trail.query(limit=2, offset=cursor)
        by_offset += [each.audit_id for each in page.events]
        cursor = page.next_cursor
    assert by_offset == everything
    page = trail.query(limit=2)
    by_key = [each.audit_id for each in page.events]
    while page.last is not None:
        trail.write([event(9, occurred_at=NOON + timedelta(seconds=1))])
        page = trail.query(limit=2, before=page.last)
        by_key += [each.audit_id for each in page.events]
    assert by_key == everything, "also while others are written"


@pytest.mark.contract("AU-11")
def test_the_limit_is_brought_into_its_bounds(trail: AuditService) -> None:
    trail.write([event(number) for number in range(LARGEST_PAGE + 1)])
    page = trail.query(limit=10**9)
    assert (len(page.events), page.next_cursor) == (LARGEST_PAGE, LARGEST_PAGE)
    assert len(trail.query(limit=0).events) == 1
    assert len(trail.query().events) == 50


@pytest.mark.contract("AU-12")
def test_data_that_is_no_json_is_answered_as_it_is(trail: AuditService) -> None:
    trail.write([event(1)])
    AuditEntry.objects.filter(pk="e1").update(data="{broken", tables='["a"')
    (found,) = trail.query().events
    assert (found.data, found.tables) == ("{broken", '["a"')


@pytest.mark.contract("AU-17", "AU-18")
def test_facets_are_what_there_is(filled: AuditService) -> None:
    facets = filled.facets()
    assert (facets.user_ids, facets.types) == (("ada", "bob"), ("a", "b", "c"))


def test_what_cannot_be_looked_for_is_refused(trail: AuditService) -> None:
    for wrong in ({"from_": NOON.replace(tzinfo=None)}, {"to": "2026-05-01"}, {"user_ids": "ada"}):
        with pytest.raises(AuditInputError):
            trail.query(**wrong)


def test_the_log_has_the_same_under_the_names_of_the_contract() -> None:
    told = event(user=None, pikku_user_id="mcp:key-7", query_id="q", metadata={"a": 1}).as_json()
    assert told == {
        "type": "order.refunded",
        "source": "explicit",
        "outcome": "success",
        "occurredAt": NOON.isoformat(),
        "wireType": None,
        "userIdentity": {"pikkuUserId": "mcp:key-7"},
        "metadata": {"a": 1},
        "eventId": "e0",
        "queryId": "q",
    }


# -- how long it is kept -----------------------------------------------------------------------------------------------


@pytest.mark.contract("AU-16")
def test_old_events_are_pruned(trail: AuditService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(querysets, "BATCH", 2)
    now = datetime.now(UTC)
    trail.write([event(number, occurred_at=now - timedelta(days=number)) for number in range(1, 6)])

    def pruned(*options: str) -> str:
        out = StringIO()
        call_command("prune_audit", "--older-than", "36h", *options, stdout=out)
        return out.getvalue()

    assert pruned("--dry-run") == "4 events would be deleted\n"
    assert pruned() == "4 events deleted\n"
    call_command("migrate", "pikku_audit", database=DATABASE, verbosity=0)
    assert ids(trail) == ["e1"]
    with pytest.raises(CommandError):
        call_command("prune_audit", "--older-than", "some days")


# -- the sink ----------------------------------------------------------------------------------------------------------


def test_what_the_package_does_is_in_the_table(trail: AuditService, use_keys: Any) -> None:
    use_keys(1, AUDIT_SINK=STORE)
    agents = AgentStorageService()
    agents.erase_user("eve", by="dpo")
    secrets = SecretService()
    for name in ("a", "b"):
        secrets.set_secret(name, "hush")
    use_keys(2, AUDIT_SINK=STORE)
    SecretService().rotate_kek()
    SecretService().delete_secret("b")
    found = [(each.type, each.user_id, each.data) for each in reversed(trail.query().events)]
    assert found == [
        ("agent.user.erased", "dpo", {"threads": 0, "memories": 0}),
        ("secret.written", None, {"key": "a"}),
        ("secret.written", None, {"key": "b"}),
        ("secret.rotated", None, {"count": 2, "keyVersion": 2}),
        ("secret.deleted", None, {"key": "b"}),
    ]


@needs_transactions
def test_what_was_undone_is_in_no_trail_but_what_was_refused_is_in_the_log(
    trail: AuditService, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO"), transaction.atomic(using=DATABASE):
        record(event(1))
        record(event(2, outcome="denied", type="order.refused"))
        transaction.set_rollback(True, using=DATABASE)
    with transaction.atomic(using=DATABASE):
        record(event(3))
        assert ids(trail) == []
    assert ids(trail) == ["e3"]
    assert "order.refused" in caplog.text
    assert "order.refunded" not in caplog.text


def test_a_trail_that_fails_breaks_no_work_and_can_be_seen(
    trail: AuditService, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any) -> None:
        raise DatabaseError("the disk is full")

    before = auditing.lost.events
    with monkeypatch.context() as patch:
        patch.setattr(querysets.TrailQuerySet, "add", fail)
        with transaction.atomic(using=DATABASE):
            record_all([event(1), event(2)])
            WorkflowService().create_run("other", {}, inline=False)
    assert auditing.lost.events == before + 2
    assert auditing.lost.last_error == "DatabaseError: the disk is full"
    assert "2 audit events could not be kept" in caplog.text
    record_all([event(1), event(2, type="\x00"), event(3)])
    assert ids(trail) == ["e3", "e1"], "one that cannot be kept takes no other with it"
    assert auditing.lost.events == before + 3


@pytest.mark.contract("AU-15")
def test_a_sink_or_a_table_that_is_missing_is_reported(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.PIKKU_STORAGE = {**settings.PIKKU_STORAGE, "AUDIT_SINK": "no.such.sink"}
    assert "pikku.E301" in {message.id for message in run_checks(tags=["pikku"])}
    settings.PIKKU_STORAGE = {**settings.PIKKU_STORAGE, "AUDIT_SINK": STORE}

    def reported() -> set[str | None]:
        return {message.id for message in run_checks(tags=["pikku"], databases=[DATABASE])}

    assert not {"pikku.E301", "pikku.E009"} & reported()
    monkeypatch.setattr(AuditEntry._meta, "db_table", "no_such_table")
    assert "pikku.E009" in reported()


async def _asked(trail: AuditService) -> list[str]:
    await trail.awrite([event(1)])
    return [each.audit_id for each in (await trail.aquery()).events]


def test_it_has_async_twins(trail: AuditService) -> None:
    assert async_to_sync(_asked)(trail) == ["e1"]
