"""What becomes of a decision about a tool call, who is told, and what else is kept of threads for people."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import transaction

from pikku_storage.agents.access import AgentAccess
from pikku_storage.agents.models import AgentToolCall
from pikku_storage.agents.service import AgentStorageService
from pikku_storage.agents.signals import approval_resolved
from pikku_storage.db import engine
from pikku_storage.exceptions import PayloadError, ThreadNotFoundError

pytestmark = pytest.mark.django_db(transaction=True)

LONG = {"order": "A17", "words": "ä☕ " * 1000}


@pytest.fixture
def storage() -> AgentStorageService:
    return AgentStorageService()


@pytest.fixture
def heard() -> Iterator[list[tuple[str, str]]]:
    """What the signal tells; one receiver that fails stands before."""
    calls: list[tuple[str, str]] = []

    def fail(sender: Any, **arguments: Any) -> None:
        raise RuntimeError("no broker")

    def hear(sender: Any, *, tool_call_id: str, status: str, **arguments: Any) -> None:
        calls.append((tool_call_id, status))

    approval_resolved.connect(fail)
    approval_resolved.connect(hear)
    yield calls
    approval_resolved.disconnect(fail)
    approval_resolved.disconnect(hear)


def asked(storage: AgentStorageService, args: Any = None) -> str:
    """A run that waits for a call; answers with the run's id."""
    storage.create_thread("ada", thread_id="t")
    call = {"id": "c", "name": "refund", "args": args or {}}
    storage.save_messages("t", [{"id": "m", "role": "assistant", "content": "May I?", "toolCalls": [call]}])
    return storage.create_run(
        agent_name="support", thread_id="t", resource_id="ada", pending_approvals=[{"toolCallId": "c"}]
    )


def test_the_reason_is_kept_with_the_decision(storage: AgentStorageService, heard: list[tuple[str, str]]) -> None:
    run_id = asked(storage)
    assert AgentAccess("ada").resolve_approval("c", "denied", reason="too much")
    assert not storage.resolve_approval("c", "approved", reason="never mind")
    row = AgentToolCall.everyones.get()
    assert (row.approval_status, row.approval_resolved_by, row.approval_reason) == ("denied", "ada", "too much")
    assert storage.get_run(run_id) is not None
    # Whoever could not decide tells nobody, and a receiver that fails keeps nobody from hearing.
    assert heard == [("c", "denied")]


def test_a_reason_that_cannot_be_stored_decides_nothing(
    storage: AgentStorageService, heard: list[tuple[str, str]]
) -> None:
    asked(storage)
    with pytest.raises(PayloadError, match="reason"):
        storage.resolve_approval("c", "approved", reason="\ud83d")
    assert (AgentToolCall.everyones.get().approval_status, heard) == ("pending", [])


def test_a_decision_that_is_rolled_back_was_none(storage: AgentStorageService, heard: list[tuple[str, str]]) -> None:
    if not engine(storage.using).connection.features.supports_transactions:
        pytest.skip("about transactions")
    asked(storage)
    with transaction.atomic(using=storage.using):
        assert storage.resolve_approval("c", "approved")
        transaction.set_rollback(True, using=storage.using)
    assert (AgentToolCall.everyones.get().approval_status, heard) == ("pending", [])


def test_a_thread_is_exported_alone(storage: AgentStorageService) -> None:
    run_id = asked(storage)
    storage.create_thread("ada", thread_id="other")
    storage.save_score(run_id, "polite", 1)
    thread = json.loads(storage.export_thread("t"))
    whole = json.loads("".join(storage.export_user("ada")))
    assert thread == next(each for each in whole["threads"] if each["id"] == "t")
    assert [score["scorerName"] for score in thread["runs"][0]["scores"]] == ["polite"]
    with pytest.raises(ThreadNotFoundError):
        storage.export_thread("missing")


@pytest.mark.parametrize("length", [1, 100, 20_000])
def test_of_a_large_value_the_beginning_can_be_read(storage: AgentStorageService, length: int) -> None:
    asked(storage, LONG)
    cut = engine(storage.using).json_beginning("args", length)
    if cut is None:
        pytest.skip("its documents cannot be cut")
    text = AgentToolCall.everyones.annotate(beginning=cut).values_list("beginning", flat=True).get()
    assert len(text) <= length
    if length > len(json.dumps(LONG)):
        assert json.loads(text) == LONG
    else:
        assert text.startswith("{"[:length])
        assert len(text) == length
