"""Documents of agents on MongoDB, in the shape of the TypeScript packages (contract tables.md §3, 18-23)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pikku_storage.agents.models import AgentWorkingMemory
from pikku_storage.agents.records import Erased
from pikku_storage.agents.runs import AgentRunService
from pikku_storage.agents.service import AgentStorageService
from tests.conformance.support import connection

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(connection.vendor != "mongodb", reason="about MongoDB"),
]

if connection.vendor == "mongodb":
    from bson import ObjectId

AT = datetime(2026, 3, 2, 9, tzinfo=UTC)


def insert(collection: str, *documents: dict[str, Any]) -> None:
    """As another program does it, which knows only the contract's fields."""
    connection.database[collection].insert_many(list(documents))


@pytest.fixture
def written() -> str:
    """A thread that another program wrote."""
    insert(
        "agent_threads",
        {"_id": "t", "resourceId": "ada", "title": None, "metadata": {"a": 1}, "createdAt": AT, "updatedAt": AT},
    )
    insert(
        "agent_message",
        *(
            {
                "_id": f"m{n}",
                "threadId": "t",
                "role": "user",
                "content": f'"say {n}"',
                "createdAt": AT + timedelta(seconds=n // 2),
            }
            for n in range(4)
        ),
        {"_id": "m9", "threadId": "t", "role": "assistant", "content": None, "createdAt": AT + timedelta(minutes=1)},
    )
    insert(
        "agent_run",
        {
            "_id": "r",
            "agentName": "support",
            "threadId": "t",
            "resourceId": "ada",
            "status": "suspended",
            "errorMessage": None,
            "suspendReason": "approval",
            "missingRpcs": ["a"],
            "usageInputTokens": 3,
            "usageOutputTokens": 4,
            "usageModel": "m-1",
            "createdAt": AT,
            "updatedAt": AT,
        },
    )
    insert(
        "agent_tool_call",
        {
            "_id": "c",
            "threadId": "t",
            "messageId": "m9",
            "runId": "r",
            "toolName": "refund",
            "args": {"order": "A17"},
            "result": None,
            "approvalStatus": "pending",
            "approvalType": "tool-call",
            "createdAt": AT,
        },
    )
    insert(
        "agent_working_memory", {"_id": ObjectId(), "id": "ada", "scope": "resource", "data": {"n": 1}, "updatedAt": AT}
    )
    insert("agent_working_memory", {"_id": ObjectId(), "id": "t", "scope": "thread", "data": {"n": 2}, "updatedAt": AT})
    insert(
        "agent_run_score",
        {
            "_id": "s",
            "runId": "r",
            "scorerName": "polite",
            "score": 1,
            "reason": None,
            "metadata": None,
            "createdAt": AT,
        },
    )
    return "t"


def test_what_another_program_wrote_is_read_and_gone_on_with(written: str) -> None:
    storage = AgentStorageService()
    assert storage.get_thread(written).metadata == {"a": 1}
    assert [message.content for message in storage.get_messages(written)] == [*(f"say {n}" for n in range(4)), None]
    # Messages of the same moment have no place there: page by page, each comes once.
    pages, cursor = [], "m9"
    while page := storage.get_messages(written, last_n=1, cursor=cursor):
        cursor = page[0].id
        pages.append(cursor)
    assert pages == ["m3", "m2", "m1", "m0"]

    found = storage.find_run_by_tool_call_id("c")
    assert found is not None
    assert (found.run.run_id, found.run.usage.input_tokens, found.run.missing_rpcs) == ("r", 3, ["a"])
    assert storage.resolve_approval("c", "approved") is True
    result = {"id": "c", "name": "refund", "result": "done"}
    storage.save_messages(
        written, [{"role": "tool", "toolResults": [result]}, {"id": "new", "role": "user", "content": "more"}]
    )
    assert [message.id for message in storage.get_messages(written, last_n=2)] == ["m9", "tool-results-m9", "new"]
    assert storage.get_scores("r")[0].score == 1

    seen = storage.read_working_memory("ada", "resource")
    assert seen is not None
    assert seen.data == {"n": 1}
    assert storage.swap_working_memory("ada", "resource", {"n": 5}, seen=seen) is True
    storage.save_working_memory("ada", "resource", {"n": 6})
    assert connection.database["agent_working_memory"].count_documents({"id": "ada"}) == 1
    assert storage.get_working_memory("ada", "resource") == {"n": 6}


def test_what_another_program_wrote_is_deleted_whole(written: str) -> None:
    assert AgentStorageService().erase_user("ada") == Erased(threads=1, memories=1)
    collections = ("threads", "message", "run", "tool_call", "working_memory", "run_score")
    assert {name: connection.database[f"agent_{name}"].count_documents({}) for name in collections} == dict.fromkeys(
        collections, 0
    )


def test_what_is_written_has_their_shape() -> None:
    storage = AgentStorageService()
    storage.create_thread("ada", thread_id="t", metadata={"a": [1]})
    call = {"id": "c", "name": "refund", "args": {"order": {"id": 7}}}
    storage.save_messages(
        "t",
        [
            {"id": "m", "role": "assistant", "content": "ü", "toolCalls": [call], "createdAt": AT},
            {"id": "p", "role": "user", "content": [{"type": "text"}], "createdAt": AT},
        ],
    )
    run_id = storage.create_run(agent_name="x", thread_id="t", resource_id="ada", missing_rpcs=["a"], created_at=AT)
    storage.save_working_memory("ada", "resource", {"n": 1})
    storage.save_score(run_id, "polite", 0.5)

    def document(collection: str, **query: Any) -> dict[str, Any]:
        found: dict[str, Any] = connection.database[collection].find_one(query)
        return found

    thread = document("agent_threads", _id="t")
    assert (thread["resourceId"], thread["metadata"]) == ("ada", {"a": [1]})
    assert isinstance(thread["createdAt"], datetime)
    message = document("agent_message", _id="m")
    assert (message["threadId"], message["content"]) == ("t", '"ü"')
    assert message["createdAt"] == AT.replace(tzinfo=None)
    assert document("agent_message", _id="p")["content"] == '[{"type":"text"}]'
    tool_call = document("agent_tool_call", _id="c")
    assert (tool_call["messageId"], tool_call["toolName"], tool_call["args"]) == ("m", "refund", {"order": {"id": 7}})
    run = document("agent_run", _id=run_id)
    assert (run["agentName"], run["missingRpcs"], run["usageInputTokens"]) == ("x", ["a"], 0)
    memory = document("agent_working_memory", id="ada")
    assert (memory["scope"], memory["data"], memory["_id"]) == (
        "resource",
        {"n": 1},
        AgentWorkingMemory.key_of("ada", "resource"),
    )
    assert document("agent_run_score", runId=run_id)["score"] == 0.5
    assert AgentRunService().get_distinct_agent_names() == ["x"]
