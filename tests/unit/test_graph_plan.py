"""What comes next in a graph, whatever order things happen in: the plan is asked again and again, as passes do."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pikku_storage.exceptions import WorkflowGraphError, WorkflowInputError
from pikku_storage.workflows import item, ref, trigger
from pikku_storage.workflows.graphs.plan import Begin, Plan, plan
from pikku_storage.workflows.graphs.structure import PARALLEL, SEQUENTIAL, Graph, Node
from pikku_storage.workflows.graphs.view import view_of
from pikku_storage.workflows.graphs.visits import visits_in
from pikku_storage.workflows.records import Run, StepState

# Not `st.randoms`, whose shrunk dice never throw anything but 0.
SEEDS = st.integers(0, 1 << 16).map(random.Random)
NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)


def graph_of(*nodes: Node, entry: tuple[str, ...] = ("a",), output: Any = None) -> Graph:
    return Graph("order", {node.name: node for node in nodes}, entry, output)


def node_of(name: str, **options: Any) -> Node:
    return Node(name=name, function="f", **options)


@dataclass
class Life:
    """A run whose steps are rows in a list. `branches` and `fails` say what becomes of a node's steps."""

    graph: Graph
    data: Any = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    fails: set[str] = field(default_factory=set)
    steps: list[StepState] = field(default_factory=list)
    clock: int = 0

    def plan(self) -> Plan:
        """What comes next; the same however often it is asked."""
        run = Run.new({"id": "run", "workflow": "order", "input": self.data})
        first = plan(self.graph, run, self.steps)
        again = plan(self.graph, run, self.steps)
        assert (first.begin, first.under_way, first.output) == (again.begin, again.under_way, again.output)
        return first

    def begin(self, begin: Begin) -> None:
        """Insert a step, as the database would: its name is its identity."""
        assert begin.step_name not in self.names()
        self.clock += 1
        at = NOON + timedelta(milliseconds=self.clock)
        values = {
            "id": begin.step_name,
            "run_id": "run",
            "step_name": begin.step_name,
            "data": begin.data,
            "status": "scheduled",
            "from_step_name": begin.came_from,
            "group": begin.group,
            "due_at": at,
            "created_at": at,
            "updated_at": at,
        }
        self.steps.append(StepState.from_row({**dict.fromkeys(StepState.COLUMNS), **values}))

    def settle(self, name: str, result: Any = None, *, branch: str | None = None, error: str | None = None) -> None:
        """End a step."""
        self.clock += 1
        index = next(index for index, step in enumerate(self.steps) if step.step_name == name)
        ended = replace(
            self.steps[index],
            status="succeeded" if error is None else "failed",
            result=result,
            branch_taken=branch,
            error=None if error is None else {"message": error, "stack": "long"},
            due_at=None,
            updated_at=NOON + timedelta(milliseconds=self.clock),
        )
        self.steps[index] = ended

    def settle_as_it_will(self, step: StepState) -> None:
        """End a step as it always ends: its outcome depends on its name only."""
        (visit,) = visits_in(self.graph, [step]).values()
        name = visit.node.name
        if step.step_name in self.fails or name in self.fails:
            self.settle(step.step_name, error=f"{name} broke")
        else:
            self.settle(
                step.step_name, [f"{step.step_name}.{index}" for index in range(2)], branch=self.branches.get(name)
            )

    def begun(self) -> list[str]:
        """Begin what comes next, and answer with its names."""
        following = self.plan()
        for each in following.begin:
            self.begin(each)
        return [each.step_name for each in following.begin]

    def names(self) -> list[str]:
        """The names of all steps."""
        return [step.step_name for step in self.steps]


def lived(graph: Graph, dice: random.Random, **options: Any) -> tuple[Life, Plan]:
    """A run in some order, with crashes: a pass begins only some of what it planned, steps end when they like."""
    life = Life(graph, data={"rows": [1, 2, 3]}, **options)
    for _ in range(500):
        following = life.plan()
        if not (following.begin or following.under_way):
            return life, following
        planned = following.begin[: dice.randint(0, len(following.begin))]
        for each in planned:
            life.begin(each)
        open_steps = [step for step in life.steps if not step.is_settled]
        for step in dice.sample(open_steps, dice.randint(0, len(open_steps))):
            life.settle_as_it_will(step)
        running = Counter(step.group for step in life.steps if not step.is_settled)
        for name, node in graph.nodes.items():
            assert node.mode != SEQUENTIAL or running[name] <= 1, "one at a time"
    raise AssertionError(f"this never ends: {life.names()[-10:]}")


