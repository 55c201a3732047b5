"""What makes a graph unfit to run, said before there is a run of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from pikku_storage.exceptions import PayloadError, WorkflowGraphError
from pikku_storage.json import Json, to_text
from pikku_storage.workflows.definitions import STEP_NAME_LENGTH
from pikku_storage.workflows.errors import GRAPH_INVALID
from pikku_storage.workflows.graphs.structure import MODES, PARALLEL, Graph, Node
from pikku_storage.workflows.graphs.values import ITEM, RESERVED, UNKNOWN, references_in

_AMBIGUOUS = re.compile(r"[#\[\]$]")


def loaded(name: str, stored: Json) -> Graph:
    """A graph as a version keeps it; raises `WorkflowGraphError` if that cannot be run. Another program may have stored
    it."""
    try:
        graph = Graph.from_json(name, stored)
        problem = next(_problems(graph), None)
    except (AttributeError, KeyError, TypeError) as error:
        problem = f"it is malformed ({type(error).__name__}: {error})"
    if problem is not None:
        raise WorkflowGraphError(GRAPH_INVALID, f"The stored graph {name!r} cannot be run: {problem}")
    return graph


def _problems(graph: Graph) -> Iterator[str]:
    for name in graph.entry:
        if name not in graph.nodes:
            yield f"the entry node {name!r} is not defined"
    for name, node in graph.nodes.items():
        for problem in (*_problems_of_name(name), *_problems_of_edges(graph, node), *_problems_of_values(graph, node)):
            yield f"node {name!r}: {problem}"
    for reference in references_in(graph.output):
        if reference["$ref"] not in {*graph.nodes, *RESERVED}:
            yield f"the output refers to the unknown node {reference['$ref']!r}"


def _problems_of_name(name: str) -> Iterator[str]:
    try:
        to_text(name, root="name", longest=STEP_NAME_LENGTH)
    except PayloadError as error:
        yield f"its name {error.reason}"
    if name in RESERVED:
        yield "the name is taken by a reference of its own"
    if _AMBIGUOUS.search(name):
        yield "its name is ambiguous: steps are called 'node#1' and 'node[0]', so '#', '[', ']' and '$' cannot be in it"


def _problems_of_edges(graph: Graph, node: Node) -> Iterator[str]:
    for target in node.successors:
        if target not in graph.nodes:
            yield f"it leads to the unknown node {target!r}"
    for target in node.on_error:
        if target not in graph.nodes:
            yield f"its on_error names the unknown node {target!r}"
    if node.mode not in MODES:
        yield f"its mode is {node.mode!r}, and not one of {', '.join(map(repr, MODES))}"
    if node.for_each is None and node.mode != PARALLEL:
        yield "it has a mode and no for_each"
    if node.for_each is not None and node.branches is not None:
        yield "it has for_each, so its steps cannot choose a branch"


def _problems_of_values(graph: Graph, node: Node) -> Iterator[str]:
    known = {*graph.nodes, *RESERVED}
    for place, value in (("input", node.input), ("for_each", node.for_each)):
        for reference in references_in(value):
            if reference["$ref"] not in known:
                yield f"its {place} refers to the unknown node {reference['$ref']!r}"
    if node.for_each is not None and not (isinstance(node.for_each, Mapping) and "$ref" in node.for_each):
        yield "its for_each is no reference to a list"


def problem_of_declaration(graph: Graph) -> str | None:
    """The first thing that is wrong with a graph, naming the node: what could not be run, would never run, or never
    end."""
    return next(_problems(graph), None) or next(_mistakes(graph), None)


def _mistakes(graph: Graph) -> Iterator[str]:
    if not graph.nodes:
        yield "it has no nodes"
    if not graph.entry:
        yield "it has no entry node"
    for name in graph.entry:
        for waits_for in dependencies_of(graph.nodes[name]):
            yield f"node {name!r}: a run cannot begin with it, because it waits for {waits_for!r}"
    for name in sorted(set(graph.nodes) - set(graph.in_order)):
        yield f"node {name!r}: it can never be reached from {', '.join(map(repr, graph.entry))}"
    for name, node in graph.nodes.items():
        for target in node.on_error:
            if name in graph.walk(target, errors=True):
                yield f"node {name!r}: its on_error leads back to it by way of {target!r}"
        if _goes_round_for_ever(graph, name):
            yield f"node {name!r}: it is part of a cycle that no branch leaves"
        for value in (node.input, node.for_each):
            yield from (f"node {name!r}: {mistake}" for mistake in _mistakes_of_references(node, value))
    yield from _mistakes_of_references(None, graph.output)


def _mistakes_of_references(node: Node | None, value: object) -> Iterator[str]:
    for reference in references_in(value):
        if reference["$ref"] == UNKNOWN:
            yield "a template has a placeholder without a reference"
        if reference["$ref"] == ITEM and (node is None or node.for_each is None or value is node.for_each):
            yield "item() has a meaning in the input of a node with for_each only"


def _goes_round_for_ever(graph: Graph, name: str) -> bool:
    """Whether a node comes to itself again over edges that depend on no branch."""
    seen: set[str] = set()
    queue = [name]
    for current in queue:
        node = graph.nodes[current]
        for target in () if node.branches is not None else node.successors:
            if target == name:
                return True
            if target not in seen:
                seen.add(target)
                queue.append(target)
    return False


def dependencies_of(node: Node) -> list[str]:
    """The nodes whose results this one waits for, sorted."""
    references = [*references_in(node.input), *references_in(node.for_each)]
    return sorted({each["$ref"] for each in references if "default" not in each} - RESERVED)
