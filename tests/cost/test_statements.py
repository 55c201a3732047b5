"""What a durable step costs, counted: statements and transactions, on every database."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import pytest
from django.test.utils import CaptureQueriesContext
from pytest_django.fixtures import Settings

from pikku_storage.db.clock import travel
from pikku_storage.workflows import Limits, function, graph, node, trigger, workflow
from pikku_storage.workflows.dispatch import Message
from pikku_storage.workflows.engine import admission, rules
from pikku_storage.workflows.flow import Flow
from pikku_storage.workflows.schedules.service import ScheduleService
from pikku_storage.workflows.service import WorkflowService
from tests.conformance.support import connection, mirrored

pytestmark = mirrored

IS_POSTGRESQL = connection.vendor == "postgresql"


def by_vendor(sql: int, *, postgresql: int, mongodb: int) -> int:
    """What is expected of this database. `sql` is what one says that writes a statement for each row's change."""
    return {"postgresql": postgresql, "mongodb": mongodb}.get(connection.vendor, sql)


STEP_STATEMENTS = by_vendor(4, postgresql=2, mongodb=6)
"""On MongoDB the four writes, the guard's read, and a last write that nobody waits for."""
STEP_TRANSACTIONS = by_vendor(2, postgresql=0, mongodb=0)
"""Explicit ones; on PostgreSQL each of the two statements is its own."""

CONTROL = ("BEGIN", "COMMIT", "SAVEPOINT", "RELEASE", "ROLLBACK")
CHILD_STATEMENTS = by_vendor(12, postgresql=8, mongodb=14)

sent: list[Message] = []


class Kept:
    """A dispatcher that keeps its messages."""

    def send(self, messages: Iterable[Message]) -> None:
        """Keep them."""
        sent.extend(messages)


@pytest.fixture(autouse=True)
def kept_messages(settings: Settings) -> None:
    settings.PIKKU_STORAGE = {"DISPATCHER": "tests.cost.test_statements.Kept"}
    sent.clear()


@function(name="cost.noop", retries=0)
def noop() -> None: ...


@function(name="cost.queued", retries=0, queued=True)
def queued_noop() -> None: ...


@workflow(name="cost.sequence")
def sequence(flow: Flow, steps: int) -> None:
    for index in range(steps):
        flow.do(f"step {index}", noop)


@workflow(name="cost.queued_one")
def queued_one(flow: Flow) -> None:
    flow.do("away", queued_noop)


@workflow(name="cost.spread")
def spread(flow: Flow, width: int) -> None:
    flow.map("item", queued_noop, [{}] * width)


@workflow(name="cost.child")
def child(flow: Flow) -> None:
    flow.do("here", noop)


@workflow(name="cost.parent")
def parent(flow: Flow, children: int) -> None:
    for index in range(children):
        flow.do(f"child {index}", child)


@workflow(name="cost.family")
def family(flow: Flow, width: int) -> None:
    flow.map("child", child, [{}] * width)


CHAIN = graph(
    "cost.chain",
    entry="n0",
    nodes={f"n{index}": node(noop, input={}, next=f"n{index + 1}" if index < 9 else ()) for index in range(10)},
)
QUEUED_NODE = graph("cost.queued_node", entry="away", nodes={"away": node(queued_noop)})
SPREAD_NODE = graph(
    "cost.spread_node", entry="item", nodes={"item": node(queued_noop, for_each=trigger("items"), input={})}
)


class Cost(CaptureQueriesContext):
    """Counts what was said to the database, and how much of it was transaction control."""

    def __init__(self) -> None:
        super().__init__(connection)

    @property
    def texts(self) -> list[str]:
        return [query["sql"] for query in self.captured_queries]

    @property
    def transactions(self) -> int:
        return sum(text.startswith("BEGIN") for text in self.texts)

    @property
    def statements(self) -> int:
        return sum(not text.startswith(CONTROL) for text in self.texts)


def cost_of_inline(steps: int) -> Cost:
    with Cost() as cost:
        sequence.run({"steps": steps})
    return cost


@workflow(name="cost.limited", limits=Limits(concurrency=2))
def limited(flow: Flow, steps: int) -> None:
    for index in range(steps):
        flow.do(f"step {index}", noop)