@st.composite
def graphs(draw: st.DrawFn, *, cycles: bool = False) -> tuple[Graph, dict[str, str]]:
    """A graph of some nodes, and the branches that its functions choose. Without cycles edges lead on only."""
    count = draw(st.integers(1, 7))
    names = [f"n{index}" for index in range(count)]
    nodes, branches = [], {}
    for index, name in enumerate(names):
        later = names[index + 1 :]
        targets = st.lists(st.sampled_from(later), unique=True, max_size=3).map(tuple) if later else st.just(())
        following: Any = draw(targets)
        if draw(st.booleans()):
            following = {"x": following, "y": draw(targets)}
            branches[name] = draw(st.sampled_from("xy"))
        elements = None
        if not isinstance(following, dict) and draw(st.booleans()):
            sources = [trigger("rows"), trigger("none", default=[]), *(ref(each) for each in names[:index])]
            elements = draw(st.sampled_from(sources))
        waits_for = draw(st.lists(st.sampled_from(names[:index]), unique=True, max_size=2)) if index else []
        nodes.append(
            node_of(
                name,
                next=following,
                for_each=elements,
                mode=draw(st.sampled_from([PARALLEL, SEQUENTIAL])) if elements is not None else PARALLEL,
                input={"own": item() if elements is not None else None, **{each: ref(each) for each in waits_for}},
                on_error=draw(targets),
            )
        )
    return graph_of(*nodes, entry=(names[0],)), branches


@settings(max_examples=100, deadline=None)
@given(drawn=graphs(), first=SEEDS, second=SEEDS)
def test_a_run_comes_to_the_same_in_whatever_order_its_steps_end(
    drawn: tuple[Graph, dict[str, str]], first: random.Random, second: random.Random
) -> None:
    graph, branches = drawn
    (one, end), (other, other_end) = (lived(graph, dice, branches=branches) for dice in (first, second))

    assert sorted(one.names()) == sorted(other.names())
    assert {step.step_name: step.data for step in one.steps} == {step.step_name: step.data for step in other.steps}
    assert (end.failure is None) == (other_end.failure is None)
    assert Counter(visit.node.name for visit in visits_in(graph, one.steps).values()).most_common(1)[0][1] == 1
    if end.failure is None:
        taken = {edge.target for edge in view_of(graph, one.steps).edges if edge.taken}
        assert taken | {*graph.entry} == {visit.node.name for visit in visits_in(graph, one.steps).values()}


@settings(max_examples=100, deadline=None)
@given(drawn=graphs(), dice=SEEDS, data=st.data())
def test_a_run_with_failures_ends_failed_after_each_failure_was_followed_once(
    drawn: tuple[Graph, dict[str, str]], dice: random.Random, data: st.DataObject
) -> None:
    graph, branches = drawn
    fails = data.draw(st.sets(st.sampled_from(sorted(graph.nodes)), min_size=1))
    life, end = lived(graph, dice, branches=branches, fails=fails)

    visits = visits_in(graph, life.steps)
    failed = {visit.name for visit in visits.values() if visit.failed_step is not None}
    assert bool(failed) == (end.failure is not None and end.failure.code == "GRAPH_NODE_FAILED")
    edges = Counter((visit.came_from, visit.node.name) for visit in visits.values())
    assert set(edges.values()) <= {1}, "an edge is taken once"
    for name in failed:
        for target in visits[name].node.on_error:
            waiting = {each for each in graph.nodes[target].input if each != "own"}
            source = (graph.nodes[target].for_each or {}).get("$ref")
            if not waiting and source in {None, "trigger"}:
                assert (name, target) in edges


# -- where ways meet ---------------------------------------------------------------------------------------------------


