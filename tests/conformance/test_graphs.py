"""Graph workflows: nodes, edges, joins, cycles and failures, inline and queued."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest

from pikku_storage.db import clock
from pikku_storage.exceptions import (
    WorkflowDispatchException,
    WorkflowError,
    WorkflowInputError,
    WorkflowRegistrationError,
)
from pikku_storage.ids import invocation_id
from pikku_storage.workflows import (
    GraphDefinition,
    current_step,
    function,
    graph,
    item,
    node,
    ref,
    template,
    trigger,
    workflow,
)
from pikku_storage.workflows.flow import Flow
from pikku_storage.workflows.handle import WorkflowRunHandle
from pikku_storage.workflows.invariants import find_violations
from pikku_storage.workflows.models import WorkflowVersion
from pikku_storage.workflows.registry import registry
from pikku_storage.workflows.runs import WorkflowRunService
from pikku_storage.workflows.service import WorkflowService
from tests.conformance.recording import RecordingDispatcher
from tests.conformance.support import MINUTE, nothing_is_stored, outcomes, step_names, step_of, undeployed

pytestmark = pytest.mark.django_db(transaction=True)

Carry = Callable[..., WorkflowRunHandle]


@pytest.fixture(params=["inline", "queued"])
def carry(request: pytest.FixtureRequest, outbox: RecordingDispatcher) -> Iterator[Carry]:
    """Carries a run to its end; queued ones by functions that are always queued, and messages that arrive twice."""

    def carry_out(definition: GraphDefinition, data: Any = None, **options: Any) -> WorkflowRunHandle:
        if request.param == "inline":
            return definition.run(data, **options)
        run = definition.start(data, **options)
        for _ in range(100):
            outbox.duplicate_everything()
            if not outbox.deliver():
                break
        return run

    yield carry_out
    assert list(find_violations()) == []


@pytest.fixture
def called() -> list[Any]:
    """What the functions of `say` were given, in the order of the calls."""
    return []


@pytest.fixture
def say(called: list[Any]) -> Any:
    """A function that notes what it is given, and answers with it. It is always queued, where there is a queue."""

    @function(name="say", queued=True, retries=0)
    def say(**given: Any) -> Any:
        called.append(given)
        return given

    return say


@pytest.fixture
def choose() -> Any:
    """A function that chooses the branches it is given, one at each visit."""

    @function(name="choose", queued=True)
    def choose(ways: list[str]) -> Any:
        current_step().branch(ways[0])
        return ways[1:]

    return choose


@pytest.fixture
def fail() -> Any:
    """A function that fails."""

    @function(name="fail", queued=True, retries=0)
    def fail(**given: Any) -> None:
        raise ValueError("no box")

    return fail


def froms(run: WorkflowRunHandle) -> list[tuple[str, str | None]]:
    return [(step.step_name, step.from_step_name) for step in run.steps()]


# -- the way through ---------------------------------------------------------------------------------------------------


def test_nodes_follow_each_other_and_hand_on_their_results(carry: Carry, say: Any, called: list[Any]) -> None:
    definition = graph(
        "order",
        entry="a",
        nodes={
            "a": node(say, next="b"),
            "b": node(say, input={"from a": ref("a", "id"), "text": template("of {0}", trigger("id"))}),
        },
        output={"last": ref("b"), "skipped": ref("b", "nothing", default=0)},
    )
    run = carry(definition, {"id": 7})

    assert called == [{"id": 7}, {"from a": 7, "text": "of 7"}]
    assert (run.status, run.error) == ("completed", None)
    assert run.output == {"last": {"from a": 7, "text": "of 7"}, "skipped": 0}
    assert froms(run) == [("a", None), ("b", "a")]
    assert run.get().graph_hash == definition.graph_hash


@pytest.mark.parametrize("way", ["left", "right"])
def test_a_function_chooses_the_branch(carry: Carry, say: Any, choose: Any, way: str) -> None:
    definition = graph(
        "order",
        entry="a",
        nodes={
            "a": node(choose, input={"ways": trigger("ways")}, next={"left": "b", "right": ["c", "d"]}),
            **{name: node(say) for name in "bcd"},
        },
    )
    run = carry(definition, {"ways": [way]})

    assert run.status == "completed"
    assert sorted(step_names(run.id)) == (["a", "b"] if way == "left" else ["a", "c", "d"])
    assert step_of(run.id, "a").branch_taken == way
    assert WorkflowService().get_completed_graph_state(run.id).branch_keys == {"a": way}


def test_a_branch_may_end_on_purpose(carry: Carry, choose: Any) -> None:
    definition = graph("order", entry="a", nodes={"a": node(choose, next={"stop": ()})})
    assert carry(definition, {"ways": ["stop"]}).status == "completed"


def test_a_branch_that_the_graph_does_not_know_fails_the_run(carry: Carry, choose: Any) -> None:
    run = carry(graph("order", entry="a", nodes={"a": node(choose, next={"stop": ()})}), {"ways": ["go"]})
    assert run.status == "failed"
    assert run.error is not None
    assert (run.error["code"], run.error["step"]) == ("GRAPH_BRANCH_UNKNOWN", "a")


@pytest.mark.contract("GR-08")
def test_a_converging_node_is_queued_once(say: Any, outbox: RecordingDispatcher) -> None:
    run = _diamond(say).start()
    outbox.deliver()

    assert [message.step_name for message in outbox.sent if message.step_name] == ["a", "b", "c", "d"]
    assert run.status == "completed"


@pytest.mark.contract("GR-10")
def test_inline_a_converging_node_runs_once(say: Any, called: list[Any]) -> None:
    run = _diamond(say).run()
    assert step_names(run.id) == ["a", "b", "c", "d"]
    assert len(called) == 4
    assert run.status == "completed"


def _diamond(say: Any) -> GraphDefinition:
    nodes = {"a": node(say, next=["b", "c"]), "b": node(say, next="d"), "c": node(say, next="d"), "d": node(say)}
    return graph("diamond", entry="a", nodes=nodes)


@pytest.mark.contract("GR-01")
def test_a_run_is_not_completed_while_nodes_are_running(
    say: Any, outbox: RecordingDispatcher, service: WorkflowService
) -> None:
    run = _diamond(say).start()
    for _ in range(3):
        outbox.deliver_one()
    service.orchestrate_workflow(run.id)
    assert [(step.step_name, step.status) for step in run.steps()] == [
        ("a", "succeeded"),
        ("b", "succeeded"),
        ("c", "scheduled"),
        ("d", "scheduled"),
    ]
    assert run.status == "running"
    claimed = service.claim_step(run.id, "d")
    assert claimed is not None
    outbox.deliver()
    assert (run.status, step_of(run.id, "d").status) == ("running", "running")
    service.set_step_result(claimed.step_id, 1)
    service.orchestrate_workflow(run.id)
    assert run.status == "completed"


@pytest.mark.contract("GR-09", "GR-12")
def test_a_cycle_visits_a_node_again_and_records_where_it_came_from(carry: Carry, choose: Any, say: Any) -> None:
    definition = graph(
        "order",
        entry="a",
        nodes={
            "a": node(
                choose, input={"ways": ref("a", default=["more", "more", "end"])}, next={"more": "b", "end": "c"}
            ),
            "b": node(say, input={}, next="a"),
            "c": node(say, input={}),
        },
    )
    run = carry(definition)

    assert run.status == "completed"
    assert froms(run) == [("a", None), ("b", "a"), ("a#1", "b"), ("b#1", "a#1"), ("a#2", "b#1"), ("c", "a#2")]


def test_branches_that_run_side_by_side_spread_over_the_workers(outbox: RecordingDispatcher) -> None:
    """Functions that are not marked as queued: alone they run where the run runs, side by side they do not."""

    @function
    def work() -> str:
        return str(step_of(current_step().run_id, current_step().step_name).claimed_by)

    nodes = {"a": node(work, next=["b", "c"]), "b": node(work, next="d"), "c": node(work, next="d"), "d": node(work)}
    run = graph("order", entry="a", nodes=nodes).start()
    for worker in "vxyz":
        assert run.status == "running"
        outbox.deliver_one(worker=worker)

    assert {step.step_name: step.result for step in run.steps()} == {"a": "v", "b": "x", "c": "y", "d": "z"}
    assert [step.step_name for step in run.steps() if step.queue] == ["b", "c", "d"]
    assert run.status == "completed"


def test_a_chain_of_nodes_needs_one_message_only(outbox: RecordingDispatcher) -> None:
    @function
    def work() -> None: ...

    nodes = {"a": node(work, next="b"), "b": node(work, next="c"), "c": node(work)}
    run = graph("order", entry="a", nodes=nodes).start()
    assert outbox.deliver() == 1
    assert run.status == "completed"


def test_a_node_function_reads_and_writes_the_runs_state(carry: Carry) -> None:
    @function
    def first() -> None:
        current_step().set_state("tracking", ["T", 1])

    @function
    async def second() -> Any:
        step = current_step()
        await step.aset_state("seen", True)
        return [await step.aget_state("tracking"), await step.aget_state("nothing", 0)]

    run = carry(graph("order", entry="a", nodes={"a": node(first, next="b"), "b": node(second)}, output=ref("b")))
    assert run.output == [["T", 1], 0]
    assert run.state == {"tracking": ["T", 1], "seen": True}


# -- starting ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def two_ways(say: Any) -> GraphDefinition:
    """A graph with two entries."""
    nodes = {"a": node(say, next="c"), "b": node(say, next="c"), "c": node(say)}
    return graph("two_ways", entry=["a", "b"], nodes=nodes)


@pytest.mark.contract("RA-01", "GR-02")
@pytest.mark.parametrize("start_node", ["c", "nothing", ""])
def test_a_start_node_that_is_no_entry_is_rejected(two_ways: GraphDefinition, start_node: str) -> None:
    for start in (two_ways.start, two_ways.run):
        with pytest.raises(WorkflowInputError, match=r"its entries are 'a', 'b'"):
            start(start_node=start_node)
    assert nothing_is_stored()


@pytest.mark.contract("RA-02", "GR-03")
def test_a_start_node_that_is_an_entry_is_the_only_one(carry: Carry, two_ways: GraphDefinition) -> None:
    assert step_names(carry(two_ways, start_node="b").id) == ["b", "c"]
    assert sorted(step_names(carry(two_ways).id)) == ["a", "b", "c"]


def test_a_body_has_no_start_node(service: WorkflowService) -> None:
    workflow(name="body")(lambda flow: None)
    with pytest.raises(WorkflowInputError, match="it is no graph"):
        service.start_workflow("body", start_node="a")
    assert nothing_is_stored()


@pytest.mark.contract("GR-04", "GR-05")
@pytest.mark.parametrize("wrong", [{"input": {"x": ref("gone")}}, {"next": "gone"}])
def test_a_graph_with_a_dangling_name_is_refused_before_there_is_a_run(say: Any, wrong: Any, db: None) -> None:
    with pytest.raises(WorkflowRegistrationError, match="unknown node 'gone'"):
        graph("order", entry="a", nodes={"a": node(say, **wrong)})
    assert "order" not in registry.workflows
    assert nothing_is_stored()


def test_an_input_that_lacks_something_is_refused_before_there_is_a_run(say: Any, db: None) -> None:
    definition = graph("order", entry="a", nodes={"a": node(say, input={"x": trigger("id")})})
    for start in (definition.start, definition.run):
        with pytest.raises(WorkflowInputError, match="no 'id'"):
            start({"key": 1})
    assert nothing_is_stored()


@pytest.mark.contract("GR-16")
def test_a_graph_that_is_started_inline_runs_inline(
    say: Any, service: WorkflowService, outbox: RecordingDispatcher
) -> None:
    run = service.start_workflow(_diamond(say).name, inline=True)
    assert run.status == "completed"
    assert run.get().inline
    assert outbox.sent == []


def test_the_same_key_starts_one_run(say: Any, outbox: RecordingDispatcher) -> None:
    runs = [_diamond(say).start(owner="ada", idempotency_key="A17") for _ in range(2)]
    outbox.deliver()
    assert runs[0] == runs[1]
    assert (runs[0].get().owner_id, len(runs[0].steps())) == ("ada", 4)


# -- retries and failures ----------------------------------------------------------------------------------------------


@pytest.mark.contract("GR-19")
def test_the_retries_of_a_node_are_its_attempts_and_their_pauses(outbox: RecordingDispatcher) -> None:
    @function(queued=True, retries=7, retry_delay="1h", timeout="1h")
    def flaky() -> None:
        raise ValueError("not now")

    run = graph("order", entry="a", nodes={"a": node(flaky, retries=2, retry_delay="3s", timeout="5s")}).start()
    outbox.deliver()

    step = step_of(run.id, "a")
    assert (step.max_attempts, step.retries, step.retry_delay, step.timeout_ms) == (3, 2, "3s", 5_000)
    assert [round(message.countdown or 0) for message in outbox.sent if message.step_name] == [0, 3]
    for minutes in (1, 2):
        with clock.travel(minutes * MINUTE):
            outbox.deliver()
    assert outcomes(run.id, "a") == ["failed"] * 3
    assert run.status == "failed"


def test_a_node_has_the_retries_of_its_function_inline_and_queued(carry: Carry) -> None:
    @function(retries=2, retry_delay=0)
    def flaky() -> int:
        if current_step().attempt < 3:
            raise ValueError("not now")
        return current_step().attempt

    run = carry(graph("order", entry="a", nodes={"a": node(flaky)}, output=ref("a")))
    assert run.output == 3


@pytest.mark.contract("GR-11")
def test_a_failing_node_fails_the_run(carry: Carry, fail: Any, say: Any) -> None:
    run = carry(graph("order", entry="a", nodes={"a": node(fail, next="b"), "b": node(say, input={})}))

    assert run.status == "failed"
    assert run.error is not None
    assert (run.error["code"], run.error["step"]) == ("GRAPH_NODE_FAILED", "a")
    assert run.error["message"] == "Graph node 'a' failed: no box"
    assert step_names(run.id) == ["a"]


@pytest.mark.contract("GR-13")
def test_a_failing_node_runs_its_error_nodes_and_the_run_fails_all_the_same(
    carry: Carry, fail: Any, say: Any, called: list[Any]
) -> None:
    definition = graph(
        "order",
        entry="a",
        nodes={
            "a": node(fail, input={"x": 1}, next="b", on_error=["undo", "tell"]),
            "b": node(say, input={}),
            "undo": node(say, next="bill"),
            "tell": node(say, input={"text": "sorry"}),
            "bill": node(say, input={}),
        },
    )
    run = carry(definition)

    assert run.status == "failed"
    assert run.error is not None
    assert (run.error["code"], run.error["step"]) == ("GRAPH_NODE_FAILED", "a")
    assert sorted(froms(run)) == [("a", None), ("bill", "undo"), ("tell", "a"), ("undo", "a")]
    told = {"error": {"name": "ValueError", "message": "no box"}, "input": {"x": 1}}
    assert {**told, "invocation_id": invocation_id(run.id, "a")} in called
    assert {"text": "sorry"} in called


def test_what_is_under_way_is_carried_to_its_end_before_the_run_fails(
    fail: Any, say: Any, outbox: RecordingDispatcher
) -> None:
    nodes = {"a": node(fail, input={}), "b": node(say, input={}, next="c"), "c": node(say)}
    run = graph("order", entry=["a", "b"], nodes=nodes).start()
    outbox.deliver_one()
    outbox.deliver_one()
    assert (step_of(run.id, "a").status, run.status) == ("failed", "running")
    outbox.deliver()
    assert (step_of(run.id, "b").status, run.status) == ("succeeded", "failed")
    assert step_names(run.id) == ["a", "b"]


def test_a_node_that_waits_in_vain_fails_the_run(carry: Carry, say: Any, choose: Any) -> None:
    definition = graph(
        "order",
        entry="a",
        nodes={
            "a": node(choose, next={"x": "b", "y": "c"}),
            "b": node(say, input={"c": ref("c")}),
            "c": node(say, input={}),
        },
    )
    run = carry(definition, {"ways": ["x"]})
    assert run.status == "failed"
    assert run.error is not None
    assert run.error["code"] == "GRAPH_BLOCKED"


@pytest.mark.parametrize("given", [{"sku": 1, "n": 2}, 7, {}])
def test_a_result_that_does_not_fit_the_next_node_fails_the_run(carry: Carry, given: Any) -> None:
    @function
    def first() -> Any:
        return given

    @function
    def second(sku: str, why: str) -> None: ...

    run = carry(graph("order", entry="a", nodes={"a": node(first, next="b"), "b": node(second, input=ref("a"))}))
    assert run.status == "failed"
    assert run.error is not None
    assert run.error["step"] == "b"
    assert step_names(run.id) == ["a"]


def test_a_retried_run_keeps_what_did_not_come_of_the_failure(
    say: Any, called: list[Any], outbox: RecordingDispatcher
) -> None:
    broken = [True]

    @function(queued=True, retries=0)
    def shaky() -> str:
        current_step().branch("ok")
        if broken[0]:
            raise ValueError("no box")
        return "shaken"

    definition = graph(
        "order",
        entry=["a", "b"],
        nodes={
            "a": node(shaky, next={"ok": "d"}, on_error="undo"),
            "b": node(say, input={"b": 1}, next="c"),
            "c": node(say, input={"c": 1}),
            "undo": node(say, input={"undo": 1}),
            "d": node(say, input={"a": ref("a"), "b": ref("b")}),
        },
        output=ref("d"),
    )
    run = definition.start()
    outbox.posted.reverse()
    outbox.deliver()
    assert (run.status, {"undo": 1} in called) == ("failed", True)
    broken[0] = False
    called.clear()
    again = run.retry()
    outbox.deliver()

    assert (again.status, again.output) == ("completed", {"a": "shaken", "b": {"b": 1}})
    assert {"b": 1} not in called
    assert "undo" not in step_names(again.id)
    assert list(find_violations()) == []


def test_a_cancelled_graph_begins_nothing_more(say: Any, called: list[Any], outbox: RecordingDispatcher) -> None:
    run = _diamond(say).start()
    outbox.deliver_one()
    assert run.cancel()
    outbox.deliver()
    assert (run.status, called) == ("cancelled", [])


@pytest.mark.parametrize("is_known", [True, False])
def test_a_graph_cannot_be_undone(is_known: bool, say: Any, outbox: RecordingDispatcher) -> None:
    run = _diamond(say).start()
    outbox.deliver_one()
    if not is_known:
        del registry.workflows[run.get().workflow]
    with pytest.raises(WorkflowError, match="is one of a graph, which cannot be undone"):
        run.cancel(compensate=True)
    assert run.status == "running"
    assert run.cancel()


def test_a_graph_is_cancelled_with_a_parent_that_is_undone(
    say: Any, called: list[Any], outbox: RecordingDispatcher
) -> None:
    drawn = graph("drawn", entry="a", nodes={"a": node(say, input={}, next="b"), "b": node(say, input={"b": 1})})

    @workflow
    def order(flow: Flow) -> Any:
        return flow.do("drawn", drawn, on_error=say)

    run = order.start()
    outbox.deliver_one()
    child = run.children()[0]
    assert (child.status, called) == ("running", [])
    assert run.cancel(compensate=True)
    with clock.travel(MINUTE):
        WorkflowService().relay()
        outbox.deliver()

    assert (run.status, child.status) == ("cancelled", "cancelled")
    assert {"b": 1} not in called
    assert step_names(run.id) == ["drawn", "drawn:onError"]
    assert list(find_violations()) == []


def test_a_fork_keeps_what_did_not_come_of_the_step(say: Any, called: list[Any], outbox: RecordingDispatcher) -> None:
    @function(queued=True, retries=0)
    def shaky() -> None:
        raise ValueError("no box")

    definition = graph(
        "order",
        entry=["a", "b", "lost"],
        nodes={
            "a": node(say, input={"a": 1}, next="c"),
            "b": node(say, input={"b": 1}),
            "c": node(say, input={"c": ref("a", "a")}),
            "lost": node(shaky, on_error="undo"),
            "undo": node(say, input={"undo": 1}),
        },
    )
    run = definition.start()
    while {"undo": 1} not in called:
        outbox.deliver_one()
    outbox.deliver()
    assert (run.status, step_names(run.id)) == ("failed", ["a", "b", "lost", "c", "undo"])
    called.clear()

    assert WorkflowService().preview_fork(run.id, "c").kept == ("a", "b")
    assert WorkflowService().preview_fork(run.id, "a").kept == ("b",)
    assert WorkflowService().preview_fork(run.id, "lost").kept == ("a", "b", "c")
    assert WorkflowService().preview_fork(run.id, "undo").kept == ("a", "b", "lost", "c")
    fork = run.fork("c")
    outbox.deliver()
    assert {"c": 1} in called
    assert {"a": 1} not in called
    assert step_names(fork.id) == ["a", "b", "lost", "c", "undo"]


def test_a_run_that_is_repeated_begins_where_it_began(say: Any, outbox: RecordingDispatcher) -> None:
    nodes = {"a": node(say, input={}), "b": node(say, input={})}
    run = graph("order", entry=["a", "b"], nodes=nodes).start(start_node="b")
    outbox.deliver()
    again = WorkflowService().rerun_run(run.id)
    outbox.deliver()
    assert (again.status, step_names(again.id)) == ("completed", ["b"])


# -- workflows as nodes ------------------------------------------------------------------------------------------------


@pytest.fixture
def double(say: Any) -> Any:
    """A workflow that doubles a number, in a step of its own."""

    @workflow
    def double(flow: Flow, number: int) -> Any:
        return 2 * flow.do("say", say, {"number": number})["number"]

    return double


def test_a_node_may_be_a_workflow(carry: Carry, say: Any, double: Any) -> None:
    definition = graph(
        "order",
        entry=["one", "two"],
        nodes={
            "one": node(double, input={"number": 1}, next="sum"),
            "two": node("double", input={"number": trigger("number")}),
            "many": node(double, for_each=ref("sum", "of")),
            "each": node(double, for_each=ref("many"), mode="sequential"),
            "sum": node(say, input={"of": [5, 6], "one": ref("one"), "two": ref("two")}, next=["many", "each"]),
        },
        output={"sum": ref("sum"), "each": ref("each")},
    )
    run = carry(definition, {"number": 2}, owner="user-1")

    assert run.output == {"sum": {"of": [5, 6], "one": 2, "two": 4}, "each": [20, 24]}
    children = {child.id: child.get() for child in run.children()}
    steps = [step for step in run.steps() if step.step_name != "sum"]
    assert [children[str(step.child_run_id)].output for step in steps] == [step.result for step in steps]
    assert len(children) == len(steps) == 6
    assert {child.owner_id for child in children.values()} == {"user-1"}


def test_a_node_may_be_a_graph_and_a_graph_a_step(carry: Carry, say: Any) -> None:
    inner = graph("inner", entry="a", nodes={"a": node(say, input={"n": trigger("n")})}, output=ref("a"))
    outer = graph("outer", entry="x", nodes={"x": node(inner)}, output=ref("x"))

    @workflow
    def order(flow: Flow) -> Any:
        return flow.do("outer", outer, {"n": 7})

    assert carry(order).output == {"n": 7}


def test_a_workflow_that_fails_fails_its_node(carry: Carry, say: Any, called: list[Any]) -> None:
    attempts = []

    @workflow
    def charge(flow: Flow, amount: int) -> None:
        attempts.append(amount)
        raise ValueError("no funds")

    nodes = {"charge": node(charge, input={"amount": 3}, on_error="undo"), "undo": node(say)}
    run = carry(graph("order", entry="charge", nodes=nodes))
    assert run.error is not None
    assert (run.status, run.error["code"], run.error["step"]) == ("failed", "GRAPH_NODE_FAILED", "charge")
    assert [(given["input"], given["error"]["message"]) for given in called] == [({"amount": 3}, "no funds")]
    assert attempts == [3]

    nodes = {"charge": node(charge, input={"amount": 3}, retries=1, retry_delay=0)}
    run = carry(graph("patient", entry="charge", nodes=nodes))
    assert (run.status, attempts) == ("failed", [3, 3, 3])


def test_a_workflow_as_a_node_has_no_timeout(say: Any, double: Any) -> None:
    refused = "'double' is a workflow; only a function's step has a timeout"
    with pytest.raises(WorkflowRegistrationError, match=refused):
        graph("order", entry="a", nodes={"a": node(double, input={"number": 1}, timeout="1s")})
    run = graph("order", entry="a", nodes={"a": node("double", input={"number": 1}, timeout="1s")}).run()
    assert run.error is not None
    assert (run.status, run.error["step"]) == ("failed", "a")
    assert refused in run.error["message"]


def test_a_graph_that_begins_itself_comes_to_an_end(carry: Carry) -> None:
    run = carry(graph("order", entry="a", nodes={"a": node("order", input={})}))
    assert run.error is not None
    assert "start itself for ever" in run.error["message"]


# -- missing code ------------------------------------------------------------------------------------------------------


@pytest.mark.contract("GR-14", "GR-15")
def test_an_unknown_function_suspends_the_run_until_it_is_there(
    carry: Carry, say: Any, outbox: RecordingDispatcher, service: WorkflowService
) -> None:
    """Ours begins no step that would have to fail."""
    definition = graph("order", entry="a", nodes={"a": node(say, input={}, next="b"), "b": node("later", input={})})
    run = carry(definition)

    assert run.status == "suspended"
    assert run.error is not None
    assert run.error["code"] == "RPC_NOT_FOUND"
    assert "RPC 'later' not found" in run.error["message"]
    assert step_names(run.id) == ["a"]
    function(name="later")(lambda: None)
    with clock.travel(MINUTE):
        service.relay()
        outbox.deliver()
    assert run.status == "completed"


def test_a_function_that_is_gone_when_its_message_arrives_suspends_the_run(
    say: Any, outbox: RecordingDispatcher
) -> None:
    run = graph("order", entry="a", nodes={"a": node(say, input={})}).start()
    outbox.deliver_one()
    with undeployed("say"):
        outbox.deliver()
        assert (run.status, step_of(run.id, "a").status) == ("suspended", "scheduled")
    run.resume()
    outbox.deliver()
    assert run.status == "completed"


def test_a_missing_function_holds_up_no_other_branch(say: Any, outbox: RecordingDispatcher) -> None:
    nodes = {"a": node("later", input={}), "b": node(say, input={}, next="c"), "c": node(say, input={})}
    run = graph("order", entry=["a", "b"], nodes=nodes).start()
    outbox.deliver()
    assert run.status == "suspended"
    assert {step.step_name: step.status for step in run.steps()} == {"b": "succeeded", "c": "succeeded"}


# -- versions ----------------------------------------------------------------------------------------------------------


@pytest.mark.contract("EN-11")
def test_a_run_goes_on_with_the_version_that_it_began_with(say: Any, outbox: RecordingDispatcher) -> None:
    def order(*names: str) -> GraphDefinition:
        following = dict(pairwise(names))
        nodes = {name: node(say, input={}, next=following.get(name, ())) for name in names}
        return graph("order", entry=names[0], nodes=nodes)

    run = order("a", "b", "c").start()
    outbox.deliver_one()
    new = order("a", "x", "y")
    outbox.deliver()

    assert (run.status, step_names(run.id)) == ("completed", ["a", "b", "c"])
    assert new.run().steps()[-1].step_name == "y"
    versions = WorkflowVersion.objects.filter(workflow_name="order")
    assert sorted(versions.values_list("source", "status")) == [("graph", "active")] * 2


def test_a_run_goes_on_after_its_graph_is_gone_from_the_code(say: Any, outbox: RecordingDispatcher) -> None:
    run = _diamond(say).start()
    outbox.deliver_one()
    with undeployed("diamond"):
        outbox.deliver()
    assert run.status == "completed"


@pytest.mark.contract("EN-11")
def test_an_empty_stored_graph_completes(say: Any, service: WorkflowService) -> None:
    name = _diamond(say).name
    service.upsert_workflow_version(name, "older", {"nodes": {}, "entryNodeIds": []}, "graph")
    run_id = service.create_run(name, {}, graph_hash="older")
    service.orchestrate_workflow(run_id)
    assert service.get_handle(run_id).status == "completed"


@pytest.mark.contract("EN-10")
def test_a_body_that_was_a_graph_when_the_run_began_continues_from_the_stored_graph(
    say: Any, service: WorkflowService, outbox: RecordingDispatcher
) -> None:
    workflow(name="order")(lambda flow: "today")
    nodes = {"first": {"rpcName": "say", "next": "second"}, "second": {"rpcName": "say"}}
    service.upsert_workflow_version("order", "older", {"nodes": nodes, "entryNodeIds": ["first"]}, "graph")
    run_id = service.create_run("order", {"x": 1}, graph_hash="older")
    outbox.is_down = True
    with pytest.raises(WorkflowDispatchException):
        service.orchestrate_workflow(run_id)

    run = service.get_handle(run_id)
    assert [(step.step_name, step.status) for step in run.steps()] == [("first", "pending")]
    assert run.status == "running"
    outbox.is_down = False
    service.orchestrate_workflow(run_id)
    outbox.deliver()
    assert (run.status, step_names(run_id)) == ("completed", ["first", "second"])


def test_a_graph_whose_version_is_gone_fails(say: Any, service: WorkflowService) -> None:
    run_id = service.create_run(_diamond(say).name, {}, graph_hash="gone")
    service.orchestrate_workflow(run_id)
    run = service.get_handle(run_id)
    assert run.status == "failed"
    assert run.error is not None
    assert run.error["code"] == "VERSION_NOT_FOUND"


def test_a_body_that_became_a_graph_leaves_its_runs_waiting(outbox: RecordingDispatcher, say: Any) -> None:
    @workflow
    def order(flow: Flow) -> str:
        flow.sleep("rest", "1h")
        return "body"

    run = order.start()
    outbox.deliver()
    del registry.workflows["order"]
    graph("order", entry="a", nodes={"a": node(say, input={})})
    run.resume()
    outbox.deliver()
    assert run.status == "suspended"
    assert run.error is not None
    assert run.error["code"] == "VERSION_CONFLICT"


@pytest.mark.contract("GR-06", "GR-07")
@pytest.mark.parametrize("name", ["a#1", "a[0]", "${x}"])
def test_a_stored_graph_with_ambiguous_names_fails_its_runs(service: WorkflowService, name: str, db: None) -> None:
    """A step `a#1`, and the branch it chose, would belong to two nodes."""
    nodes = {"a": {"rpcName": "say"}, name: {"rpcName": "say"}}
    service.upsert_workflow_version("order", "older", {"nodes": nodes, "entryNodeIds": ["a", name]}, "graph")
    run_id = service.create_run("order", {}, graph_hash="older")
    service.orchestrate_workflow(run_id)
    run = service.get_handle(run_id)
    assert run.status == "failed"
    assert run.error is not None
    assert run.error["code"] == "GRAPH_INVALID"
    assert "its name is ambiguous" in run.error["message"]
    assert run.steps() == []


@pytest.mark.parametrize("stored", [{"nodes": ["a"]}, {"nodes": {"a": {}}, "entryNodeIds": ["a"]}, "text", [1]])
def test_a_malformed_stored_graph_fails_its_runs(service: WorkflowService, stored: Any, db: None) -> None:
    service.upsert_workflow_version("order", "older", stored, "graph")
    run_id = service.create_run("order", {}, graph_hash="older")
    service.orchestrate_workflow(run_id)
    run = service.get_handle(run_id)
    assert run.status == "failed"
    assert run.error is not None
    assert run.error["code"] == "GRAPH_INVALID"


@pytest.mark.contract("GR-20")
def test_an_element_outside_of_a_fan_out_stays_unresolved(
    say: Any, called: list[Any], service: WorkflowService
) -> None:
    """In a graph that another program stored; in a declaration it is refused."""
    with pytest.raises(WorkflowRegistrationError, match="item"):
        graph("order", entry="a", nodes={"a": node(say, input={"x": item()})})
    nodes = {"a": {"rpcName": "say", "input": {"x": {"$ref": "$item"}}}}
    service.upsert_workflow_version("order", "older", {"nodes": nodes, "entryNodeIds": ["a"]}, "graph")
    run_id = service.create_run("order", {}, graph_hash="older")
    service.orchestrate_workflow(run_id)
    service.execute_workflow_step(run_id, "a")
    assert called == [{"x": None}]


# -- how far it is -----------------------------------------------------------------------------------------------------


def test_the_graph_of_a_run_shows_how_far_it_is(
    say: Any, choose: Any, outbox: RecordingDispatcher, runs: WorkflowRunService
) -> None:
    definition = graph(
        "order",
        entry="a",
        nodes={
            "a": node(choose, input={"ways": ["x"]}, next={"x": ["b", "c"], "y": "d"}, on_error="d"),
            "b": node(say, input={}),
            "c": node(say, for_each=trigger("rows"), input={"n": item()}),
            "d": node(say, input={}),
        },
    )
    run = definition.start({"rows": [1, 2]})
    outbox.deliver_one()
    outbox.deliver_one()
    outbox.deliver_one()

    view = runs.get_run_graph(run.id)
    assert view is not None
    assert {each.name: (each.status, each.steps) for each in view.nodes} == {
        "a": ("succeeded", ("a",)),
        "b": ("succeeded", ("b",)),
        "c": ("scheduled", ("c[0]", "c[1]")),
        "d": (None, ()),
    }
    assert {(edge.source, edge.target, edge.branch, edge.is_error): edge.taken for edge in view.edges} == {
        ("a", "b", "x", False): 1,
        ("a", "c", "x", False): 1,
        ("a", "d", "y", False): 0,
        ("a", "d", None, True): 0,
    }
    assert "  class n0,n1 succeeded" in view.to_mermaid().splitlines()
    assert runs.get_run_graph("unknown") is None
    assert runs.get_run_graph(workflow(name="body")(lambda flow: None).run().id) is None
