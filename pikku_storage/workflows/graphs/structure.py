"""The structure of a graph, as it is stored: complete, with functions by name."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from pikku_storage.json import Json

GRAPH_SOURCE: Final = "graph"
"""What a stored version of a graph has as its source."""
PARALLEL: Final = "parallel"
SEQUENTIAL: Final = "sequential"
MODES: Final = (PARALLEL, SEQUENTIAL)
_HASH_LENGTH: Final = 32

Targets = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One node: a function, what it is given, and where it leads.

    `next` is the nodes that follow, or a mapping of them by branch key. `input` and `for_each` are values with
    references (`values.py`).
    """

    name: str
    function: str
    input: Json = None
    next: Targets | Mapping[str, Targets] = ()
    on_error: Targets = ()
    for_each: Json = None
    mode: str = PARALLEL
    retries: int | None = None
    retry_delay: str | None = None
    timeout_ms: int | None = None

    @property
    def branches(self) -> Mapping[str, Targets] | None:
        """The nodes that follow, by branch key; `None` if they do not depend on one."""
        return self.next if isinstance(self.next, Mapping) else None

    @property
    def successors(self) -> list[str]:
        """All nodes that may follow, whatever the branch, sorted."""
        ways: Iterable[Targets] = self.next.values() if isinstance(self.next, Mapping) else (self.next,)
        return sorted({target for way in ways for target in way})

    def to_json(self) -> dict[str, Json]:
        """The node as the contract's stored versions have it."""
        following = self.next
        stored = {
            "nodeId": self.name,
            "rpcName": self.function,
            "input": self.input,
            "next": {key: list(targets) for key, targets in following.items()}
            if isinstance(following, Mapping)
            else list(following),
            "onError": list(self.on_error),
            "forEach": self.for_each,
            "mode": None if self.for_each is None else self.mode,
            "retries": self.retries,
            "retryDelay": self.retry_delay,
            "timeoutMs": self.timeout_ms,
        }
        return {key: value for key, value in stored.items() if value is not None and value != []}

    @classmethod
    def from_json(cls, name: str, stored: Mapping[str, Any]) -> Node:
        """The opposite of `to_json`; a single target may be stored without its list."""
        following = stored.get("next")
        delay = stored.get("retryDelay")
        return cls(
            name=name,
            function=stored["rpcName"],
            input=stored.get("input"),
            next={key: targets_of(targets) for key, targets in following.items()}
            if isinstance(following, Mapping)
            else targets_of(following),
            on_error=targets_of(stored.get("onError")),
            for_each=stored.get("forEach"),
            mode=stored.get("mode") or PARALLEL,
            retries=stored.get("retries"),
            retry_delay=None if delay is None else str(delay),
            timeout_ms=stored.get("timeoutMs"),
        )


@dataclass(frozen=True)
class Graph:
    """Nodes by name, and those that a run begins with. `output` is what a run of it answers with."""

    name: str
    nodes: Mapping[str, Node] = field(default_factory=dict)
    entry: Targets = ()
    output: Json = None

    def to_json(self) -> dict[str, Json]:
        """What a stored version keeps: everything that is needed to go on with a run."""
        return {
            "name": self.name,
            "entryNodeIds": list(self.entry),
            "nodes": {name: node.to_json() for name, node in self.nodes.items()},
            "output": self.output,
        }

    @classmethod
    def from_json(cls, name: str, stored: Mapping[str, Any]) -> Graph:
        """The opposite of `to_json`."""
        nodes = {key: Node.from_json(key, node) for key, node in (stored.get("nodes") or {}).items()}
        return cls(name, nodes, targets_of(stored.get("entryNodeIds")), stored.get("output"))

    @cached_property
    def hash(self) -> str:
        """The version: a hash of the structure, the same in whichever order its nodes are declared."""
        text = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:_HASH_LENGTH]

    # -- ways through it -----------------------------------------------------------------------------------------------

    def walk(self, *starts: str, errors: bool = False) -> Iterator[str]:
        """The nodes that can be reached from these, the near ones first; `errors`: over `on_error` as well."""
        found = dict.fromkeys(starts)
        queue = list(found)
        for name in queue:
            yield name
            node = self.nodes[name]
            new = [*node.successors, *(node.on_error if errors else ())]
            queue.extend(target for target in dict.fromkeys(new) if target not in found)
            found.update(dict.fromkeys(new))

    @cached_property
    def in_order(self) -> list[str]:
        """The names of all nodes as one reads the graph: from its entries on."""
        return list(self.walk(*self.entry, errors=True))

    def leads_to(self, start: str, end: str) -> bool:
        """Whether there is a way from one node to the other, or they are the same."""
        return end in self._reach[start]

    def in_one_cycle(self, source: str, target: str) -> bool:
        """Whether the edge between them is part of a cycle."""
        return self.leads_to(target, source)

    @cached_property
    def _reach(self) -> dict[str, frozenset[str]]:
        return {name: frozenset(self.walk(name)) for name in self.nodes}

    @cached_property
    def back_edges(self) -> frozenset[tuple[str, str]]:
        """The edges that lead back: each cycle has one, and without them there is none.

        Which they are depends on the names and the entries only, so all workers agree.
        """
        found: set[tuple[str, str]] = set()
        done: set[str] = set()
        for start in (*self.entry, *sorted(self.nodes)):
            found |= self._edges_back(start, done)
        return frozenset(found)

    def _edges_back(self, start: str, done: set[str]) -> set[tuple[str, str]]:
        """Those found by a depth-first search from there; `done` is what earlier searches saw, and this one adds to
        it."""
        found: set[tuple[str, str]] = set()
        way: dict[str, Iterator[str]] = {} if start in done else {start: iter(self.nodes[start].successors)}
        while way:
            name, following = next(reversed(way.items()))
            target = next(following, None)
            if target is None:
                del way[name]
                done.add(name)
            elif target in way:
                found.add((name, target))
            elif target not in done:
                way[target] = iter(self.nodes[target].successors)
        return found


def targets_of(value: str | Collection[str] | None) -> Targets:
    """One name, several, or none."""
    if value is None:
        return ()
    return (value,) if isinstance(value, str) else tuple(value)
