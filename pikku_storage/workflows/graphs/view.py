"""A graph as one looks at it: its nodes and edges, and how far each of them is in a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pikku_storage.workflows.graphs.mermaid import flowchart
from pikku_storage.workflows.graphs.structure import Graph, Node
from pikku_storage.workflows.graphs.visits import Visit, visits_in
from pikku_storage.workflows.records import StepState
from pikku_storage.workflows.statuses import StepStatus

_OPEN = (StepStatus.RUNNING, StepStatus.SCHEDULED, StepStatus.PENDING)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """A node. `status` is that of its latest visit, `None` before the first; `steps` are the names of all its steps."""

    name: str
    function: str
    is_entry: bool
    has_items: bool
    status: str | None
    steps: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeView:
    """An edge. `branch` is the key that leads along it, `taken` how often a run went along it."""

    source: str
    target: str
    branch: str | None
    is_error: bool
    taken: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphView:
    """All nodes and edges, in the order in which one reads them."""

    name: str
    nodes: tuple[NodeView, ...]
    edges: tuple[EdgeView, ...]

    def to_mermaid(self) -> str:
        """The text of a [Mermaid](https://mermaid.js.org) flowchart; error edges are dotted."""
        return flowchart(self)


def view_of(graph: Graph, steps: Iterable[StepState] = ()) -> GraphView:
    """The graph, and what these steps of a run say about it."""
    visits = visits_in(graph, steps)
    taken = Counter(_edges_taken(visits))
    latest = {visit.node.name: visit for visit in sorted(visits.values(), key=lambda visit: visit.ordinal)}
    nodes = tuple(
        NodeView(
            name=name,
            function=graph.nodes[name].function,
            is_entry=name in graph.entry,
            has_items=graph.nodes[name].for_each is not None,
            status=_status_of(latest[name]) if name in latest else None,
            steps=tuple(
                step.step_name for visit in visits.values() if visit.node.name == name for step in visit.steps.values()
            ),
        )
        for name in graph.in_order
    )
    edges = tuple(
        EdgeView(
            source=name, target=target, branch=branch, is_error=is_error, taken=taken[name, target, branch, is_error]
        )
        for name in graph.in_order
        for target, branch, is_error in _edges_of(graph.nodes[name])
    )
    return GraphView(name=graph.name, nodes=nodes, edges=edges)


def _edges_of(node: Node) -> Iterator[tuple[str, str | None, bool]]:
    ways = {None: node.next} if node.branches is None else {key: node.branches[key] for key in sorted(node.branches)}
    for branch, targets in ways.items():
        yield from ((target, branch, False) for target in targets)
    yield from ((target, None, True) for target in node.on_error)


def _edges_taken(visits: dict[str, Visit]) -> Iterator[tuple[str, str, str | None, bool]]:
    for visit in visits.values():
        source = visits.get(visit.came_from or "")
        if source is not None:
            is_error = source.failed_step is not None
            branch = None if is_error or source.node.branches is None else source.branch
            yield source.node.name, visit.node.name, branch, is_error


def _status_of(visit: Visit) -> str:
    if visit.failed_step is not None:
        return StepStatus.FAILED.value
    statuses = {step.status for step in visit.steps.values() if not step.is_settled}
    for status in _OPEN:
        if status in statuses:
            return status.value
    # What failed and is not settled is tried again.
    return (StepStatus.SCHEDULED if statuses else StepStatus.SUCCEEDED).value