@pytest.fixture(autouse=True)
def warmed_up(kept_messages: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The version is stored and the clock has been read: once per process, not per run. What operators have set is read
    once a second, however many runs there are."""
    monkeypatch.setattr(rules, "REMEMBERED", float("inf"))
    rules.forget(connection.alias)
    sequence.run({"steps": 1})
    queued_one.start()
    spread.start({"width": 1})
    parent.run({"children": 1})
    CHAIN.run()
    QUEUED_NODE.start()
    SPREAD_NODE.start({"items": [1]})
    limited.run({"steps": 0})
    sent.clear()


def test_an_inline_run_costs_two_statements_beside_its_steps() -> None:
    cost = cost_of_inline(0)
    assert (cost.statements, cost.transactions) == (2, 0), cost.texts


@pytest.mark.parametrize("steps", [1, 10])
def test_an_inline_step_costs_at_most_four_statements_in_two_transactions(steps: int) -> None:
    empty, cost = cost_of_inline(0), cost_of_inline(steps)
    assert cost.statements - empty.statements == STEP_STATEMENTS * steps, cost.texts
    assert cost.transactions == STEP_TRANSACTIONS * steps


def test_the_hundredth_step_costs_what_the_first_one_did() -> None:
    empty, cost = cost_of_inline(0), cost_of_inline(100)
    assert cost.statements - empty.statements == 100 * STEP_STATEMENTS


def test_the_cost_of_a_queued_step_is_what_its_reasons_say() -> None:
    """Enter the run (and read it: on PostgreSQL one statement); read its steps; insert step and attempt; leave.

    Then, in the worker that got the step's message: read step and run, in one; claim step and attempt; outcome of step
    and attempt with the run's wake-up; and the run's end: enter, read its steps, settle.
    """
    with Cost() as start:
        handle = queued_one.start()
    service = WorkflowService()
    with Cost() as orchestrate:
        service.orchestrate_workflow(handle.id)
    (message,) = [message for message in sent if message.step_name]
    with Cost() as execute:
        service.execute_workflow_step(handle.id, message.step_name or "")
    assert handle.status == "completed"
    assert start.statements == 1, start.texts
    assert orchestrate.statements == by_vendor(6, postgresql=4, mongodb=7), orchestrate.texts
    assert execute.statements == by_vendor(10, postgresql=6, mongodb=13), execute.texts


def test_a_duplicate_message_costs_at_most_two_statements() -> None:
    handle = queued_one.start()
    service = WorkflowService()
    service.orchestrate_workflow(handle.id)
    service.execute_workflow_step(handle.id, "away")
    with Cost() as step_again:
        service.execute_workflow_step(handle.id, "away")
    with Cost() as run_again:
        service.orchestrate_workflow(handle.id)
    assert (step_again.statements, run_again.statements) == (1, 2), step_again.texts + run_again.texts


@pytest.mark.parametrize("width", [2, 40])
def test_a_fan_out_is_begun_with_the_same_statements_however_wide(width: int) -> None:
    handle = spread.start({"width": width})
    with Cost() as cost:
        WorkflowService().orchestrate_workflow(handle.id)
    assert cost.statements == by_vendor(6, postgresql=4, mongodb=7), cost.texts
    assert sum(message.step_name is not None for message in sent) == width


def test_an_item_of_a_fan_out_costs_a_read_a_claim_an_outcome_and_a_look_at_the_others() -> None:
    handle = spread.start({"width": 3})
    service = WorkflowService()
    service.orchestrate_workflow(handle.id)
    with Cost() as cost:
        service.execute_workflow_step(handle.id, "item[1]")
    assert cost.statements == by_vendor(6, postgresql=4, mongodb=9), cost.texts


@pytest.mark.parametrize("children", [1, 10])
def test_a_child_costs_its_run_a_step_and_a_look_from_each_side(children: int) -> None:
    """Beside the child's own step. Of the parent: step and attempt; reading the step twice, to settle it and to see it;
    outcome of step and attempt with the wake-up. Of the child: making it; entering it; reading its steps; its end."""
    costs = []
    for count in (0, children):
        with Cost() as cost:
            parent.run({"children": count})
        costs.append(cost)
    spent = costs[1].statements - costs[0].statements
    assert spent == children * (STEP_STATEMENTS + CHILD_STATEMENTS), costs[1].texts


@pytest.mark.parametrize("width", [2, 40])
def test_children_side_by_side_are_begun_with_the_same_statements_however_many(width: int) -> None:
    """Enter the run (and read it: on PostgreSQL one statement); read its steps; insert steps, attempts, and children;
    leave."""
    handle = family.start({"width": width})
    with Cost() as cost:
        WorkflowService().orchestrate_workflow(handle.id)
    assert cost.statements == by_vendor(7, postgresql=5, mongodb=8), cost.texts
    assert sum(message.step_name is None for message in sent) == width + 1


# -- a graph's steps cost what a body's do -----------------------------------------------------------------------------


def test_a_node_costs_what_a_step_of_a_body_does() -> None:
    body = cost_of_inline(10)
    with Cost() as drawn:
        CHAIN.run()
    assert (drawn.statements, drawn.transactions) == (body.statements, body.transactions), drawn.texts


def test_a_queued_node_costs_what_a_queued_step_of_a_body_does() -> None:
    costs = []
    for definition in (queued_one, QUEUED_NODE):
        service = WorkflowService()
        with Cost() as start:
            handle = definition.start()
        with Cost() as orchestrate:
            service.orchestrate_workflow(handle.id)
        with Cost() as execute:
            service.execute_workflow_step(handle.id, "away")
        assert handle.status == "completed"
        costs.append([cost.statements for cost in (start, orchestrate, execute)])
    assert costs[0] == costs[1]


@pytest.mark.parametrize("width", [2, 40])
def test_a_for_each_is_begun_with_the_statements_of_a_fan_out(width: int) -> None:
    costs = []
    for handle in (spread.start({"width": width}), SPREAD_NODE.start({"items": [0] * width})):
        with Cost() as cost:
            WorkflowService().orchestrate_workflow(handle.id)
        costs.append(cost.statements)
    assert costs[0] == costs[1]


@function(name="cost.once", retries=0, queued=True)
def once() -> None: ...


@function(name="cost.twice", retries=1, queued=True)
def twice() -> None: ...


@workflow(name="cost.away")
def away(flow: Flow, function: str) -> None:
    flow.do("away", function)


@pytest.mark.skipif(not IS_POSTGRESQL, reason="the option means something on PostgreSQL only")
@pytest.mark.parametrize(("name", "waits"), [("cost.once", True), ("cost.twice", False)])
def test_the_claim_waits_for_the_disk_only_if_it_is_the_last_and_the_outcome_always(name: str, waits: bool) -> None:
    handle = away.start({"function": name})
    service = WorkflowService()
    service.orchestrate_workflow(handle.id)
    with Cost() as cost:
        service.execute_workflow_step(handle.id, "away")
    claim, outcome = [text for text in cost.texts if 'UPDATE "workflow_step" ' in text]
    assert ("synchronous_commit" not in claim) == waits
    assert "synchronous_commit" not in outcome


@pytest.mark.parametrize("steps", [0, 10])
def test_a_limit_costs_the_same_however_many_steps_a_run_has(steps: int) -> None:
    """Read what is held, and who stands in line; insert the slot; note that it was let in. At the end, look who stands
    in line, and delete the slot."""
    plain = cost_of_inline(steps)
    with Cost() as cost:
        limited.run({"steps": steps})
    assert cost.statements - plain.statements == by_vendor(6, postgresql=6, mongodb=7), cost.texts


def test_a_run_that_is_not_let_in_costs_the_same_however_many_wait() -> None:
    service = WorkflowService()
    held = service._runtime
    handles = [limited.start({"steps": 1}) for _ in range(30)]
    for number in range(2):
        holder = handles[number]
        held.slots.take(
            admission._slots_of(holder.get(), rules.rules_of(held, "cost.limited"))[0].line,
            number,
            holder.id,
            workflow="cost.limited",
            key=None,
            at=held.now(),
            inside={},
        )
    costs = []
    for handle in handles[2:]:
        with Cost() as cost:
            service.orchestrate_workflow(handle.id)
        costs.append(cost.statements)
    # The first one finds the line empty.
    assert len(set(costs[1:])) == 1, costs


def test_a_relay_with_nothing_to_do_reads_five_times() -> None:
    """Schedules, answers, steps and runs that are due, and slots of runs that have ended; on MongoDB also steps and
    runs that carry what must follow."""
    sequence.run({"steps": 1})
    with Cost() as cost:
        assert WorkflowService().relay() == []
    assert cost.statements == by_vendor(5, postgresql=5, mongodb=7), cost.texts


def test_a_mirror_costs_its_own_statements_and_reads_where_a_run_ends(mirror: Any) -> None:
    """On the mirror, which is SQLite here, what a step costs there; where it ends, three reads on either side."""
    sequence.run({"steps": 1})
    with Cost() as empty, CaptureQueriesContext(mirror) as mirrored_empty:
        sequence.run({"steps": 0})
    with Cost() as cost, CaptureQueriesContext(mirror) as mirrored_cost:
        sequence.run({"steps": 10})
    assert (empty.statements, cost.statements - empty.statements) == (2 + 2, 10 * STEP_STATEMENTS + 1), cost.texts
    said = [len([q for q in seen if not q["sql"].startswith(CONTROL)]) for seen in (mirrored_empty, mirrored_cost)]
    assert said == [2 + 2, 2 + 3 + 10 * 4]


@pytest.mark.parametrize("schedules", [1, 5])
def test_a_fire_costs_two_writes_in_one_transaction(schedules: int) -> None:
    """The schedule's next time and the run; on MongoDB also a last write that nobody waits for."""
    with travel(-timedelta(hours=1)):
        for number in range(schedules):
            ScheduleService().create(f"hourly {number}", "cost.sequence", "@hourly", data={"steps": 1})
    with Cost() as cost:
        assert len(WorkflowService().relay()) == schedules
    reads = by_vendor(5, postgresql=5, mongodb=7)
    assert cost.statements - reads == schedules * by_vendor(2, postgresql=1, mongodb=3), cost.texts
    assert cost.transactions == schedules * by_vendor(1, postgresql=0, mongodb=0)


def test_looking_for_declared_schedules_costs_a_read() -> None:
    service = ScheduleService()
    service.synchronise()
    with Cost() as cost:
        assert service.synchronise() == 0
    assert cost.statements == 1, cost.texts
