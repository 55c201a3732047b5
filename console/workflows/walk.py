"""A run, or its graph, as nodes and edges in place: what the graph view draws. Pure functions.

Nodes stand in columns by how many others lead to them, and the columns go on in a new band where a row of them is full,
as text does. Sizes are those of the SVG's view box.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from django.utils.translation import gettext

from console.formatting import shorten
from console.workflows.records import StepRow
from console.workflows.states import State, state_of, state_of_group
from console.workflows.timeline import Lane, Timeline, at_moment
from pikku_storage.workflows.gates import shown_name
from pikku_storage.workflows.graphs.view import GraphView
from pikku_storage.workflows.timeline import reconstruct_state_at

MOST_NODES = 40
_NAMES = 100
"""So many steps of one node are told to the script that recolours it."""
_COLUMNS = 6
_WIDTH, _HEIGHT = 156, 56
_GAP_X, _GAP_Y = 46, 18
_BAND_GAP = 34
_LETTERS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A step, a fan-out or a node of a graph. `steps` are its steps' names, in order; `group` is that of a fan-out."""

    name: str
    function: str
    state: State
    step_id: str = ""
    steps: tuple[str, ...] = ()
    group: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """A way from one node to another, by their numbers. `label` says when it is taken."""

    source: int
    target: int
    label: str = ""
    is_error: bool = False
    is_taken: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Walk:
    """Nodes in the order in which one reads them. `hidden` nodes are left out."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    hidden: int = 0
    mermaid: str = ""


@dataclass(frozen=True, slots=True)
class PlacedNode:
    """A node with the corner of its box, and what fits into it."""

    node: Node
    x: int
    y: int
    leads_to: tuple[tuple[Edge, str], ...] = ()
    """Its edges, with the names of those that they lead to: the graph in words."""
    width: int = _WIDTH
    height: int = _HEIGHT

    @property
    def short_name(self) -> str:
        """The name as far as it fits."""
        return shorten(shown_name(self.node.name), _LETTERS)

    @property
    def short_function(self) -> str:
        """The function's name as far as it fits."""
        return shorten(self.node.function, _LETTERS + 3)


@dataclass(frozen=True, slots=True)
class PlacedEdge:
    """An edge as the path of a line, and where its label stands."""

    edge: Edge
    path: str
    x: int
    y: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """What the template draws."""

    nodes: tuple[PlacedNode, ...]
    edges: tuple[PlacedEdge, ...]
    width: int
    height: int
    hidden: int
    mermaid: str


def walked(timeline: Timeline, steps: Iterable[StepRow], *, at: int | None = None) -> Walk:
    """The path that a run took: its steps, fan-outs as one, each with what it came from."""
    lanes: Sequence[Lane] = timeline.lanes
    if at is not None:
        state = reconstruct_state_at(timeline.events, at)
        lanes = [at_moment(lane, state) for lane in lanes]
    shown = lanes[:MOST_NODES]
    number = {step.name: index for index, lane in enumerate(shown) for step in lane.walk()}
    number |= {lane.name: index for index, lane in enumerate(shown) if lane.children}
    origins = {step.step_name: step.from_step_name for step in steps}
    edges: dict[tuple[int, int], Edge] = {}
    for index, lane in enumerate(shown):
        for step in lane.walk():
            source = number.get(step.compensates or origins.get(step.name) or "")
            if source is not None and source != index:
                edges.setdefault(
                    (source, index),
                    Edge(
                        source=source,
                        target=index,
                        label=gettext("undone by") if step.compensates else "",
                        is_error=step.compensates is not None,
                        is_taken=State.UNREACHED not in {lane.state, shown[source].state},
                    ),
                )
    return Walk(
        nodes=tuple(
            Node(
                name=lane.name,
                function=lane.function,
                state=lane.state,
                step_id=lane.step_id or next((child.step_id or "" for child in lane.children), ""),
                steps=() if lane.children else (lane.name,),
                group=lane.name if lane.children else "",
            )
            for lane in shown
        ),
        edges=tuple(edges.values()),
        hidden=len(lanes) - len(shown),
    )


def of_graph(view: GraphView, timeline: Timeline, *, at: int | None = None) -> Walk:
    """A graph with all its nodes, those that the run has not reached as well."""
    lanes = {lane.name: lane for lane in timeline.steps()}
    if at is not None:
        state = reconstruct_state_at(timeline.events, at)
        lanes = {name: at_moment(lane, state) for name, lane in lanes.items()}
    shown = view.nodes[:MOST_NODES]
    number = {node.name: index for index, node in enumerate(shown)}
    nodes = []
    for node in shown:
        visited = [lanes[name] for name in node.steps if name in lanes]
        nodes.append(
            Node(
                name=node.name,
                function=node.function,
                state=_state_of_node(node.status, visited, items=node.has_items, at=at),
                step_id=next((lane.step_id or "" for lane in reversed(visited)), ""),
                steps=node.steps[-_NAMES:],
                group=node.name if node.has_items else "",
            )
        )
    reached = {node.name for node in nodes if node.state is not State.UNREACHED}
    return Walk(
        nodes=tuple(nodes),
        edges=tuple(
            Edge(
                source=number[edge.source],
                target=number[edge.target],
                label=_label(edge.branch, edge.is_error, edge.taken),
                is_error=edge.is_error,
                is_taken=edge.taken > 0 and {edge.source, edge.target} <= reached,
            )
            for edge in view.edges
            if edge.source in number and edge.target in number
        ),
        hidden=len(view.nodes) - len(shown),
        mermaid=view.to_mermaid(),
    )