def test_a_diamond_within_a_cycle_meets_once_on_each_round() -> None:
    graph = graph_of(
        node_of("a", next=("b", "c")),
        node_of("b", next=("d",)),
        node_of("c", next=("d",)),
        node_of("d", next={"again": ("a",), "out": ("e",)}, input={"b": ref("b"), "c": ref("c")}),
        node_of("e"),
    )
    life = Life(graph)
    for round_, way in enumerate(["again", "again", "out"]):
        number = f"#{round_}" if round_ else ""
        assert life.begun() == [f"a{number}"]
        life.settle(f"a{number}")
        assert life.begun() == [f"b{number}", f"c{number}"]
        for name in "bc":
            life.settle(f"{name}{number}", f"{name}{round_}")
        assert life.begun() == [f"d{number}"]
        assert life.steps[-1].data == {"b": f"b{round_}", "c": f"c{round_}"}
        life.settle(f"d{number}", branch=way)
    assert life.begun() == ["e"]
    assert life.steps[-1].from_step_name == "d#2"


def test_a_node_behind_a_cycle_is_visited_once() -> None:
    graph = graph_of(node_of("a", next={"on": ("a", "b"), "out": ("b",)}), node_of("b"))
    life = Life(graph)
    assert life.begun() == ["a"]
    life.settle("a", branch="on")
    assert sorted(life.begun()) == ["a#1", "b"]
    life.settle("a#1", branch="out")
    assert life.begun() == []


def test_a_node_waits_for_all_that_it_refers_to() -> None:
    graph = graph_of(
        node_of("a", next=("c",)),
        node_of("b", next=("c",)),
        node_of("c", input={"a": ref("a"), "b": ref("b")}),
        entry=("a", "b"),
    )
    life = Life(graph)
    assert life.begun() == ["a", "b"]
    life.settle("b", 2)
    assert life.begun() == []
    life.settle("a", 1)
    assert life.begun() == ["c"]
    assert life.steps[-1].data == {"a": 1, "b": 2}


def test_a_node_that_waits_in_vain_fails_the_run() -> None:
    graph = graph_of(node_of("a", next={"x": ("b",), "y": ("c",)}), node_of("b", input={"c": ref("c")}), node_of("c"))
    life = Life(graph)
    life.begun()
    life.settle("a", branch="x")
    failure = life.plan().failure
    assert failure is not None
    assert failure.code == "GRAPH_BLOCKED"
    assert "'b' waits for the result of 'c'" in str(failure)


@pytest.mark.parametrize("branch", [None, "z"])
def test_a_branch_that_is_not_there_is_said(branch: str | None) -> None:
    life = Life(graph_of(node_of("a", next={"x": (), "y": ()})))
    life.begun()
    life.settle("a", branch=branch)
    with pytest.raises(WorkflowGraphError, match="its branches are 'x', 'y'") as caught:
        life.plan()
    assert (caught.value.code, caught.value.step_name) == ("GRAPH_BRANCH_UNKNOWN", "a")


def test_a_run_fails_for_what_failed_first() -> None:
    life = Life(graph_of(node_of("a", on_error=("b",)), node_of("b", next={"x": ()})))
    life.begun()
    life.settle("a", error="no")
    assert life.begun() == ["b"]
    life.settle("b", branch="z")
    failure = life.plan().failure
    assert failure is not None
    assert failure.code == "GRAPH_NODE_FAILED"


# -- failures ----------------------------------------------------------------------------------------------------------


def test_two_failures_are_made_up_for_by_the_same_node_each() -> None:
    graph = graph_of(
        node_of("a", on_error=("undo",)),
        node_of("b", on_error=("undo",)),
        node_of("undo", next=("tell",)),
        node_of("tell"),
        entry=("a", "b"),
    )
    life = Life(graph)
    life.begun()
    life.settle("a", error="no")
    life.settle("b", error="neither")
    assert life.begun() == ["undo", "undo#1"]
    assert [step.data["error"] for step in life.steps[2:]] == [{"message": "no"}, {"message": "neither"}]
    for name in ("undo", "undo#1"):
        life.settle(name)
    assert life.begun() == ["tell", "tell#1"]


def test_after_a_failure_only_what_makes_up_for_it_begins() -> None:
    graph = graph_of(
        node_of("a", next=("b",)),
        node_of("b"),
        node_of("c", on_error=("d",)),
        node_of("d", next=("e",)),
        node_of("e"),
        entry=("a", "c"),
    )
    life = Life(graph)
    life.begun()
    life.settle("c", error="no")
    assert life.begun() == ["d"]
    life.settle("a")
    assert life.begun() == []
    life.settle("d")
    assert life.begun() == ["e"]
    life.settle("e")
    failure = life.plan().failure
    assert failure is not None
    assert (failure.code, failure.step_name, str(failure)) == ("GRAPH_NODE_FAILED", "c", "Graph node 'c' failed: no")


