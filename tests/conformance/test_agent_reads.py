"""The read side of agents, and who may read what (contract services.md §6-§7, console.md §4; fault 20)."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.core.management import call_command
from django.http import HttpRequest
from django.test.utils import CaptureQueriesContext

from pikku_storage.agents.access import AgentAccess
from pikku_storage.agents.models import (
    AgentMessage,
    AgentRun,
    AgentRunScore,
    AgentThread,
    AgentToolCall,
    AgentWorkingMemory,
)
from pikku_storage.agents.records import Erased, ThreadTotals
from pikku_storage.agents.runs import AgentRunService
from pikku_storage.agents.service import AgentStorageService
from pikku_storage.exceptions import AgentRunNotFoundError, ForbiddenError, ThreadNotFoundError, UnscopedQueryError
from tests.conformance.support import connection, data_statements

pytestmark = pytest.mark.django_db(transaction=True)

SPECIAL = ["%", "_", "a.c", "a%c", "a_c", "[ab]", "A\\", "^a", "a:b", "(a|b)", "ä"]
"""Ids that mean something to LIKE or to a regular expression."""
ADMIN = {"userId": "root", "scopes": ["admin"]}


@pytest.fixture
def storage() -> AgentStorageService:
    return AgentStorageService()


@pytest.fixture
def runs() -> AgentRunService:
    return AgentRunService()


def ids(rows: list[Any]) -> list[str]:
    return [row.id for row in rows]


def filled(storage: AgentStorageService, owner: str, name: str) -> str:
    """A thread of that id with a message, a call that waits for somebody, a run, a score and memories."""
    storage.create_thread(owner, thread_id=name)
    call = {"id": f"call-{name}", "name": "refund", "args": {}}
    storage.save_messages(name, [{"id": f"message-{name}", "role": "assistant", "content": name, "toolCalls": [call]}])
    run_id = storage.create_run(
        agent_name=f"agent-{owner}",
        thread_id=name,
        resource_id=owner,
        usage={"inputTokens": 3, "outputTokens": 4},
        pending_approvals=[{"toolCallId": f"call-{name}"}],
    )
    storage.save_score(run_id, "polite", 1)
    storage.save_working_memory(name, "thread", {"of": name})
    storage.save_working_memory(owner, "resource", {"of": owner})
    return run_id


# -- lists -------------------------------------------------------------------------------------------------------------


@pytest.mark.contract("AR-01", "AR-02", "AR-03", "AR-04")
def test_an_owner_sees_its_own_and_its_partitions(storage: AgentStorageService, runs: AgentRunService) -> None:
    names = ["ada", "ada:private", "ada:a:b", "ad", "adab", "ada;", "Ada", "eve", "eve:ada"]
    for name in names:
        storage.create_thread(name, thread_id=f"t {name}")
    everything = ids(runs.list_threads())
    assert sorted(everything) == sorted(f"t {name}" for name in names)
    assert sorted(ids(runs.list_threads(owners=["ada"]))) == ["t ada", "t ada:a:b", "t ada:private"]
    assert ids(runs.list_threads(owners=["ada:a"])) == ["t ada:a:b"]
    assert sorted(ids(runs.list_threads(owners=["ad", "eve"]))) == ["t ad", "t eve", "t eve:ada"]
    # What narrows cannot widen.
    assert runs.list_threads(owners=["ada"], resource_id="eve") == []
    assert ids(runs.list_threads(owners=["ada"], resource_id="ada:private")) == ["t ada:private"]
    with CaptureQueriesContext(connection) as seen:
        for owners in ([], [""]):
            assert runs.list_threads(owners=owners) == []
            assert runs.list_runs(owners=owners) == []
            assert runs.list_pending_approvals(owners=owners) == []
    assert len(seen) == 0
    with pytest.raises(TypeError, match="list of ids"):
        runs.list_threads(owners="ada")


def test_no_character_of_an_owner_means_anything(storage: AgentStorageService, runs: AgentRunService) -> None:
    others = ["abc", "aXc", "AbC", "b", "a", "x:y", "[ab]x", *SPECIAL]
    for owner in dict.fromkeys(others):
        storage.create_thread(owner, thread_id=owner)
        storage.create_thread(f"{owner}:part", thread_id=f"{owner}:part")
    for owner in SPECIAL:
        assert sorted(ids(runs.list_threads(owners=[owner]))) == sorted([owner, f"{owner}:part"])


def test_threads_of_an_agent(storage: AgentStorageService, runs: AgentRunService) -> None:
    for owner in ("ada", "eve"):
        filled(storage, owner, f"thread-{owner}")
        storage.create_run(agent_name="both", thread_id=f"thread-{owner}", resource_id=owner)
    storage.create_thread("ada")
    assert ids(runs.list_threads(agent_name="agent-ada")) == ["thread-ada"]
    assert sorted(ids(runs.list_threads(agent_name="both"))) == ["thread-ada", "thread-eve"]
    assert ids(runs.list_threads(agent_name="both", owners=["eve"])) == ["thread-eve"]
    assert runs.list_threads(agent_name="agent-ada", owners=["eve"]) == runs.list_threads(agent_name="x") == []


@pytest.mark.contract("AR-06")
def test_agents_that_ever_ran(storage: AgentStorageService, runs: AgentRunService) -> None:
    assert runs.get_distinct_agent_names() == []
    for owner in ("eve", "ada", "eve"):
        thread = storage.create_thread(owner).id
        storage.create_run(agent_name=f"agent-{owner}", thread_id=thread, resource_id=owner)
    assert runs.get_distinct_agent_names() == ["agent-ada", "agent-eve"]


@pytest.mark.contract("AR-05", "AR-07")
def test_what_is_not_there(storage: AgentStorageService, runs: AgentRunService) -> None:
    assert runs.get_thread("nothing") is None
    assert runs.delete_thread("nothing") is False
    thread = storage.create_thread("ada").id
    assert runs.get_thread(thread) == storage.get_thread(thread)
    assert runs.delete_thread(thread) is True
    assert runs.delete_thread(thread) is False


def test_pages_by_key_have_everything_once(storage: AgentStorageService, runs: AgentRunService) -> None:
    """Also of the same millisecond, and in both lists."""
    names = [f"t{n}" for n in range(9)]
    for name in names:
        filled(storage, "ada", name)

    def pages(page: Callable[[Any], list[Any]], key: Callable[[Any], Any]) -> Iterator[list[Any]]:
        before = None
        while found := page(before):
            yield found
            before = key(found[-1])

    threads = pages(lambda before: runs.list_threads(limit=2, before=before), lambda row: (row.updated_at, row.id))
    assert ids(list(itertools.chain(*threads))) == ids(runs.list_threads())
    runs_seen = pages(
        lambda before: runs.list_runs(owners=["ada"], limit=2, before=before), lambda row: (row.created_at, row.run_id)
    )
    assert [run.run_id for run in itertools.chain(*runs_seen)] == [run.run_id for run in runs.list_runs(limit=None)]
    waiting = pages(
        lambda after: runs.list_pending_approvals(limit=2, after=after), lambda row: (row.asked_at, row.tool_call_id)
    )
    assert [each.tool_call_id for each in itertools.chain(*waiting)] == [f"call-{name}" for name in names]
    assert ids(runs.list_threads(limit=3, offset=3)) == ids(runs.list_threads())[3:6]


def test_totals_are_three_reads_for_all_threads(storage: AgentStorageService, runs: AgentRunService) -> None:
    for name in ("a", "b", "c"):
        filled(storage, "ada", name)
    storage.create_thread("ada", thread_id="empty")
    storage.save_messages("a", [{"role": "user", "content": n} for n in range(4)])
    storage.create_run(agent_name="x", thread_id="a", resource_id="ada", usage={"inputTokens": 10})
    storage.resolve_approval("call-b", "approved")
    with CaptureQueriesContext(connection) as seen:
        totals = runs.get_totals(["a", "b", "c", "empty", "nothing"])
    assert len(data_statements(seen)) == 3
    assert totals == {
        "a": ThreadTotals(messages=5, runs=2, input_tokens=13, output_tokens=4, pending_approvals=1),
        "b": ThreadTotals(messages=1, runs=1, input_tokens=3, output_tokens=4),
        "c": ThreadTotals(messages=1, runs=1, input_tokens=3, output_tokens=4, pending_approvals=1),
        "empty": ThreadTotals(),
        "nothing": ThreadTotals(),
    }
    assert runs.get_totals([]) == {}


# -- who may -----------------------------------------------------------------------------------------------------------


def save_messages(access: AgentAccess, thread: str, run: str) -> bool:
    access.save_messages(thread, [{"role": "user"}])
    return True


def save_working_memory(access: AgentAccess, thread: str, run: str) -> bool:
    access.save_working_memory(thread, "thread", {})
    return True


def update_run(access: AgentAccess, thread: str, run: str) -> bool:
    access.update_run(run, status="failed")
    return True


OPERATIONS: dict[str, Callable[[AgentAccess, str, str], Any]] = {
    "list_threads": lambda access, thread, run: [row for row in access.list_threads() if row.id == thread],
    "list_threads of an agent": lambda access, thread, run: access.list_threads(agent_name="agent-ada"),
    "list_threads of a resource": lambda access, thread, run: access.list_threads(resource_id="ada"),
    "list_threads of owners": lambda access, thread, run: access.list_threads(owners=["ada"]),
    "get_thread": lambda access, thread, run: access.get_thread(thread),
    "get_thread_messages": lambda access, thread, run: access.get_thread_messages(thread),
    "get_totals": lambda access, thread, run: access.get_totals([thread]),
    "get_working_memory of a thread": lambda access, thread, run: access.get_working_memory(thread, "thread"),
    "get_working_memory of a resource": lambda access, thread, run: access.get_working_memory("ada", "resource"),
    "list_runs": lambda access, thread, run: [row for row in access.list_runs() if row.thread_id == thread],
    "list_runs of a thread": lambda access, thread, run: access.list_runs(thread_id=thread),
    "list_runs of owners": lambda access, thread, run: access.list_runs(owners=["ada"]),
    "get_run": lambda access, thread, run: access.get_run(run),
    "get_scores": lambda access, thread, run: access.get_scores(run),
    "list_pending_approvals": lambda access, thread, run: [
        row for row in access.list_pending_approvals() if row.run_id == run
    ],
    "find_run_by_tool_call_id": lambda access, thread, run: access.find_run_by_tool_call_id(f"call-{thread}"),
    "resolve_approval": lambda access, thread, run: access.resolve_approval(f"call-{thread}", "approved"),
    "save_messages": save_messages,
    "save_working_memory": save_working_memory,
    "create_run": lambda access, thread, run: access.create_run(agent_name="x", thread_id=thread),
    "update_run": update_run,
    "delete_thread": lambda access, thread, run: access.delete_thread(thread),
}
REFUSALS = (ForbiddenError, AgentRunNotFoundError)


def outcome(session: Any, operation: str, thread: str, run: str, *, admins: bool = False) -> Any:
    """What comes of it; a refusal as its class and text, without the ids that were asked for."""
    try:
        return OPERATIONS[operation](AgentAccess(session, admins=admins), thread, run)
    except REFUSALS as error:
        return type(error), str(error).replace(run, "…")


def test_every_operation_is_walked() -> None:
    public = {name for name in vars(AgentAccess) if not name.startswith("_") and callable(getattr(AgentAccess, name))}
    sync = {name for name in public if not (name.startswith("a") and name[1:] in public)}
    walked = {name.partition(" ")[0] for name in OPERATIONS}
    assert sync - walked == {"create_thread"}


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.contract("OW-01", "OW-02", "OW-06", "OW-08", "CO-03", "CO-04", "CO-05", "CO-06")
def test_what_is_somebody_elses_looks_as_if_it_was_not_there(storage: AgentStorageService, operation: str) -> None:
    run = filled(storage, "ada", "theirs")
    filled(storage, "eve", "mine")

    foreign = outcome("eve", operation, "theirs", run)
    assert foreign == outcome("eve", operation, "nothing", "no run")
    for nobody in (None, {}, {"userId": ""}):
        assert outcome(nobody, operation, "theirs", run) == foreign
    # Neither a part of the name nor another case, nor the scope of an admin where admins are not asked for.
    for almost in ("ad", "ADA", "ada:x", "%", "ada%", ADMIN):
        assert outcome(almost, operation, "theirs", run) == foreign
    assert not foreign or isinstance(foreign, tuple)
    # Nothing was changed by all that.
    assert storage.get_messages("theirs")[0].content == "theirs"
    assert len(storage.get_messages("theirs")) == len(storage.get_runs_by_thread("theirs")) == 1
    assert storage.get_working_memory("theirs", "thread") == {"of": "theirs"}
    assert getattr(storage.get_run(run), "status", None) == "running"
    assert storage.find_run_by_tool_call_id("call-theirs") is not None

    allowed = outcome("ada", operation, "theirs", run)
    assert allowed
    assert allowed != foreign


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize(
    "session", [ADMIN, {"userId": "x", "scopes": ["*"]}, {"userId": "x", "orgId": "ada"}, "ada"], ids=str
)
def test_who_may_reach_it_does(storage: AgentStorageService, operation: str, session: Any) -> None:
    run = filled(storage, "ada", "theirs")
    found = outcome(session, operation, "theirs", run, admins=True)
    assert found
    assert not isinstance(found, tuple)


@pytest.mark.contract("OW-03", "OW-07")
def test_new_threads_are_ones_own(storage: AgentStorageService) -> None:
    assert AgentAccess("ada").create_thread().resource_id == "ada"
    assert AgentAccess("ada").create_thread("eve").resource_id == "ada:eve"
    member = {"userId": "ada", "orgId": "acme"}
    assert AgentAccess(member, session_scope="org").create_thread("x").resource_id == "acme:x"
    assert [row.resource_id for row in AgentAccess({"userId": "eve", "orgId": "acme"}).list_threads()] == ["acme:x"]
    with pytest.raises(ForbiddenError, match="org-scoped"):
        AgentAccess("ada", session_scope="org").create_thread()

    # A conversation without a session belongs to its request.
    request = HttpRequest()
    mine = AgentAccess(None, request=request)
    thread = mine.create_thread("ada")
    mine.save_messages(thread.id, [{"role": "user", "content": "hello"}])
    assert [row.content for row in AgentAccess(None, request=request).get_thread_messages(thread.id)] == ["hello"]
    for stranger in (AgentAccess(None), AgentAccess(None, request=HttpRequest()), AgentAccess("ada")):
        with pytest.raises(ForbiddenError):
            stranger.get_thread(thread.id)


@pytest.mark.parametrize(
    ("model", "key"),
    [
        (AgentThread, "pk"),
        (AgentMessage, "thread_id"),
        (AgentToolCall, "thread_id"),
        (AgentRun, "thread_id"),
        (AgentRunScore, "run__thread_id"),
    ],
)
def test_a_manager_answers_nothing_before_it_knows_whose(storage: AgentStorageService, model: Any, key: str) -> None:
    for owner in ("ada", "eve"):
        filled(storage, owner, f"of {owner}")

    def seen(*arguments: Any, **options: Any) -> list[str]:
        return sorted(model.objects.for_principals(*arguments, **options).values_list(key, flat=True))

    assert seen("ada") == ["of ada"]
    assert seen(ADMIN) == seen(None) == seen("ada", owners=["eve"]) == []
    assert seen(ADMIN, admins=True) == ["of ada", "of eve"]
    assert seen(ADMIN, admins=True, owners=["eve"]) == ["of eve"]
    with CaptureQueriesContext(connection) as queries:
        assert not model.objects.for_principals(None).exists()
    assert len(queries) == 0
    for forgotten in ("all", "count", "first", "exists", "none"):
        with pytest.raises(UnscopedQueryError, match="Whose"):
            getattr(model.objects, forgotten)()


@pytest.mark.contract("AS-03")
def test_the_twins_of_all_this_are_awaited() -> None:
    async_to_sync(the_twins)()


async def the_twins() -> None:
    storage = AgentStorageService()
    await storage.acreate_thread("ada", thread_id="t")
    await storage.asave_messages("t", [{"role": "user", "content": "hello"}])
    access = AgentAccess("ada")
    assert [message.content for message in await access.aget_thread_messages("t")] == ["hello"]
    assert ids(await access.alist_threads()) == ids(await AgentRunService().alist_threads(owners=["ada"])) == ["t"]
    pieces = [piece async for piece in storage.aexport_user("ada")]
    assert [thread["id"] for thread in json.loads("".join(pieces))["threads"]] == ["t"]
    with pytest.raises(ForbiddenError):
        await AgentAccess("eve").aget_thread("t")
    with pytest.raises(ThreadNotFoundError):
        await storage.aget_thread("nothing")


# -- somebody's data ---------------------------------------------------------------------------------------------------


def test_somebodys_data_is_handed_out_whole_and_erased_whole(
    storage: AgentStorageService, runs: AgentRunService, capsys: pytest.CaptureFixture[str]
) -> None:
    for owner, name in (("ada", "a"), ("ada:private", "b"), ("eve", "c"), ("adab", "d")):
        filled(storage, owner, name)
    storage.save_messages(
        "a", [{"role": "tool", "toolResults": [{"id": "call-a", "name": "refund", "result": "done"}]}]
    )
    storage.resolve_approval("call-c", "approved", by="ada")
    before = {thread: storage.get_messages(thread) for thread in ("c", "d")}

    call_command("export_agent_data", "ada")
    found = json.loads(capsys.readouterr().out)
    assert found["owner"] == "ada"
    assert [memory["data"] for memory in found["workingMemory"]] == [{"of": "ada"}, {"of": "ada:private"}]
    assert [(thread["id"], thread["resourceId"], thread["workingMemory"]) for thread in found["threads"]] == [
        ("a", "ada", {"of": "a"}),
        ("b", "ada:private", {"of": "b"}),
    ]
    asked, told = found["threads"][0]["messages"]
    assert asked["toolCalls"] == [{"id": "call-a", "name": "refund", "args": {}}]
    assert told["toolResults"] == [{"id": "call-a", "name": "refund", "result": "done"}]
    (run,) = found["threads"][0]["runs"]
    assert (run["agentName"], run["usage"]["inputTokens"], run["scores"][0]["score"]) == ("agent-ada", 3, 1.0)
    assert [approval["toolCallId"] for approval in run["approvals"]] == ["call-a"]

    assert storage.erase_user("ada", by="dpo") == Erased(threads=2, memories=2)
    call_command("export_agent_data", "ada")
    assert json.loads(capsys.readouterr().out) == {"owner": "ada", "workingMemory": [], "threads": []}
    for model in (AgentMessage, AgentToolCall, AgentRun):
        assert sorted(model.everyones.values_list("thread_id", flat=True)) == ["c", "d"]
    assert AgentRunScore.everyones.count() == 2
    assert sorted(AgentWorkingMemory.objects.values_list("memory_id", flat=True)) == ["adab", "c", "d", "eve"]
    assert {thread: storage.get_messages(thread) for thread in ("c", "d")} == before
    (approval,) = runs.get_run_approvals(storage.get_runs_by_thread("c")[0].run_id)
    assert (approval.status, approval.resolved_by) == ("approved", None)
    assert storage.erase_user("ada") == Erased()
