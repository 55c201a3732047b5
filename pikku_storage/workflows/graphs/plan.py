"""What comes next in a run of a graph: a pure function of its structure and its steps (contract services.md §1.10).

* A node's visit that succeeded leads on over `next`, and over the branch that was chosen if it depends on one.
* An edge is taken once. Nodes where ways meet are visited once, but again on each round of a cycle.
* A node waits for the results that it refers to.
* A visit that failed leads to its `on_error` nodes and what follows them, and to nothing else. Then the run fails.

An edge that was taken is known by the steps it led to: their names are unique in the run and they say where they came
from. So this may be asked any number of times, by any number of workers, and after any crash.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from pikku_storage.exceptions import PayloadError, WorkflowGraphError, WorkflowInputError
from pikku_storage.json import Json
from pikku_storage.workflows.compensation import compensation_of
from pikku_storage.workflows.errors import GRAPH_BLOCKED, GRAPH_BRANCH_UNKNOWN, GRAPH_NODE_FAILED, at_step
from pikku_storage.workflows.graphs.structure import SEQUENTIAL, Graph, Node
from pikku_storage.workflows.graphs.validation import dependencies_of
from pikku_storage.workflows.graphs.values import ITEM, TRIGGER, UnresolvedError, resolve
from pikku_storage.workflows.graphs.visits import Visit, visits_in
from pikku_storage.workflows.records import Run, StepState


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """A step to be begun: `data` is what its function is given. `group` is shared by the steps of a fan-out."""

    step_name: str
    node: Node
    data: Json
    came_from: str | None
    group: str | None = None
    is_empty: bool = False
    """Whether it stands for a fan-out over nothing, so that there is nothing to call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to begin, and which steps are under way. Without either, the run is over: `failure`, or `output`."""

    begin: list[Begin]
    under_way: list[StepState]
    failure: WorkflowGraphError | None = None
    output: Json = None


def plan(graph: Graph, run: Run, steps: Iterable[StepState]) -> Plan:
    """What comes next. Raises `WorkflowInputError` for what a node would be given and cannot be, `WorkflowGraphError`
    for a branch that the graph does not know: mistakes that nothing can mend."""
    return _Planner(graph, run, steps).plan()


@dataclass(slots=True)
class _Way:
    """How a visit was reached. A back edge begins a new round, and a failure a way of its own."""

    round: int = 0
    failure: str | None = None


@dataclass(slots=True)
class _Taken:
    """The edges and the meetings that there have been."""

    edges: set[tuple[str | None, str]] = field(default_factory=set)
    meetings: set[tuple[str | None, str, int | None]] = field(default_factory=set)


class _Planner:
    def __init__(self, graph: Graph, run: Run, steps: Iterable[StepState]) -> None:
        self.graph = graph
        self.run = run
        self.visits = visits_in(graph, steps)
        start = run.wire.get("startNode")
        self.entry = graph.entry if start is None else (start,)
        self.failures = [step for visit in self.visits.values() if (step := visit.failed_step) is not None]
        self.begin: list[Begin] = []
        self.blocked: dict[str, str] = {}
        self._by_node: defaultdict[str, list[Visit]] = defaultdict(list)
        for visit in sorted(self.visits.values(), key=lambda visit: visit.ordinal):
            self._by_node[visit.node.name].append(visit)
        self._ways: dict[str, _Way] = {}
        self._succeeded: dict[str, bool] = {}
        self._now = _Scope(self, None)
        self._new_names: set[str] = set()
        self._taken = _Taken()
        for visit in self.visits.values():
            self._note(visit.came_from, visit.node, self._way_of(visit))

    def plan(self) -> Plan:
        """See `plan`."""
        if not self.failures:
            for name in self.entry:
                self._take(None, name)
        for visit in list(self.visits.values()):
            if self._go_on_with_items(visit) or visit.is_open:
                continue
            if visit.failed_step is not None:
                for target in visit.node.on_error:
                    self._take(visit, target)
            elif self._leads_on(visit) and self.has_succeeded(visit):
                for target in self._next_of(visit):
                    self._take(visit, target)
        under_way = [step for visit in self.visits.values() for step in visit.steps.values() if not step.is_settled]
        if self.begin or under_way:
            return Plan(begin=self.begin, under_way=under_way)
        failure = self._failure()
        output = None if failure else self._resolve(self.graph.output, self._now, "output")
        return Plan(begin=[], under_way=[], failure=failure, output=output)

    def _leads_on(self, visit: Visit) -> bool:
        """Once something failed, only what came of a failure goes on."""
        return not self.failures or self._way_of(visit).failure is not None

    def _failure(self) -> WorkflowGraphError | None:
        if self.failures:
            step = min(self.failures, key=lambda failed: (failed.updated_at, failed.step_name))
            message = (step.error or {}).get("message") or "Unknown error"
            return WorkflowGraphError(
                GRAPH_NODE_FAILED, f"Graph node '{step.step_name}' failed: {message}", step_name=step.step_name
            )
        for name, waits_for in self.blocked.items():
            return WorkflowGraphError(
                GRAPH_BLOCKED,
                f"Graph node '{name}' waits for the result of '{waits_for}', which will not come. Give the reference a "
                "default if the node can do without.",
            )
        return None

    # -- edges ---------------------------------------------------------------------------------------------------------

    def _next_of(self, visit: Visit) -> Iterable[str]:
        branches = visit.node.branches
        if branches is None:
            return visit.node.next
        if self.failures and visit.branch not in branches:
            # The run fails for what failed first.
            return ()
        if visit.branch is None or visit.branch not in branches:
            chosen = "no branch" if visit.branch is None else f"the branch {visit.branch!r}"
            raise WorkflowGraphError(
                GRAPH_BRANCH_UNKNOWN,
                f"Graph node '{visit.name}' chose {chosen}; its branches are {', '.join(map(repr, sorted(branches)))}. "
                "A function chooses with current_step().branch(key).",
                step_name=visit.name,
            )
        return branches[visit.branch]

    def _take(self, source: Visit | None, target: str) -> None:
        """Take an edge, unless it was taken, its target was reached another way, or is not ready."""
        came_from = None if source is None else source.name
        if (came_from, target) in self._taken.edges:
            return
        node = self.graph.nodes[target]
        way = self._way_along(source, node)
        is_first_of_failure = source is not None and source.failed_step is not None
        if not is_first_of_failure and self._meeting(source, node, way) in self._taken.meetings:
            return
        for waits_for in dependencies_of(node):
            if waits_for not in self._now:
                self.blocked.setdefault(target, waits_for)
                return
        self._visit(node, source, came_from)
        self._note(came_from, node, way)

    def _visit(self, node: Node, source: Visit | None, came_from: str | None) -> None:
        name = self._new_name(node.name)
        if node.for_each is None:
            data = self._input(node, source, self._now, name)
            self.begin.append(Begin(step_name=name, node=node, data=data, came_from=came_from))
            return
        items = self._items(node, self._now, name)
        if not items:
            self.begin.append(Begin(step_name=name, node=node, data={}, came_from=came_from, is_empty=True))
        for index, element in enumerate(items[:1] if node.mode == SEQUENTIAL else items):
            self._begin_item(node, source, came_from, name, index, self._now.with_item(element))

    def _go_on_with_items(self, visit: Visit) -> bool:
        """Begin the items of a fan-out that follow, and those that a crash kept from being begun with the others;
        whether there are any."""
        if not visit.is_of_items or (visit.node.mode == SEQUENTIAL and not self._leads_on(visit)):
            return False
        scope = self._scope_of(visit)
        items = self._items(visit.node, scope, visit.name)
        source = self.visits.get(visit.came_from or "")
        missing = visit.missing(len(items))
        for index in missing:
            self._begin_item(visit.node, source, visit.came_from, visit.name, index, scope.with_item(items[index]))
        return bool(missing)

    def _begin_item(
        self, node: Node, source: Visit | None, came_from: str | None, name: str, index: int, scope: Mapping[str, Json]
    ) -> None:
        step_name = f"{name}[{index}]"
        data = self._input(node, source, scope, step_name)
        self.begin.append(Begin(step_name=step_name, node=node, data=data, came_from=came_from, group=name))

    def _new_name(self, node: str) -> str:
        name, ordinal = node, 0
        while name in self.visits or name in self._new_names:
            ordinal += 1
            name = f"{node}#{ordinal}"
        self._new_names.add(name)
        return name

    # -- ways ----------------------------------------------------------------------------------------------------------

    def _way_of(self, visit: Visit) -> _Way:
        """How a visit was reached: along the visits that led to it."""
        behind: list[Visit] = []
        current: Visit | None = visit
        while current is not None and current.name not in self._ways:
            behind.append(current)
            current = self.visits.get(current.came_from or "")
        while behind:
            visit = behind.pop()
            self._ways[visit.name] = self._way_along(self.visits.get(visit.came_from or ""), visit.node)
        return self._ways[visit.name]

    def _way_along(self, source: Visit | None, target: Node) -> _Way:
        if source is None:
            return _Way()
        behind = self._way_of(source)
        if source.failed_step is not None:
            return _Way(behind.round, source.name)
        return _Way(behind.round + ((source.node.name, target.name) in self.graph.back_edges), behind.failure)

    def _meeting(self, source: Visit | None, target: Node, way: _Way) -> tuple[str | None, str, int | None]:
        """What two ways have in common that meet at `target`: one of them goes on. Within a cycle they meet on each
        round."""
        turns = source is not None and self.graph.in_one_cycle(source.node.name, target.name)
        return way.failure, target.name, way.round if turns else None

    def _note(self, came_from: str | None, node: Node, way: _Way) -> None:
        self._taken.edges.add((came_from, node.name))
        self._taken.meetings |= {(way.failure, node.name, way.round), (way.failure, node.name, None)}

    # -- values --------------------------------------------------------------------------------------------------------

    def has_succeeded(self, visit: Visit) -> bool:
        """Whether all of a visit's steps are there, and have succeeded."""
        if visit.name not in self._succeeded:
            # A fan-out that is asked about while its own elements are looked up is no source of them.
            self._succeeded[visit.name] = False
            self._succeeded[visit.name] = self._is_complete(visit)
        return self._succeeded[visit.name]

    def _is_complete(self, visit: Visit) -> bool:
        if visit.is_open or visit.failed_step is not None:
            return False
        if not visit.is_of_items:
            return True
        return len(visit.steps) >= len(self._items(visit.node, self._scope_of(visit), visit.name))

    def source_of(self, name: str, moment: datetime | None, *, is_optional: bool) -> Visit | None:
        """The visit whose result a reference to that node means: the latest, or the latest at that moment."""
        visits = self._by_node.get(name, [])
        then = [visit for visit in visits if moment is None or visit.ended_at <= moment]
        if not then and not is_optional:
            # It waited for one, which clocks of two workers may put a little later.
            then = visits[:1]
        return next((visit for visit in reversed(then) if self.has_succeeded(visit)), None)

    def _scope_of(self, visit: Visit) -> _Scope:
        return _Scope(self, visit.begun_at, is_optional="default" in visit.node.for_each)

    def _items(self, node: Node, scope: Mapping[str, Json], name: str) -> list[Json]:
        items = self._resolve(node.for_each, scope, name)
        if not isinstance(items, list):
            raise _input_error(name, f"its for_each is a list, and not {type(items).__name__}")
        return items

    def _input(self, node: Node, source: Visit | None, scope: Mapping[str, Json], name: str) -> Json:
        """What a step is given: the node's input; without one the element, what failed, or the run's input."""
        if node.input is not None:
            return self._resolve(node.input, scope, name)
        if ITEM in scope:
            return scope[ITEM]
        failed = None if source is None else source.failed_step
        if failed is not None:
            return compensation_of(failed, failed.error)
        return self.run.input or {} if node.name in self.entry else {}

    def _resolve(self, value: Json, scope: Mapping[str, Json], name: str) -> Json:
        try:
            return resolve(value, scope)
        except UnresolvedError as error:
            raise _input_error(name, str(error)) from None


class _Scope(Mapping[str, Json]):
    """What references mean, looked up when they are. With a moment it is what they meant then: a fan-out is about the
    list that it began with, whatever its source came to later."""

    def __init__(self, planner: _Planner, moment: datetime | None, *, is_optional: bool = False) -> None:
        self._planner = planner
        self._moment = moment
        self._is_optional = is_optional
        self._found: dict[str, Json] = {TRIGGER: planner.run.input}
        self._around: _Scope | None = None

    def with_item(self, element: Json) -> _Scope:
        """This scope, with an element of a list."""
        scope = _Scope(self._planner, self._moment)
        scope._around = self
        scope._found = {ITEM: element}
        return scope

    def __getitem__(self, name: str) -> Json:
        if name not in self._found and self._around is not None:
            return self._around[name]
        if name not in self._found:
            visit = self._planner.source_of(name, self._moment, is_optional=self._is_optional)
            if visit is None:
                raise KeyError(name)
            self._found[name] = visit.result
        return self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter((*self._found, *self._planner.graph.nodes))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _input_error(name: str, message: str) -> PayloadError | WorkflowInputError:
    return at_step(name, WorkflowInputError(f"Graph node '{name}': {message}"))
