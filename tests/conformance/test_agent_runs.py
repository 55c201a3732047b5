"""Runs of agents, their approvals, scores and working memory (contract services.md §5)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test.utils import CaptureQueriesContext

from pikku_storage.agents.records import Usage
from pikku_storage.agents.runs import AgentRunService
from pikku_storage.agents.service import AgentStorageService
from pikku_storage.agents.tasks import upkeep
from pikku_storage.auditing import AuditEvent
from pikku_storage.exceptions import AgentInputError, AgentRunNotFoundError, PayloadError, ThreadNotFoundError
from tests.conformance.support import connection, data_statements

pytestmark = pytest.mark.django_db(transaction=True)
A_TIME = datetime(2026, 3, 2, 9, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.fixture
def storage() -> AgentStorageService:
    return AgentStorageService()


@pytest.fixture
def runs() -> AgentRunService:
    return AgentRunService()


@pytest.fixture
def thread(storage: AgentStorageService) -> str:
    """A thread in which two tools were called."""
    thread_id = storage.create_thread("ada").id
    calls = [{"id": each, "name": "refund", "args": {"order": each}} for each in ("call-1", "call-2")]
    storage.save_messages(thread_id, [{"id": "m", "role": "assistant", "toolCalls": calls}])
    return thread_id


def run_of(storage: AgentStorageService, thread_id: str, **fields: Any) -> str:
    return storage.create_run({"agentName": "support", "threadId": thread_id, "resourceId": "ada", **fields})


def waits_for(storage: AgentStorageService, run_id: str) -> list[str]:
    run = storage.get_run(run_id)
    assert run is not None
    return [approval.tool_call_id for approval in run.pending_approvals or ()]


# -- runs --------------------------------------------------------------------------------------------------------------


@pytest.mark.contract("AS-10")
def test_a_run_reads_back(storage: AgentStorageService, thread: str) -> None:
    run_id = storage.create_run(
        agent_name="support",
        thread_id=thread,
        resource_id="ada",
        usage={"inputTokens": 12, "outputTokens": 3_000_000_000, "model": "m-1"},
        missing_rpcs=["a"],
        created_at=A_TIME,
        updated_at="2026-03-02T10:00:00.123456+00:00",
    )
    run = storage.get_run(run_id)
    assert run is not None
    assert (run.run_id, run.agent_name, run.thread_id, run.resource_id) == (run_id, "support", thread, "ada")
    assert (run.status, run.suspend_reason, run.error_message, run.missing_rpcs) == ("running", None, None, ["a"])
    assert run.usage == Usage(input_tokens=12, output_tokens=3_000_000_000, model="m-1")
    assert (run.created_at, run.updated_at) == (A_TIME, A_TIME + HOUR + timedelta(milliseconds=123))
    assert run.pending_approvals is None
    assert storage.get_run("nothing") is None


@pytest.mark.contract("AS-11")
def test_only_what_is_given_changes(storage: AgentStorageService, thread: str) -> None:
    run_id = run_of(storage, thread, usage=Usage(model="m-1"))
    before = storage.get_run(run_id)
    storage.update_run(run_id, status="failed", error_message="no such order")
    storage.update_run(run_id, {"usage": {"inputTokens": 7}})
    run = storage.get_run(run_id)
    assert run is not None
    assert before is not None
    assert (run.status, run.error_message, run.usage) == ("failed", "no such order", Usage(input_tokens=7))
    assert run.created_at == before.created_at
    assert run.updated_at >= before.updated_at
    storage.update_run(run_id, error_message=None)
    assert getattr(storage.get_run(run_id), "error_message", "") is None


@pytest.mark.contract("AS-12")
def test_runs_of_a_thread(storage: AgentStorageService, runs: AgentRunService, thread: str) -> None:
    own = [run_of(storage, thread) for _ in range(3)]
    run_of(storage, storage.create_thread("ada").id)
    for found in (storage.get_runs_by_thread(thread), runs.get_thread_runs(thread)):
        assert [run.run_id for run in found] == own[::-1]
    assert storage.get_runs_by_thread("nothing") == []


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"status": "approved"}, "status is one of running, suspended"),
        ({"suspend_reason": "tired"}, "suspend_reason is one of approval"),
        ({"usage": {"input_tokens": -1}}, "usage.input_tokens"),
        ({"usage": {"tokens": 1}}, "unknown tokens"),
        ({"colour": "red"}, "Unknown colour"),
        ({"agent_name": ""}, "agent_name"),
        ({"thread_id": None}, "needs thread_id"),
        ({"pending_approvals": [{"type": "tool-call"}]}, r"pending_approvals\[0\]\.tool_call_id"),
        ({"pending_approvals": [{"toolCallId": "call-1", "type": "other"}]}, r"pending_approvals\[0\]\.type"),
        ({"created_at": "soon"}, "created_at"),
    ],
)
def test_a_run_with_something_wrong_is_not_written(
    storage: AgentStorageService, thread: str, fields: Any, problem: str
) -> None:
    with pytest.raises((AgentInputError, PayloadError), match=problem):
        storage.create_run({"agent_name": "support", "thread_id": thread, "resource_id": "ada", **fields})
    assert storage.get_runs_by_thread(thread) == []


def test_a_run_of_nothing(storage: AgentStorageService) -> None:
    with pytest.raises(ThreadNotFoundError):
        run_of(storage, "nowhere")
    with pytest.raises(AgentRunNotFoundError, match="nothing"):
        storage.update_run("nothing", status="failed")
    with pytest.raises(AgentRunNotFoundError, match="nothing"):
        storage.update_run("nothing", pending_approvals=[])
    with pytest.raises(AgentRunNotFoundError):
        storage.save_score("nothing", "polite", 1)


# -- approvals ---------------------------------------------------------------------------------------------------------


@pytest.mark.contract("AS-16")
def test_an_approval_is_decided_once(storage: AgentStorageService, runs: AgentRunService, thread: str) -> None:
    run_id = run_of(
        storage,
        thread,
        status="suspended",
        suspendReason="approval",
        pendingApprovals=[{"type": "tool-call", "toolCallId": "call-1", "toolName": "refund", "args": {}}],
    )
    found = storage.find_run_by_tool_call_id("call-1")
    assert found is not None
    assert (found.run.run_id, found.run.status, found.approval.tool_call_id) == (run_id, "suspended", "call-1")
    assert (found.approval.type, found.approval.tool_name, found.approval.args) == (
        "tool-call",
        "refund",
        {"order": "call-1"},
    )
    assert waits_for(storage, run_id) == ["call-1"]

    assert storage.resolve_approval("call-1", "denied", by="eve") is True
    assert storage.resolve_approval("call-1", "approved", by="ada") is False

    assert storage.find_run_by_tool_call_id("call-1") is None
    assert waits_for(storage, run_id) == []
    (approval,) = runs.get_run_approvals(run_id)
    assert (approval.status, approval.resolved_by) == ("denied", "eve")
    assert approval.resolved_at is not None


@pytest.mark.parametrize("call_id", ["call-2", "nothing", ""])
def test_what_does_not_wait_cannot_be_decided(storage: AgentStorageService, thread: str, call_id: str) -> None:
    run_of(storage, thread, pending_approvals=[{"tool_call_id": "call-1"}])
    assert storage.resolve_approval(call_id, "approved") is False
    assert storage.find_run_by_tool_call_id(call_id) is None
    with pytest.raises(AgentInputError, match="approved, denied"):
        storage.resolve_approval("call-1", "pending")  # type: ignore[arg-type]


def test_a_sub_agents_approval(storage: AgentStorageService, thread: str) -> None:
    inner = run_of(storage, storage.create_thread("ada:sub").id)
    asked = {
        "type": "agent-call",
        "toolCallId": "call-1",
        "agentName": "refunds",
        "agentRunId": inner,
        "displayToolName": "Refund an order",
        "displayArgs": {"amount": [1, None]},
    }
    run_of(storage, thread, pending_approvals=[asked])
    found = storage.find_run_by_tool_call_id("call-1")
    assert found is not None
    approval = found.approval
    assert (approval.type, approval.agent_run_id, approval.display_tool_name, approval.display_args) == (
        "agent-call",
        inner,
        "Refund an order",
        {"amount": [1, None]},
    )


def test_looking_up_a_run_by_a_call_is_one_read(storage: AgentStorageService, thread: str) -> None:
    """Fault P5: the search for it read every suspended run."""
    run_of(storage, thread, pending_approvals=[{"tool_call_id": "call-1"}])
    for call_id in ("call-1", "call-2"):
        with CaptureQueriesContext(connection) as seen:
            storage.find_run_by_tool_call_id(call_id)
        assert len(data_statements(seen)) == 1


def test_what_a_run_waits_for_is_what_it_says_last(
    storage: AgentStorageService, runs: AgentRunService, thread: str
) -> None:
    run_id = run_of(storage, thread, pending_approvals=[{"tool_call_id": "call-1"}])
    storage.update_run(run_id, pending_approvals=[{"tool_call_id": "call-2"}])
    assert waits_for(storage, run_id) == ["call-2"]
    assert [approval.tool_call_id for approval in runs.get_run_approvals(run_id)] == ["call-2"]
    storage.update_run(run_id, status="running")
    assert waits_for(storage, run_id) == ["call-2"]
    storage.update_run(run_id, pending_approvals=[])
    assert waits_for(storage, run_id) == []
    assert storage.resolve_approval("call-2", "approved") is False


@pytest.mark.parametrize("decision", ["approved", "denied"])
def test_what_was_decided_is_not_asked_again(
    storage: AgentStorageService, runs: AgentRunService, thread: str, decision: Any
) -> None:
    """Fault P10: what was approved once must not run a second time because somebody asks again."""
    asked = [{"tool_call_id": "call-1"}, {"tool_call_id": "call-2"}]
    run_id = run_of(storage, thread, pending_approvals=asked)
    assert storage.resolve_approval("call-1", decision)
    storage.update_run(run_id, pending_approvals=asked)
    assert waits_for(storage, run_id) == ["call-2"]
    assert storage.resolve_approval("call-1", "approved") is False
    storage.update_run(run_id, status="completed", pending_approvals=[])
    assert [(each.tool_call_id, each.status) for each in runs.get_run_approvals(run_id)] == [("call-1", decision)]


def test_calls_of_another_thread_cannot_be_asked_for(storage: AgentStorageService, thread: str) -> None:
    other = run_of(storage, storage.create_thread("eve").id, pending_approvals=[{"tool_call_id": "call-1"}])
    assert waits_for(storage, other) == []
    assert storage.resolve_approval("call-1", "approved") is False
    run_of(storage, thread, pending_approvals=[{"tool_call_id": "unknown"}])


def test_an_approval_expires(storage: AgentStorageService, runs: AgentRunService, thread: str) -> None:
    asked = [
        {"tool_call_id": "call-1", "expires_at": datetime.now(UTC) - HOUR},
        {"tool_call_id": "call-2", "expires_at": datetime.now(UTC) + HOUR},
    ]
    run_id = run_of(storage, thread, pending_approvals=asked)
    for _ in range(2):
        assert storage.resolve_approval("call-1", "approved") is False
        assert storage.find_run_by_tool_call_id("call-1") is None
        assert waits_for(storage, run_id) == ["call-2"]
        assert {each.tool_call_id: each.status for each in runs.get_run_approvals(run_id)} == {
            "call-1": "expired",
            "call-2": "pending",
        }
        assert [each.tool_call_id for each in runs.list_pending_approvals()] == ["call-2"]
        assert runs.get_totals([thread])[thread].pending_approvals == 1
        upkeep()
    assert storage.expire_approvals() == 0
    # Asked again, it waits again.
    storage.update_run(run_id, pending_approvals=[{"tool_call_id": "call-1"}])
    assert storage.resolve_approval("call-1", "approved") is True


def test_a_decision_is_audited(storage: AgentStorageService, thread: str, audited: list[AuditEvent]) -> None:
    run_of(storage, thread, pending_approvals=[{"tool_call_id": "call-1"}])
    storage.resolve_approval("call-1", "approved", by="eve")
    storage.resolve_approval("call-1", "approved", by="ada")
    (event,) = audited
    assert (event.type, event.actor.user_id, event.metadata) == (
        "agent.approval.resolved",
        "eve",
        {"toolCallId": "call-1", "decision": "approved"},
    )


# -- scores ------------------------------------------------------------------------------------------------------------


@pytest.mark.contract("AS-13")
def test_scores_read_back(storage: AgentStorageService, thread: str) -> None:
    run_id = run_of(storage, thread)
    first = storage.save_score(run_id, "polite", 0.123456789)
    second = storage.save_score(run_id, "right", 1, reason="exactly", metadata={"model": "m-1"})
    assert storage.get_scores(run_id) == [first, second]
    assert (first.score, first.reason, first.metadata) == (0.123456789, None, None)
    assert (second.score, second.reason, second.metadata) == (1.0, "exactly", {"model": "m-1"})
    assert first.created_at.tzinfo is not None


@pytest.mark.contract("AS-14")
def test_grades_add_up_in_order(storage: AgentStorageService, thread: str) -> None:
    run_id = run_of(storage, thread)
    for score in (0.5, 0.1, 0.9):
        storage.save_score(run_id, "polite", score)
    assert [score.score for score in storage.get_scores(run_id)] == [0.5, 0.1, 0.9]


@pytest.mark.contract("AS-15")
def test_a_run_nobody_graded(storage: AgentStorageService, thread: str) -> None:
    assert storage.get_scores(run_of(storage, thread)) == []
    assert storage.get_scores("nothing") == []


@pytest.mark.parametrize("score", [True, "1", None, float("nan"), float("inf")])
def test_what_is_no_grade(storage: AgentStorageService, thread: str, score: Any) -> None:
    run_id = run_of(storage, thread)
    with pytest.raises((AgentInputError, PayloadError)):
        storage.save_score(run_id, "polite", score)
    assert storage.get_scores(run_id) == []


# -- working memory ----------------------------------------------------------------------------------------------------


@pytest.mark.contract("AS-07", "AS-08", "AS-09")
def test_working_memory(storage: AgentStorageService) -> None:
    assert storage.get_working_memory("ada", "resource") is None
    storage.save_working_memory("ada", "resource", {"name": "Ada", "tags": [1, {"a": None}]})
    storage.save_working_memory("ada", "thread", {"topic": "lunch"})
    assert storage.get_working_memory("ada", "resource") == {"name": "Ada", "tags": [1, {"a": None}]}
    storage.save_working_memory("ada", "resource", {"city": "Bern"})
    assert storage.get_working_memory("ada", "resource") == {"city": "Bern"}
    storage.save_working_memory("ada", "resource", {})
    assert storage.get_working_memory("ada", "resource") == {}
    assert storage.get_working_memory("ada", "thread") == {"topic": "lunch"}
    assert storage.get_working_memory("Ada", "resource") is None


def test_working_memory_is_an_object(storage: AgentStorageService) -> None:
    data: Any
    for data in ([], "text", None, {"a": object()}):
        with pytest.raises(PayloadError, match=r"\$data"):
            storage.save_working_memory("ada", "resource", data)
    with pytest.raises(AgentInputError, match="scope is one of resource, thread"):
        storage.get_working_memory("ada", "user")  # type: ignore[arg-type]


def test_a_memory_that_changed_meanwhile_is_not_overwritten(storage: AgentStorageService) -> None:
    storage.save_working_memory("ada", "resource", {"n": 1})
    seen = storage.read_working_memory("ada", "resource")
    assert seen is not None
    assert storage.swap_working_memory("ada", "resource", {"n": 2}, seen=seen) is True
    assert storage.swap_working_memory("ada", "resource", {"n": 3}, seen=seen) is False
    assert storage.get_working_memory("ada", "resource") == {"n": 2}
