"""The graph view: where nodes and edges stand."""

from __future__ import annotations

import itertools

import pytest

from console.workflows.states import State
from console.workflows.walk import MOST_NODES, Drawing, Edge, Node, Walk, place, walked
from pikku_storage.workflows.models import WorkflowRun
from tests.console.stories import Story, Try, now, order_in_flight


def walk(count: int, *edges: tuple[int, int]) -> Drawing:
    nodes = tuple(Node(name=f"n{index}", function="f", state=State.SUCCEEDED) for index in range(count))
    return place(Walk(nodes=nodes, edges=tuple(Edge(source=source, target=target) for source, target in edges)))


@pytest.mark.parametrize(
    "drawing",
    [
        walk(1),
        walk(30, *itertools.pairwise(range(30))),
        walk(8, (0, 1), (0, 2), (0, 3), (1, 4), (2, 4), (3, 4), (4, 1), (4, 5), (5, 0), (6, 7)),
        walk(20, *((0, index) for index in range(1, 20))),
    ],
    ids=["one", "a chain", "branches and a cycle", "a fan"],
)
def test_no_node_lies_on_another_and_all_are_inside(drawing: Drawing) -> None:
    for one, other in itertools.combinations(drawing.nodes, 2):
        apart = abs(one.x - other.x) >= one.width or abs(one.y - other.y) >= one.height
        assert apart, (one, other)
    for node in drawing.nodes:
        assert 0 <= node.x <= drawing.width - node.width
        assert 0 <= node.y <= drawing.height - node.height


def test_what_follows_stands_to_the_right_or_in_the_next_band() -> None:
    drawing = walk(9, *itertools.pairwise(range(9)))
    for edge in drawing.edges:
        source, target = drawing.nodes[edge.edge.source], drawing.nodes[edge.edge.target]
        assert target.x > source.x or target.y > source.y
    # A text alternative says the same.
    assert [name for node in drawing.nodes for _, name in node.leads_to] == [f"n{index}" for index in range(1, 9)]


@pytest.mark.django_db
def test_a_fan_out_is_one_node_and_a_long_path_is_cut() -> None:
    from console.workflows import reads
    from console.workflows.timeline import build_timeline

    def walk_of(run_id: str, at: int | None = None) -> Walk:
        using = WorkflowRun.objects.db
        run = reads.read_run(WorkflowRun.objects.all(), run_id)
        assert run is not None
        steps = reads.read_steps(using, [run_id])[run_id]
        timeline = build_timeline(run, steps, reads.read_attempts(using, [run_id]), now=now())
        return walked(timeline, steps, at=at)

    found = walk_of(order_in_flight(now()).tell())
    assert [node.name for node in found.nodes] == ["reserve stock", "charge card", "pack", "cool down", "book parcel"]
    assert [(edge.source, edge.target) for edge in found.edges] == [(0, 1), (1, 2), (2, 3), (3, 4)]
    assert found.nodes[2].group == "pack"
    long = Story()
    for index in range(MOST_NODES + 30):
        long.step(f"s{index}", [Try(index, index, index + 1)])
    cut = walk_of(long.tell(), at=5)
    assert (len(cut.nodes), cut.hidden) == (MOST_NODES, 30)
    assert [node.state for node in cut.nodes[:3]] == [State.SUCCEEDED, State.RUNNING, State.QUEUED]
