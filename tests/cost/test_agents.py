"""What agents cost, counted: the statements of every operation, however much is stored, and what the reads go by."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test.utils import CaptureQueriesContext

from pikku_storage.access.actors import Actor
from pikku_storage.agents.access import AgentAccess
from pikku_storage.agents.memory.service import AgentMemory
from pikku_storage.agents.models import AgentMessage, AgentRun, AgentThread, AgentToolCall
from pikku_storage.agents.runs import AgentRunService
from pikku_storage.agents.scoring import Turn, scorer
from pikku_storage.agents.scoring.service import ScoringService
from pikku_storage.agents.service import AgentStorageService
from pikku_storage.db import engine
from tests.conformance.support import DATABASE, about_sql, connection, data_statements

pytestmark = [pytest.mark.django_db(transaction=True), about_sql]

IS_POSTGRESQL = connection.vendor == "postgresql"
AT = datetime(2026, 3, 2, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _told_time(db: None) -> None:
    """The clock asks the server once a minute; that is no part of any operation."""
    engine(DATABASE).now()


# -- statements --------------------------------------------------------------------------------------------------------


class Story:
    """An owner with some threads, and in the first of them some messages with tool calls and some runs."""

    def __init__(self, size: int) -> None:
        self.storage, self.reads = AgentStorageService(), AgentRunService()
        self.access = AgentAccess(Actor(user_id="ada"))
        self.threads = [self.storage.create_thread("ada").id for _ in range(size)]
        self.thread = self.threads[0]
        calls = [{"id": f"c{number}", "name": "pay", "args": {}} for number in range(size)]
        self.storage.save_messages(
            self.thread,
            [
                *({"id": f"m{i}", "role": "assistant", "content": "…", "toolCalls": [calls[i]]} for i in range(size)),
                {"role": "tool", "toolResults": [{"id": "c0", "name": "pay", "result": "paid"}]},
            ],
        )
        self.runs = [self.storage.create_run(**RUN, thread_id=self.thread) for _ in range(size)]
        self.run = self.runs[0]
        self.storage.update_run(self.run, pending_approvals=[{"toolCallId": call["id"]} for call in calls])
        for _ in range(size):
            self.storage.save_score(self.run, "polite", 1)
        self.storage.save_working_memory("ada", "resource", {"name": "Ada"})
        self.seen = self.storage.read_working_memory("ada", "resource")


def counted(operation: Callable[[Story], object], size: int) -> tuple[int, list[str]]:
    story = Story(size)
    with CaptureQueriesContext(connection) as seen:
        operation(story)
    for thread in story.threads:
        story.storage.delete_thread(thread)
    return len(data_statements(seen)), data_statements(seen)


def one(text: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text}]


@scorer(name="cost.length")
def length(turn: Turn) -> float:
    return len(turn.output) / 100


CALLING = [{"role": "assistant", "content": "", "toolCalls": [{"id": "new", "name": "pay"}]}]
ASKED = [{"toolCallId": "c0"}]
RUN: dict[str, Any] = {"agent_name": "helper", "resource_id": "ada"}

# By service and operation: what is done, and how many statements that is, on PostgreSQL and elsewhere.
STORAGE: dict[str, tuple[Callable[[Story], object], int, int]] = {
    "create_thread": (lambda s: s.storage.create_thread("ada"), 1, 1),
    "get_thread": (lambda s: s.storage.get_thread(s.thread), 1, 1),
    "get_threads": (lambda s: s.storage.get_threads("ada"), 1, 1),
    "save_messages": (lambda s: s.storage.save_messages(s.thread, one("hello")), 2, 3),
    "save_messages with a call": (lambda s: s.storage.save_messages(s.thread, CALLING), 3, 5),
    "get_messages": (lambda s: s.storage.get_messages(s.thread), 2, 2),
    "get_messages the last": (lambda s: s.storage.get_messages(s.thread, last_n=5), 2, 2),
    "get_messages before": (lambda s: s.storage.get_messages(s.thread, cursor="m1"), 3, 3),
    "get_working_memory": (lambda s: s.storage.get_working_memory("ada", "resource"), 1, 1),
    "read_working_memory": (lambda s: s.storage.read_working_memory("ada", "resource"), 1, 1),
    "save_working_memory": (lambda s: s.storage.save_working_memory("ada", "resource", {}), 1, 1),
    "swap_working_memory": (lambda s: s.storage.swap_working_memory("ada", "resource", {}, seen=s.seen), 1, 1),
    "create_run": (lambda s: s.storage.create_run(**RUN, thread_id=s.thread), 1, 1),
    "update_run": (lambda s: s.storage.update_run(s.run, status="completed"), 1, 1),
    "update_run with approvals": (
        lambda s: s.storage.update_run(s.run, pending_approvals=[{"toolCallId": "c0"}]),
        4,
        4,
    ),
    "get_run": (lambda s: s.storage.get_run(s.run), 2, 2),
    "get_runs_by_thread": (lambda s: s.storage.get_runs_by_thread(s.thread), 1, 1),
    "resolve_approval": (lambda s: s.storage.resolve_approval("c0", "approved"), 2, 2),
    "find_run_by_tool_call_id": (lambda s: s.storage.find_run_by_tool_call_id("c0"), 1, 1),
    "expire_approvals": (lambda s: s.storage.expire_approvals(), 1, 1),
    "save_score": (lambda s: s.storage.save_score(s.run, "polite", 1), 1, 1),
    "get_scores": (lambda s: s.storage.get_scores(s.run), 1, 1),
    "delete_thread": (lambda s: s.storage.delete_thread(s.thread), 21, 21),
    "export_thread": (lambda s: s.storage.export_thread(s.thread), 9, 9),
    "recover": (lambda s: s.storage.recover(), 0, 0),
}
READS: dict[str, tuple[Callable[[Story], object], int, int]] = {
    "list_threads": (lambda s: s.reads.list_threads(owners=["ada"], agent_name="helper"), 1, 1),
    "list_threads of nobody": (lambda s: s.reads.list_threads(owners=[]), 0, 0),
    "get_totals": (lambda s: s.reads.get_totals(s.threads), 3, 3),
    "get_thread": (lambda s: s.reads.get_thread(s.thread), 1, 1),
    "get_thread_messages": (lambda s: s.reads.get_thread_messages(s.thread, last_n=5), 2, 2),
    "get_thread_runs": (lambda s: s.reads.get_thread_runs(s.thread), 1, 1),
    "list_runs": (lambda s: s.reads.list_runs(owners=["ada"]), 1, 1),
    "get_run": (lambda s: s.reads.get_run(s.run), 2, 2),
    "get_run_approvals": (lambda s: s.reads.get_run_approvals(s.run), 1, 1),
    "list_pending_approvals": (lambda s: s.reads.list_pending_approvals(owners=["ada"]), 1, 1),
    "delete_thread": (lambda s: s.reads.delete_thread(s.thread), 21, 21),
    "get_distinct_agent_names": (lambda s: s.reads.get_distinct_agent_names(), 1, 1),
}
# One more than the service alone, for whose it is; where that is read anyway, none.
ACCESS: dict[str, tuple[Callable[[Story], object], int, int]] = {
    "create_thread": (lambda s: s.access.create_thread(), 1, 1),
    "list_threads": (lambda s: s.access.list_threads(), 1, 1),
    "get_thread": (lambda s: s.access.get_thread(s.thread), 1, 1),
    "get_thread_messages": (lambda s: s.access.get_thread_messages(s.thread, last_n=5), 3, 3),
    "get_totals": (lambda s: s.access.get_totals(s.threads), 4, 4),
    "save_messages": (lambda s: s.access.save_messages(s.thread, one("hello")), 3, 4),
    "delete_thread": (lambda s: s.access.delete_thread(s.thread), 22, 22),
    "get_working_memory": (lambda s: s.access.get_working_memory("ada", "resource"), 1, 1),
    "get_working_memory of a thread": (lambda s: s.access.get_working_memory(s.thread, "thread"), 2, 2),
    "save_working_memory": (lambda s: s.access.save_working_memory("ada", "resource", {}), 1, 1),
    "list_runs": (lambda s: s.access.list_runs(thread_id=s.thread), 1, 1),
    "get_run": (lambda s: s.access.get_run(s.run), 2, 2),
    "get_scores": (lambda s: s.access.get_scores(s.run), 3, 3),
    "create_run": (lambda s: s.access.create_run(agent_name="helper", thread_id=s.thread), 2, 2),
    "update_run": (lambda s: s.access.update_run(s.run, status="completed"), 3, 3),
    "list_pending_approvals": (lambda s: s.access.list_pending_approvals(), 1, 1),
    "find_run_by_tool_call_id": (lambda s: s.access.find_run_by_tool_call_id("c0"), 1, 1),
    "resolve_approval": (lambda s: s.access.resolve_approval("c0", "approved"), 3, 3),
}
# Memory: two reads and one of the messages; read and swap. Grades: the run and what it asks, when the next one began,
# the messages, and the grade; live, first whether there is one, which is all that a second message costs.
MEMORY: dict[str, tuple[Callable[[Story], object], int, int]] = {
    "get": (lambda s: AgentMemory("helper").get("ada"), 1, 1),
    "prompt": (lambda s: AgentMemory("helper").prompt("ada"), 1, 1),
    "context": (lambda s: AgentMemory("helper").context(s.thread, "ada", budget=1000), 3, 3),
    "update": (lambda s: AgentMemory("helper").update("ada", {"city": "Rome"}), 2, 2),
    "save": (lambda s: AgentMemory("helper").save(s.thread, "ada", one("hello")), 2, 3),
}
SCORING: dict[str, tuple[Callable[[Story], object], int, int]] = {
    "get_turn": (lambda s: ScoringService().get_turn(s.run), 5, 5),
    "grade_run": (lambda s: ScoringService().grade_run(s.run, length), 6, 6),
    "send": (lambda s: ScoringService().send(s.run, {}), 0, 0),
    "grade_live": (lambda s: ScoringService().grade_live(s.run, length.name), 7, 7),
    "grade_live again": (
        lambda s: [ScoringService().grade_live(s.run, length.name) for _ in range(2)],
        7 + 1,
        7 + 1,
    ),
}
SERVICES: list[tuple[type, dict[str, tuple[Callable[[Story], object], int, int]]]] = [
    (AgentStorageService, STORAGE),
    (AgentRunService, READS),
    (AgentAccess, ACCESS),
    (AgentMemory, MEMORY),
    (ScoringService, SCORING),
]
UPKEEP = {"export_user", "erase_user", "prune_threads"}
"""They read or delete any number of threads, one by one."""


@pytest.mark.parametrize(("service", "operations"), SERVICES, ids=lambda each: getattr(each, "__name__", ""))
def test_an_operation_has_its_number_of_statements_however_much_there_is(service: type, operations: Any) -> None:
    wrong = {}
    for name, (operation, *_) in operations.items():
        expected = operations[name][1 if IS_POSTGRESQL else 2]
        (few, _), (many, texts) = (counted(operation, size) for size in (2, 12))
        if (few, many) != (expected, expected):
            wrong[name] = (expected, few, many, texts)
    assert wrong == {}


@pytest.mark.parametrize(("service", "operations"), SERVICES, ids=lambda each: getattr(each, "__name__", ""))
def test_every_operation_is_counted(service: type, operations: Any) -> None:
    names = {name for name, value in vars(service).items() if callable(value) and not name.startswith("_")}
    plain = {name for name in names if not (name.startswith("a") and name[1:] in names)}
    assert plain - UPKEEP == {name.split()[0] for name in operations}


# -- what the reads go by ----------------------------------------------------------------------------------------------

MANY = 3000
PAGE = 10


@pytest.fixture
def much() -> None:
    """Threads of a hundred owners, of which one has a thousand messages with a tool call each."""
    owners = [f"user{number % 100}{':p' if number % 3 == 0 else ''}" for number in range(MANY)]
    times = [AT + timedelta(seconds=number) for number in range(MANY)]
    numbers = [f"{number:05}" for number in range(MANY)]
    AgentThread.everyones.bulk_create(
        AgentThread(id=f"t{n}", resource_id=owner, created_at=at, updated_at=at)
        for n, owner, at in zip(numbers, owners, times, strict=True)
    )
    threads = [f"t{n}" if number % 3 else "t00001" for number, n in enumerate(numbers)]
    AgentMessage.everyones.bulk_create(
        AgentMessage(id=f"m{n}", thread_id=thread, role="user", content="…", place=n, created_at=at)
        for n, thread, at in zip(numbers, threads, times, strict=True)
    )
    AgentRun.everyones.bulk_create(
        AgentRun(run_id=f"r{n}", agent_name="helper", thread_id=thread, resource_id=owner, created_at=at, updated_at=at)
        for n, thread, owner, at in zip(numbers, threads, owners, times, strict=True)
    )
    calls = []
    for number, (n, thread, at) in enumerate(zip(numbers, threads, times, strict=True)):
        call = AgentToolCall(id=f"c{n}", thread_id=thread, message_id=f"m{n}", tool_name="pay", place=0, created_at=at)
        if number % 30 == 0:
            call.run_id, call.approval_status, call.approval_type = f"r{n}", "pending", "tool-call"
            call.approval_asked_at = at
        calls.append(call)
    AgentToolCall.everyones.bulk_create(calls)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")


DEEP = AT + timedelta(seconds=900)
OWN = MANY // 100
"""How many threads and runs an owner has."""
PENDING = MANY // 30
PLANNED: dict[str, tuple[Callable[[], object], int, bool]] = {
    "the last": (lambda: AgentStorageService().get_messages("t00001", last_n=PAGE), 2 * PAGE, False),
    "the page in the middle": (
        lambda: AgentStorageService().get_messages("t00001", last_n=PAGE, cursor="m01500"),
        2 * PAGE + 3,
        False,
    ),
    "the first page": (
        lambda: AgentStorageService().get_messages("t00001", last_n=PAGE, cursor="m00030"),
        2 * PAGE + 3,
        False,
    ),
    "the run of a tool call": (lambda: AgentStorageService().find_run_by_tool_call_id("c00030"), 2, False),
    "all threads": (lambda: AgentRunService().list_threads(limit=PAGE), PAGE, False),
    # Every third one has no runs.
    "threads of an agent": (lambda: AgentRunService().list_threads(agent_name="helper", limit=PAGE), 4 * PAGE, False),
    "all threads, deep": (lambda: AgentRunService().list_threads(limit=PAGE, before=(DEEP, "t00900")), PAGE + 1, False),
    # Own threads and those in partitions are two ranges of one index; what is put in order is one owner's.
    "threads of an owner": (lambda: AgentRunService().list_threads(owners=["user3"], limit=PAGE), OWN, True),
    "threads of a session": (lambda: AgentAccess("user3").list_threads(limit=PAGE), OWN, True),
    "all runs": (lambda: AgentRunService().list_runs(limit=PAGE), PAGE, False),
    "all runs, deep": (lambda: AgentRunService().list_runs(limit=PAGE, before=(DEEP, "r00900")), PAGE + 1, False),
    "runs of an owner": (lambda: AgentRunService().list_runs(owners=["user3"], limit=PAGE), OWN, True),
    "pending": (lambda: AgentRunService().list_pending_approvals(limit=PAGE), PAGE, False),
    "pending, next page": (
        lambda: AgentRunService().list_pending_approvals(limit=PAGE, after=(DEEP, "c00900")),
        PAGE + 1,
        False,
    ),
    "pending of an owner": (
        lambda: AgentRunService().list_pending_approvals(owners=["user3"], limit=PAGE),
        PENDING + OWN,
        True,
    ),
}


@pytest.mark.skipif(connection.vendor not in {"postgresql", "sqlite"}, reason="about the plans of these two")
def test_reads_go_by_an_index_and_read_little_beside_what_they_answer(much: None) -> None:
    wrong = {}
    for name, (read, most, sorts) in PLANNED.items():
        with CaptureQueriesContext(connection) as seen:
            read()
        looked_at = _looked_at_on_postgresql if IS_POSTGRESQL else _looked_at_on_sqlite
        found = [looked_at(text, sorts=sorts) for text in data_statements(seen)]
        if sum(found) > most:
            wrong[name] = (found, data_statements(seen))
    assert wrong == {}


def _looked_at_on_postgresql(text: str, *, sorts: bool) -> float:
    """How many rows the statement looks at; all there are, if it does not go by an index."""
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {text}")
        (plan,) = cursor.fetchone()
    (top,) = json.loads(plan) if isinstance(plan, str) else plan
    rows, nodes = 0.0, [top["Plan"]]
    while nodes:
        node = nodes.pop()
        nodes += node.get("Plans", ())
        if node["Node Type"] == "Seq Scan":
            return MANY
        if "Scan" in node["Node Type"] and node["Node Type"] != "Bitmap Index Scan":
            rows += (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
    return rows


def _looked_at_on_sqlite(text: str, *, sorts: bool) -> float:
    """Nothing, or all rows: it does not tell how many it looks at."""
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN QUERY PLAN {text}")
        details = [detail for *_, detail in cursor.fetchall()]
    scans = any(detail.startswith("SCAN") and "USING INDEX" not in detail for detail in details)
    puts_in_order = "USE TEMP B-TREE FOR ORDER BY" in details
    return MANY if scans or (puts_in_order and not sorts) else 0