def test_a_sequence_stops_when_something_else_fails() -> None:
    graph = graph_of(node_of("a", for_each=trigger("rows"), mode=SEQUENTIAL), node_of("b"), entry=("a", "b"))
    life = Life(graph, data={"rows": [1, 2]})
    assert life.begun() == ["a[0]", "b"]
    life.settle("b", error="no")
    life.settle("a[0]")
    following = life.plan()
    assert (following.begin, following.failure is not None) == ([], True)


# -- fan-outs ----------------------------------------------------------------------------------------------------------


def test_a_fan_out_goes_on_with_the_list_that_it_began_with() -> None:
    """Its source is visited again meanwhile, and comes to something else."""
    graph = graph_of(
        node_of("a", next={"more": ("b", "a"), "out": ()}), node_of("b", for_each=ref("a"), mode=SEQUENTIAL)
    )
    life = Life(graph)
    life.begun()
    life.settle("a", ["x", "y"], branch="more")
    assert life.begun() == ["b[0]", "a#1"]
    life.settle("a#1", ["z"], branch="out")
    life.settle("b[0]")
    assert life.begun() == ["b[1]"]
    assert life.steps[-1].data == "y"


def test_a_fan_out_over_itself_is_no_riddle() -> None:
    graph = graph_of(node_of("a", for_each=ref("a", default=[1]), input={"x": item()}))
    life = Life(graph)
    assert life.begun() == ["a[0]"]
    life.settle("a[0]", 2)
    following = life.plan()
    assert (following.begin, following.failure) == ([], None)


def test_two_fan_outs_over_each_other_take_turns() -> None:
    graph = graph_of(
        node_of("a", for_each=ref("b", default=[1, 2]), next=("b",)),
        node_of("b", for_each=ref("a"), next=("c",)),
        node_of("c", next={"again": ("a",), "out": ()}),
    )
    life = Life(graph)
    for visit, count in (("a", 2), ("b", 2), ("c", 1), ("a#1", 2), ("b#1", 2)):
        names = [visit] if visit == "c" else [f"{visit}[{index}]" for index in range(count)]
        assert life.begun() == names
        for name in names:
            life.settle(name, name, branch="again")
    assert [step.data for step in life.steps if step.step_name.startswith("a#1")] == ["b[0]", "b[1]"]
    assert life.begun() == ["c#1"]


def test_an_empty_list_in_a_cycle_is_remembered() -> None:
    graph = graph_of(
        node_of("a", next={"on": ("b",), "out": ()}), node_of("b", for_each=ref("a"), next=("a",)), entry=("a",)
    )
    life = Life(graph)
    life.begun()
    life.settle("a", [], branch="on")
    assert life.begun() == ["b"]
    life.settle("b", [])
    assert life.begun() == ["a#1"]
    life.settle("a#1", [5], branch="on")
    assert life.begun() == ["b#1[0]"]


def test_what_a_fan_out_goes_over_is_a_list() -> None:
    life = Life(graph_of(node_of("a", next=("b",)), node_of("b", for_each=ref("a"))))
    life.begun()
    life.settle("a", {"not": "a list"})
    with pytest.raises(WorkflowInputError, match="Graph node 'b': its for_each is a list, and not dict") as caught:
        life.plan()
    assert caught.value.step_name == "b"  # type: ignore[attr-defined]


def test_steps_that_are_none_of_the_graphs_are_left_out() -> None:
    life = Life(graph_of(node_of("a")))
    life.begin(Begin(step_name="__workflow_suspend:x", node=node_of("x"), data={}, came_from=None))
    assert life.begun() == ["a"]


def test_a_cycle_of_thousands_of_rounds_is_planned() -> None:
    life = Life(graph_of(node_of("a", next={"on": ("a",)})))
    template = Begin(step_name="a", node=node_of("a"), data={}, came_from=None)
    names = ["a", *(f"a#{number}" for number in range(1, 1500))]
    for before, name in zip([None, *names], names, strict=False):
        life.begin(replace(template, step_name=name, came_from=before))
        life.steps[-1] = replace(life.steps[-1], status="succeeded", due_at=None, branch_taken="on")
    assert life.begun() == ["a#1500"]
