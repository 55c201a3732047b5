"""What is audited of a piece of work: who, how it ended, which tables, and each statement."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.core.exceptions import PermissionDenied
from django.db import DatabaseError, transaction
from pytest_django import Settings

from pikku_storage import auditing
from pikku_storage.agents.models import AgentThread
from pikku_storage.agents.service import AgentStorageService
from pikku_storage.audit import audit_context, audited, current_audit, invocations, querysets
from pikku_storage.audit.observing import observed_by
from pikku_storage.audit.records import AuditRecord
from pikku_storage.audit.service import AuditService
from pikku_storage.auditing import AuditEvent, record
from pikku_storage.db.fields import field_of
from tests.conformance.support import DATABASE, needs_transactions

pytestmark = pytest.mark.django_db(transaction=True)

TABLE = "agent_threads"


@pytest.fixture(autouse=True)
def _sink(settings: Settings) -> None:
    settings.PIKKU_STORAGE = {**settings.PIKKU_STORAGE, "AUDIT_SINK": "pikku_storage.audit.sinks.store"}


def trail() -> list[AuditRecord]:
    """What is in the trail, in the order of time."""
    with observed_by(None):
        return list(AuditService().query().events[::-1])


def statements() -> list[AuditRecord]:
    return [each for each in trail() if each.type.startswith("query.")]


def work() -> None:
    """Reads, inserts and updates."""
    threads = AgentThread.everyones.using(DATABASE)
    at = datetime(2026, 1, 1, tzinfo=UTC)
    AgentStorageService().create_thread("ada", thread_id="t", title="A pot")
    threads.filter(pk="t").update(title="A broken pot", updated_at=at)
    list(threads.filter(resource_id="ada"))


@pytest.mark.contract("AQ-01", "AQ-02", "AQ-03", "AQ-04", "AQ-07")
def test_statements_are_kept_with_tables_columns_and_on_demand_values() -> None:
    with audit_context("work", actor="ada", values=True):
        work()
        assert trail() == [], "best effort: written at the end"
    inserted, updated, selected = [
        next(each for each in statements() if each.type == f"query.{kind}") for kind in ("insert", "update", "select")
    ]
    assert inserted.tables == updated.tables == selected.tables == [TABLE]
    columns = {name: str(field_of(AgentThread, name).column) for name in ("resource_id", "updated_at")}
    assert {"title", *columns.values()} <= set(inserted.changed_cols)
    assert inserted.data["values"][0]["title"] == "A pot"
    assert set(updated.changed_cols) == {"title", columns["updated_at"]}
    assert updated.data["values"][0]["title"] == "A broken pot"
    assert selected.changed_cols is None
    seen = [each.query_id for each in statements()]
    assert None not in seen
    assert len(set(seen)) == len(seen) >= 3
    (whole,) = [each for each in trail() if each.type == "work"]
    assert (whole.user_id, whole.outcome, whole.tables) == ("ada", "success", [TABLE])
    assert f"{TABLE}.title" in whole.changed_cols
    assert {each.transaction_id for each in trail()} == {whole.transaction_id}, "they belong together"
    assert {each.source for each in trail()} == {"auto"}


@pytest.mark.contract("AQ-05")
def test_selects_and_statements_may_be_skipped_and_values_are_unless_asked_for() -> None:
    with audit_context(selects=False):
        work()
    assert {each.type for each in statements()} == {"query.insert", "query.update"}
    assert all("values" not in each.data for each in statements())
    AgentStorageService().delete_thread("t")
    with audit_context("work", statements=False):
        work()
    assert len([each for each in trail() if each.type == "work"]) == 1
    # That the thread was deleted is said by whoever deletes it.
    assert len([each for each in trail() if each.source == "auto"]) == 4


@pytest.mark.contract("AQ-06")
def test_nothing_is_kept_where_auditing_is_off(settings: Settings) -> None:
    settings.PIKKU_STORAGE = {**settings.PIKKU_STORAGE, "AUDIT_SINK": None}
    for mode in ("best-effort", "transactional"):
        with audit_context(mode=mode) as audit:
            work()
            audit.note("x")
        AgentStorageService().delete_thread("t")
    assert trail() == []


@pytest.mark.contract("AQ-08")
def test_in_transactional_mode_all_is_written_at_once() -> None:
    with audit_context("work", mode="transactional") as audit:
        work()
        assert {each.type for each in trail()} == {"query.insert", "query.update", "query.select"}
        audit.note("noted", {"order": "A17"})
        assert "noted" in {each.type for each in trail()}
    assert len([each for each in trail() if each.type == "work"]) == 1


def create_and_note() -> None:
    with transaction.atomic(using=DATABASE):
        AgentStorageService().create_thread("ada", thread_id="other")
        with audit_context(mode="transactional") as audit:
            audit.note("noted")


@needs_transactions
def test_in_transactional_mode_the_trail_and_the_work_are_undone_together(monkeypatch: pytest.MonkeyPatch) -> None:
    with audit_context("work", mode="transactional"), transaction.atomic(using=DATABASE):
        work()
        transaction.set_rollback(True, using=DATABASE)
    assert {each.type for each in trail()} == {"work"}

    def fail(*args: Any) -> None:
        raise DatabaseError("the disk is full")

    monkeypatch.setattr(querysets.TrailQuerySet, "add", fail)
    with pytest.raises(DatabaseError, match="disk"):
        create_and_note()
    assert not AgentThread.everyones.filter(pk="other").exists(), "no change without its event"


@pytest.mark.contract("AU-19")
def test_a_flush_that_fails_is_logged_and_not_thrown(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*args: Any) -> None:
        raise DatabaseError("the disk is full")

    before = auditing.lost.events
    with monkeypatch.context() as patch:
        patch.setattr(querysets.TrailQuerySet, "add", fail)
        with audit_context(selects=False):
            work()
    assert auditing.lost.events == before + 3
    assert "the disk is full" in caplog.text
    assert AgentThread.everyones.filter(pk="t").exists()


@pytest.mark.contract("AQ-09")
def test_without_an_audit_nothing_is_written_and_notes_are_dropped_with_one_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(invocations, "_unaudited", invocations._Unaudited())
    work()
    for _ in range(3):
        current_audit().note("order.checked")
    assert trail() == []
    assert [each.levelname for each in caplog.records if "order.checked" in each.getMessage()] == ["WARNING"]


@audited
def plainly() -> str:
    current_audit().note("order.checked", {"order": "A17"})
    return "done"


@audited("order.refunded", actor=lambda order, by: by, wire_type="shop")
def refund(order: str, by: str) -> None:
    if order == "forbidden":
        raise PermissionDenied
    raise ZeroDivisionError


@audited("order.moved", actor=lambda by: by, selects=False)
async def move(by: str) -> None:
    await asyncio.to_thread(lambda: None)
    await AgentStorageService().acreate_thread(by, thread_id="t")
    await current_audit().anote("order.checked")


def test_a_decorated_function_says_who_and_how_it_ended() -> None:
    assert plainly() == "done"
    with pytest.raises(ZeroDivisionError):
        refund("A17", by="bob")
    with pytest.raises(PermissionDenied):
        refund("forbidden", by="eve")
    async_to_sync(move)("ada")
    found = {(each.type, each.function_id.rpartition(".")[2], each.user_id, each.outcome) for each in trail()}  # type: ignore[union-attr]
    assert found == {
        ("order.checked", "plainly", None, "success"),
        ("function.invoked", "plainly", None, "success"),
        ("order.refunded", "refund", "bob", "failed"),
        ("order.refunded", "refund", "eve", "denied"),
        ("query.insert", "move", "ada", "success"),
        ("order.checked", "move", "ada", "success"),
        ("order.moved", "move", "ada", "success"),
    }
    (failed,) = [each for each in trail() if each.outcome == "failed"]
    assert failed.data["error"] == "ZeroDivisionError"


def test_what_the_package_tells_of_inside_has_the_same_actor_and_transaction() -> None:
    told = AuditEvent(type="secret.written", outcome="success", wire_type="secrets")
    with audit_context("work", actor="ada", trace_id="trace") as audit:
        record(told)
        with audit_context("inner"):
            record(AuditEvent(type="other", outcome="success", wire_type=None, transaction_id="own"))
    found = {each.type: (each.user_id, each.trace_id, each.transaction_id) for each in trail()}
    assert found["secret.written"] == ("ada", "trace", audit.transaction_id)
    assert found["other"] == ("ada", None, "own")
    assert found["inner"][0] == "ada"


def test_the_buffer_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(invocations, "MOST_EVENTS", 1)
    with audit_context("work"):
        work()
    (whole,) = [each for each in trail() if each.type == "work"]
    assert len(statements()) == 1
    assert whole.data["statementsNotKept"] >= 2


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(ValueError, match="mode"):
        audit_context(mode="sometimes")  # type: ignore[arg-type]