def _state_of_node(status: str | None, visited: Sequence[Lane], *, items: bool, at: int | None) -> State:
    if at is None:
        return State.UNREACHED if status is None else state_of(status)
    states = [lane.state for lane in visited]
    if items and states:
        return state_of_group(states)
    # Of a node that was visited several times, the last visit that had begun.
    return next((state for state in reversed(states) if state is not State.UNREACHED), State.UNREACHED)


def _label(branch: str | None, is_error: bool, taken: int) -> str:
    text = gettext("on error") if is_error else "" if branch is None else branch
    return f"{text} ({taken}×)".strip() if taken > 1 else text  # noqa: RUF001 - the sign of multiplication is meant


def place(walk: Walk) -> Drawing:
    """The walk with everything in its place."""
    columns = _columns(walk)
    rows = _rows(walk, columns)
    band_rows: dict[int, int] = defaultdict(int)
    for index, column in enumerate(columns):
        band_rows[column // _COLUMNS] = max(band_rows[column // _COLUMNS], rows[index] + 1)
    tops = _tops(band_rows)
    corners = [
        (
            _GAP_X // 2 + column % _COLUMNS * (_WIDTH + _GAP_X),
            tops[column // _COLUMNS] + rows[index] * (_HEIGHT + _GAP_Y),
        )
        for index, column in enumerate(columns)
    ]
    leads_to: Mapping[int, list[tuple[Edge, str]]] = defaultdict(list)
    for edge in walk.edges:
        leads_to[edge.source].append((edge, walk.nodes[edge.target].name))
    return Drawing(
        nodes=tuple(
            PlacedNode(node, *corner, tuple(leads_to[index]))
            for index, (node, corner) in enumerate(zip(walk.nodes, corners, strict=True))
        ),
        edges=tuple(_place_edge(edge, corners) for edge in walk.edges),
        width=max((x for x, _ in corners), default=0) + _WIDTH + _GAP_X // 2,
        height=max((y for _, y in corners), default=0) + _HEIGHT + _BAND_GAP // 2,
        hidden=walk.hidden,
        mermaid=walk.mermaid,
    )


def _columns(walk: Walk) -> list[int]:
    """How many nodes stand before each; what leads back to one that is read earlier does not count."""
    columns = [0] * len(walk.nodes)
    incoming: Mapping[int, list[int]] = defaultdict(list)
    for edge in walk.edges:
        if edge.source < edge.target:
            incoming[edge.target].append(edge.source)
    for index in range(len(columns)):
        columns[index] = max((columns[source] + 1 for source in incoming[index]), default=0)
    return columns


@dataclass(slots=True)
class _Taken:
    places: set[tuple[int, int]] = field(default_factory=set)

    def first_free(self, column: int, row: int) -> int:
        while (column, row) in self.places:
            row += 1
        self.places.add((column, row))
        return row


def _rows(walk: Walk, columns: Sequence[int]) -> list[int]:
    """The row of each node within its band: that of what leads to it, or the next one that is free."""
    sources: dict[int, int] = {}
    for edge in walk.edges:
        if edge.source < edge.target:
            sources.setdefault(edge.target, edge.source)
    taken, rows = _Taken(), [0] * len(columns)
    for index, column in enumerate(columns):
        source = sources.get(index)
        same_band = source is not None and columns[source] // _COLUMNS == column // _COLUMNS
        rows[index] = taken.first_free(column, rows[source] if source is not None and same_band else 0)
    return rows


def _tops(band_rows: Mapping[int, int]) -> dict[int, int]:
    tops, top = {}, _BAND_GAP // 2
    for band in sorted(band_rows):
        tops[band] = top
        top += band_rows[band] * (_HEIGHT + _GAP_Y) - _GAP_Y + _BAND_GAP
    return tops


def _place_edge(edge: Edge, corners: Sequence[tuple[int, int]]) -> PlacedEdge:
    (from_x, from_y), (to_x, to_y) = corners[edge.source], corners[edge.target]
    middle = _HEIGHT // 2
    if to_x > from_x and abs(to_y - from_y) < 6 * _HEIGHT:
        start_x, start_y, end_x, end_y = from_x + _WIDTH, from_y + middle, to_x, to_y + middle
        bend = max(12, (end_x - start_x) // 2)
        path = f"M{start_x},{start_y}C{start_x + bend},{start_y} {end_x - bend},{end_y} {end_x - 5},{end_y}"
    else:
        # Into the next band, or back: out at the bottom, and in from above or from below.
        start_x, start_y = from_x + _WIDTH // 2, from_y + _HEIGHT
        is_down = to_y > from_y
        end_x, end_y = to_x + _WIDTH // 2, to_y if is_down else to_y + _HEIGHT
        bend = _BAND_GAP if is_down else _BAND_GAP + 10
        end_bend = end_y - bend if is_down else end_y + bend
        tip = end_y - 5 if is_down else end_y + 5
        path = f"M{start_x},{start_y}C{start_x},{start_y + bend} {end_x},{end_bend} {end_x},{tip}"
    return PlacedEdge(edge, path, (start_x + end_x) // 2, (start_y + end_y) // 2 - 4)
