"""`graph` and `node`: how a graph is written down."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pikku_storage.durations import Duration
from pikku_storage.exceptions import PayloadError, WorkflowInputError, WorkflowRegistrationError
from pikku_storage.json import Json, to_json, to_text
from pikku_storage.retry import RetryPolicy
from pikku_storage.workflows.compensation import COMPENSATION_ARGUMENTS
from pikku_storage.workflows.definitions import (
    NAME_LENGTH,
    BaseWorkflow,
    FunctionDefinition,
    WorkflowDefinition,
    to_timeout,
)
from pikku_storage.workflows.graphs.structure import GRAPH_SOURCE, PARALLEL, Graph, Node, targets_of
from pikku_storage.workflows.graphs.validation import problem_of_declaration
from pikku_storage.workflows.graphs.values import TRIGGER, UnresolvedError, references_in, resolve
from pikku_storage.workflows.graphs.view import view_of
from pikku_storage.workflows.limits import Deadline
from pikku_storage.workflows.registry import registry

if TYPE_CHECKING:
    from pikku_storage.workflows.handle import WorkflowRunHandle

Next = str | Collection[str] | Mapping[str, str | Collection[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDeclaration:
    """What `node` was given; its name comes from the graph."""

    function: FunctionDefinition[..., Any] | BaseWorkflow | str
    input: Any
    next: Next
    on_error: str | Collection[str]
    for_each: Any
    mode: str
    retries: int | None
    retry_delay: Duration | None
    timeout: Duration | None

    def named(self, name: str) -> Node:
        """The node of that name; raises `PayloadError` and `ValueError` for what cannot be one."""
        policy = RetryPolicy.of(self.retries, self.retry_delay)
        function = self.function if isinstance(self.function, str) else self.function.name
        return Node(
            name=name,
            function=to_text(function, root="function", longest=NAME_LENGTH),
            input=None if self.input is None else to_json(self.input, root="$input"),
            next={key: targets_of(targets) for key, targets in self.next.items()}
            if isinstance(self.next, Mapping)
            else targets_of(self.next),
            on_error=targets_of(self.on_error),
            for_each=None if self.for_each is None else to_json(self.for_each, root="$for_each"),
            mode=self.mode,
            retries=policy.retries,
            retry_delay=policy.delay,
            timeout_ms=None if self.timeout is None else to_timeout(self.timeout),
        )


def node(
    function: FunctionDefinition[..., Any] | BaseWorkflow | str,
    *,
    input: Any = None,
    next: Next = (),
    on_error: str | Collection[str] = (),
    for_each: Mapping[str, Any] | None = None,
    mode: str = PARALLEL,
    retries: int | None = None,
    retry_delay: Duration | None = None,
    timeout: Duration | None = None,
) -> NodeDeclaration:
    """A node of a `graph`: a `@function` or a workflow, or its name, and where it leads. A workflow's step is done by a
    run of its own, a child of the graph's run.

    * `input`: its keyword arguments, with `ref`, `trigger`, `item` and `template` in them. Without one, a node is given
      the element with `for_each`, what failed if it is reached by `on_error`, the run's input if runs begin with it,
      and nothing otherwise.
    * `next`: the node or nodes that follow, or a mapping of them by the key that the function chooses with
      `current_step().branch(key)`.
    * `on_error`: the node or nodes that follow if it fails for good. The run fails all the same, when they have ended.
    * `for_each`: a reference to a list. The node has one step for each element, `parallel` or `sequential` as `mode`
      says, and its result is the list of theirs.
    * `retries`, `retry_delay`, `timeout`: in place of the function's own. A workflow has no timeout, and no retries
      unless they are given.
    """
    return NodeDeclaration(
        function=function,
        input=input,
        next=next,
        on_error=on_error,
        for_each=for_each,
        mode=mode,
        retries=retries,
        retry_delay=retry_delay,
        timeout=timeout,
    )


def graph(
    name: str, *, nodes: Mapping[str, NodeDeclaration], entry: str | Collection[str], output: Any = None
) -> GraphDefinition:
    """A workflow that is drawn: nodes by name, and the one or ones that a run begins with.

    `output` is what a completed run answers with, with references in it. Raises `WorkflowRegistrationError`, naming the
    node, for whatever is wrong.
    """
    frame = inspect.currentframe()
    caller = None if frame is None else frame.f_back
    place = "?" if caller is None else f"{caller.f_globals.get('__name__')} (line {caller.f_lineno})"
    definition = GraphDefinition(name, nodes, entry, output, source_place=place)
    registry.add_workflow(definition)
    return definition


class GraphDefinition(BaseWorkflow):
    """A workflow that is a graph of nodes."""

    kind = "graph"
    version_source = GRAPH_SOURCE

    def __init__(
        self,
        name: str,
        nodes: Mapping[str, NodeDeclaration],
        entry: str | Collection[str],
        output: Any = None,
        *,
        source_place: str,
    ) -> None:
        self._place = source_place
        try:
            self.name = to_text(name, root="name", longest=NAME_LENGTH)
            plain_output = None if output is None else to_json(output, root="$output")
        except PayloadError as error:
            raise WorkflowRegistrationError(f"{source_place}: graph {name!r:.80}: {error}") from None
        built = {key: self._built(key, declared) for key, declared in nodes.items()}
        self.structure = Graph(self.name, built, targets_of(entry), plain_output)
        """The nodes and edges, as a run goes by them."""
        self.entries = self.structure.entry
        for problem in (problem_of_declaration(self.structure), *self._unfit_functions(nodes)):
            if problem is not None:
                raise self._error(problem)

    def __repr__(self) -> str:
        return f"<graph {self.name}>"

    @property
    def source_place(self) -> str:
        """See `BaseWorkflow.source_place`."""
        return self._place

    @property
    def graph_hash(self) -> str:
        """The version: a hash of the structure."""
        return self.structure.hash

    @property
    def graph(self) -> dict[str, Any]:
        """See `BaseWorkflow.graph`. A run goes on with this, whatever the code says by then."""
        return self.structure.to_json()

    def to_mermaid(self) -> str:
        """The graph as a [Mermaid](https://mermaid.js.org) flowchart."""
        return view_of(self.structure).to_mermaid()

    def check(self, data: Mapping[str, Any]) -> None:
        """Raise `WorkflowInputError` unless `data` has what the nodes take from the run's input."""
        for place, value in self._values():
            for reference in references_in(value):
                if reference["$ref"] == TRIGGER:
                    self._check_reference(place, reference, data)
        for name, element in self.structure.nodes.items():
            lists = element.for_each
            if lists is not None and lists["$ref"] == TRIGGER and not isinstance(resolve(lists, {TRIGGER: data}), list):
                raise WorkflowInputError(f"The input of graph {self.name!r}: node {name!r} has for_each over no list")
        for name in self.structure.entry:
            self._check_entry(self.structure.nodes[name], data)

    def start(
        self,
        data: Mapping[str, Any] | None = None,
        *,
        owner: Any = None,
        idempotency_key: str | None = None,
        trigger: str = "code",
        priority: int | None = None,
        deadline: Deadline | None = None,
        using: str | None = None,
        start_node: str | None = None,
    ) -> WorkflowRunHandle:
        """Store a run and hand it to the workers, as `@workflow`'s `start`. It begins with all entry nodes, or with
        `start_node`, which must be one of them."""
        return self._service(using).start_workflow(
            self.name,
            {} if data is None else data,
            owner=owner,
            idempotency_key=idempotency_key,
            trigger=trigger,
            priority=priority,
            deadline=deadline,
            start_node=start_node,
        )

    def run(
        self,
        data: Mapping[str, Any] | None = None,
        *,
        owner: Any = None,
        idempotency_key: str | None = None,
        trigger: str = "code",
        priority: int | None = None,
        deadline: Deadline | None = None,
        using: str | None = None,
        start_node: str | None = None,
    ) -> WorkflowRunHandle:
        """Carry out a run in this process, to its end, as `@workflow`'s `run`; `start_node` as in `start`."""
        return self._service(using).run_inline(
            self.name,
            {} if data is None else data,
            owner=owner,
            idempotency_key=idempotency_key,
            trigger=trigger,
            priority=priority,
            deadline=deadline,
            start_node=start_node,
        )

    # -- checks --------------------------------------------------------------------------------------------------------

    def _error(self, problem: str) -> WorkflowRegistrationError:
        return WorkflowRegistrationError(f"{self.source_place}: graph {self.name!r}: {problem}")

    def _built(self, name: str, declared: NodeDeclaration) -> Node:
        if not isinstance(declared, NodeDeclaration):
            raise self._error(f"node {name!r}: {declared!r:.80} is no node(…)")
        if not isinstance(declared.function, FunctionDefinition | BaseWorkflow | str):
            raise self._error(
                f"node {name!r}: a node takes a @function, a workflow or its name, not {declared.function!r:.80}"
            )
        try:
            return declared.named(name)
        except ValueError as error:
            raise self._error(f"node {name!r}: {error}") from None

    def _unfit_functions(self, nodes: Mapping[str, NodeDeclaration]) -> Iterator[str]:
        """Functions that would not take what their nodes give them, as far as that is known already."""
        after_failures = {target for each in self.structure.nodes.values() for target in each.on_error}
        for name, declared in nodes.items():
            if isinstance(declared.function, BaseWorkflow) and declared.timeout is not None:
                yield f"node {name!r}: {declared.function.name!r} is a workflow; only a function's step has a timeout"
            # What a graph takes depends on values.
            if isinstance(declared.function, FunctionDefinition | WorkflowDefinition):
                try:
                    for arguments in self._known_arguments(self.structure.nodes[name], after_failures):
                        declared.function.check(dict.fromkeys(arguments))
                except WorkflowInputError as error:
                    yield f"node {name!r}: {error}"

    def _known_arguments(self, each: Node, after_failures: Collection[str]) -> Iterator[Iterable[str]]:
        if isinstance(each.input, Mapping):
            if not {"$ref", "$template"} & set(each.input):
                yield each.input
        elif each.input is None and each.for_each is None:
            if each.name in after_failures:
                yield COMPENSATION_ARGUMENTS
            if each.name not in self.structure.entry and self._is_reached_regularly(each.name):
                yield ()

    def _is_reached_regularly(self, name: str) -> bool:
        return any(name in each.successors for each in self.structure.nodes.values())

    def _values(self) -> Iterator[tuple[str, Json]]:
        yield "the output", self.structure.output
        for name, each in self.structure.nodes.items():
            yield f"node {name!r}", each.for_each
            yield f"node {name!r}", each.input

    def _check_reference(self, place: str, reference: Mapping[str, Any], data: Mapping[str, Any]) -> None:
        try:
            resolve(reference, {TRIGGER: data})
        except UnresolvedError:
            raise WorkflowInputError(
                f"The input of graph {self.name!r} has no {reference['path']!r}, which {place} takes from it"
            ) from None

    def _check_entry(self, each: Node, data: Mapping[str, Any]) -> None:
        function = registry.functions.get(each.function)
        if function is not None and each.input is None and each.for_each is None:
            function.check(data)
