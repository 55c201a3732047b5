"""Nodes with `for_each`: one step for each element of a list, inline and queued."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pikku_storage.exceptions import WorkflowInputError, WorkflowRegistrationError
from pikku_storage.workflows import GraphDefinition, current_step, function, graph, item, node, ref, trigger
from pikku_storage.workflows.handle import WorkflowRunHandle
from pikku_storage.workflows.invariants import find_violations
from pikku_storage.workflows.registry import registry
from pikku_storage.workflows.service import WorkflowService
from tests.conformance.recording import RecordingDispatcher
from tests.conformance.support import nothing_is_stored, step_names, step_of

pytestmark = pytest.mark.django_db(transaction=True)

Carry = Callable[..., WorkflowRunHandle]


@pytest.fixture(params=["inline", "queued"])
def carry(request: pytest.FixtureRequest, outbox: RecordingDispatcher) -> Iterator[Carry]:
    """Carries a run to its end."""

    def carry_out(definition: GraphDefinition, data: Any = None) -> WorkflowRunHandle:
        if request.param == "inline":
            return definition.run(data)
        run = definition.start(data)
        outbox.deliver()
        return run

    yield carry_out
    assert list(find_violations()) == []


@pytest.fixture
def called() -> list[Any]:
    """What `work` was given, in the order of the calls."""
    return []


@pytest.fixture
def rows() -> Any:
    """A function that answers with a list."""

    @function(name="rows", queued=True)
    def rows(rows: list[Any]) -> Any:
        return {"rows": rows}

    return rows


@pytest.fixture
def work(called: list[Any]) -> Any:
    """A function that doubles, and fails for 13."""

    @function(name="work", queued=True, retries=0)
    def work(n: int) -> Any:
        called.append(n)
        if n == 13:
            raise ValueError("unlucky")
        return 2 * n

    return work


@pytest.fixture
def total(called: list[Any]) -> Any:
    """A function that sees all results."""

    @function(name="total", queued=True)
    def total(results: list[Any]) -> Any:
        called.append(results)
        return sum(results)

    return total


def listed(rows: Any, work: Any, total: Any, **options: Any) -> GraphDefinition:
    """A list, work on each of its elements, and their total."""
    return graph(
        "listed",
        entry="list",
        nodes={
            "list": node(rows, next="work"),
            "work": node(work, for_each=ref("list", "rows"), input={"n": item("n")}, next="total", **options),
            "total": node(total, input={"results": ref("work")}),
        },
        output=ref("total"),
    )


def of(*numbers: int) -> Any:
    return {"rows": [{"n": n} for n in numbers]}


@pytest.mark.contract("GF-01", "GF-12")
def test_each_element_has_a_step_of_its_own_with_the_element_bound(
    carry: Carry, rows: Any, work: Any, total: Any, called: list[Any]
) -> None:
    run = carry(listed(rows, work, total), of(1, 2, 3))
    assert sorted(step_names(run.id)) == ["list", "total", "work[0]", "work[1]", "work[2]"]
    assert [step_of(run.id, f"work[{index}]").data for index in range(3)] == [{"n": 1}, {"n": 2}, {"n": 3}]
    assert sorted(called[:3]) == [1, 2, 3]


@pytest.mark.contract("GF-02")
@pytest.mark.parametrize("bare", [{"n": item()}, item(), None], ids=["argument", "input", "no input"])
def test_the_element_itself_is_bound(carry: Carry, work: Any, called: list[Any], bare: Any) -> None:
    definition = graph("order", entry="a", nodes={"a": node(work, for_each=trigger("ns"), input=bare)}, output=ref("a"))
    assert carry(definition, {"ns": [3, 1]}).output == [6, 2]


@pytest.mark.contract("GF-03", "GF-15")
def test_the_results_are_in_the_order_of_the_source(
    rows: Any, work: Any, total: Any, called: list[Any], outbox: RecordingDispatcher
) -> None:
    """Though they end the other way round; what follows is begun once."""
    run = listed(rows, work, total).start(of(1, 2, 3))
    outbox.deliver_one()
    outbox.deliver_one()
    outbox.posted.reverse()
    outbox.deliver()
    assert called == [3, 2, 1, [2, 4, 6]]
    assert run.output == 12


@pytest.mark.contract("GF-03")
def test_inline_the_results_are_in_the_order_of_the_source(rows: Any, work: Any, total: Any, called: list[Any]) -> None:
    assert listed(rows, work, total).run(of(3, 1, 2)).output == 12
    assert called == [3, 1, 2, [6, 2, 4]]


@pytest.mark.contract("GF-04", "GF-16")
def test_what_follows_waits_for_all_items(
    rows: Any, work: Any, total: Any, outbox: RecordingDispatcher, service: WorkflowService
) -> None:
    run = listed(rows, work, total).start(of(1, 2, 3))
    outbox.deliver_one()
    outbox.deliver_one()
    for _ in range(3):
        service.orchestrate_workflow(run.id)
        assert "total" not in step_names(run.id)
        outbox.deliver_one()
    assert "total" in step_names(run.id)


@pytest.mark.contract("GF-05", "GF-14")
def test_one_after_the_other_never_two_are_under_way(carry: Carry, rows: Any, total: Any, called: list[Any]) -> None:
    @function(queued=True)
    def work(n: int) -> int:
        steps = WorkflowService().list_step_states(current_step().run_id)
        called.append((n, [step.step_name for step in steps if not step.is_settled]))
        return n

    run = carry(listed(rows, work, total, mode="sequential"), of(5, 6, 7))
    assert called == [(5, ["work[0]"]), (6, ["work[1]"]), (7, ["work[2]"]), [5, 6, 7]]
    assert run.status == "completed"


@pytest.mark.contract("GF-06")
@pytest.mark.parametrize("source", [None, "abc", {"a": 1}, 3], ids=repr)
def test_a_source_that_is_no_list_fails_the_run(carry: Carry, rows: Any, work: Any, total: Any, source: Any) -> None:
    run = carry(listed(rows, work, total), {"rows": source})
    assert run.status == "failed"
    assert run.error is not None
    assert run.error["step"] == "work"
    assert "its for_each is a list, and not" in run.error["message"]
    assert step_names(run.id) == ["list"]


@pytest.mark.contract("GF-07")
def test_a_fan_out_feeds_a_second_one(carry: Carry, work: Any) -> None:
    definition = graph(
        "order",
        entry="a",
        nodes={
            "a": node(work, for_each=trigger("ns"), input={"n": item()}, next="b"),
            "b": node(work, for_each=ref("a"), input={"n": item()}),
        },
        output=ref("b"),
    )
    run = carry(definition, {"ns": [1, 2]})
    assert run.output == [4, 8]
    assert sorted(step_names(run.id)) == ["a[0]", "a[1]", "b[0]", "b[1]"]


@pytest.mark.contract("GF-08")
@pytest.mark.parametrize("mode", ["parallel", "sequential"])
def test_nothing_to_go_over_is_done_at_once(
    carry: Carry, rows: Any, work: Any, total: Any, called: list[Any], mode: str
) -> None:
    """There is no instance. That it was reached is a step of the node itself, so that it is remembered."""
    run = carry(listed(rows, work, total, mode=mode), of())
    assert (run.status, run.output, called) == ("completed", 0, [[]])
    assert [(step.step_name, step.result) for step in run.steps()] == [
        ("list", {"rows": []}),
        ("work", []),
        ("total", 0),
    ]


@pytest.mark.contract("GF-09", "GF-17", "GF-18")
@pytest.mark.parametrize("mode", ["parallel", "sequential"])
def test_an_entry_goes_over_the_runs_input(carry: Carry, work: Any, called: list[Any], mode: str) -> None:
    element = node(work, for_each=trigger("ns"), input={"n": item()}, mode=mode)
    run = carry(graph("order", entry="a", nodes={"a": element}), {"ns": [1, 2, 3]})
    assert (run.status, called) == ("completed", [1, 2, 3])
    assert step_names(run.id) == ["a[0]", "a[1]", "a[2]"]


@pytest.mark.contract("GF-10")
def test_an_unknown_source_is_rejected_before_the_run(work: Any, db: None) -> None:
    with pytest.raises(WorkflowRegistrationError, match="its for_each refers to the unknown node 'gone'"):
        graph("order", entry="a", nodes={"a": node(work, for_each=ref("gone"))})
    definition = graph("order", entry="a", nodes={"a": node(work, for_each=trigger("ns"), input={"n": item()})})
    for start in (definition.start, definition.run):
        with pytest.raises(WorkflowInputError, match="over no list"):
            start({"ns": 3})
    assert registry.workflows["order"] is definition
    assert nothing_is_stored()


@pytest.mark.contract("GF-11")
def test_nodes_without_for_each_are_as_they_were(carry: Carry, rows: Any, total: Any) -> None:
    nodes = {"a": node(rows, next="b"), "b": node(total, input={"results": ref("a", "rows")})}
    run = carry(graph("order", entry="a", nodes=nodes), {"rows": [1, 2]})
    assert [(step.step_name, step.group) for step in run.steps()] == [("a", None), ("b", None)]


@pytest.mark.contract("GF-13")
def test_side_by_side_all_items_are_dispatched_in_one_pass(
    rows: Any, work: Any, total: Any, outbox: RecordingDispatcher
) -> None:
    listed(rows, work, total).start(of(1, 2, 3))
    outbox.deliver_one()
    outbox.deliver_one()
    assert [message.step_name for message in outbox.waiting] == ["work[0]", "work[1]", "work[2]"]


@pytest.mark.contract("GF-19")
@pytest.mark.parametrize("mode", ["parallel", "sequential"])
def test_one_failing_item_fails_the_run(
    carry: Carry, rows: Any, work: Any, total: Any, called: list[Any], mode: str
) -> None:
    run = carry(listed(rows, work, total, mode=mode), of(1, 13, 3))
    assert run.status == "failed"
    assert run.error is not None
    assert (run.error["code"], run.error["step"]) == ("GRAPH_NODE_FAILED", "work[1]")
    assert called == ([1, 13, 3] if mode == "parallel" else [1, 13]), "side by side all are carried to their end"
    assert "total" not in step_names(run.id)


def test_what_makes_up_for_a_fan_out_runs_once_after_its_last_item(
    carry: Carry, rows: Any, work: Any, called: list[Any]
) -> None:
    @function(queued=True)
    def undo(error: Any, input: Any, invocation_id: str) -> None:
        called.append((error["message"], input))

    definition = graph(
        "order",
        entry="a",
        nodes={"a": node(work, for_each=trigger("ns"), input={"n": item()}, on_error="undo"), "undo": node(undo)},
    )
    run = carry(definition, {"ns": [13, 1, 13]})
    assert called == [13, 1, 13, ("unlucky", {"n": 13})]
    assert [(step.step_name, step.from_step_name) for step in run.steps()][-1] == ("undo", "a")


@pytest.mark.contract("GF-20")
def test_a_settled_fan_out_is_not_begun_again(
    rows: Any, work: Any, total: Any, called: list[Any], outbox: RecordingDispatcher, service: WorkflowService
) -> None:
    run = listed(rows, work, total).start(of(1, 2))
    outbox.deliver_one()
    while outbox.posted:
        if len(outbox.posted) < 4:
            outbox.duplicate_everything()
        outbox.deliver_one()
        service.orchestrate_workflow(run.id)
        if run.status == "completed":
            outbox.deliver()
    assert sorted(called[:2]) == [1, 2]
    assert called[2:] == [[2, 4]]
    assert sorted(step_names(run.id)) == ["list", "total", "work[0]", "work[1]"]
    before = len(outbox.sent)
    service.orchestrate_workflow(run.id)
    assert len(outbox.sent) == before


@pytest.mark.parametrize("mode", ["parallel", "sequential"])
def test_a_retried_run_keeps_the_items_that_succeeded(
    rows: Any, total: Any, called: list[Any], outbox: RecordingDispatcher, mode: str
) -> None:
    broken = [True]

    @function(queued=True, retries=0)
    def work(n: int) -> int:
        called.append(n)
        if n == 2 and broken[0]:
            raise ValueError("no box")
        return n

    run = listed(rows, work, total, mode=mode).start(of(1, 2, 3))
    outbox.deliver()
    assert run.status == "failed"
    broken[0] = False
    called.clear()
    again = run.retry()
    outbox.deliver()
    assert (again.output, called) == (6, [2, [1, 2, 3]] if mode == "parallel" else [2, 3, [1, 2, 3]])
    assert list(find_violations()) == []


def test_more_items_than_one_statement_takes(carry: Carry, work: Any) -> None:
    definition = graph(
        "order",
        entry="a",
        nodes={"a": node(work, for_each=trigger("ns"), input={"n": item()})},
        output=ref("a"),
    )
    numbers = list(range(100, 220))
    assert carry(definition, {"ns": numbers}).output == [2 * n for n in numbers]
