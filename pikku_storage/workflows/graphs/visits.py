"""What a run's steps say about its nodes.

A visit is one reach of a node: the step `pack`, the second time `pack#1`. With `for_each` it is the steps `pack[0]`,
`pack[1]`, … or, if there is no element, the one step `pack`, whose result is an empty list.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from pikku_storage.json import Json
from pikku_storage.workflows.graphs.structure import SEQUENTIAL, Graph, Node
from pikku_storage.workflows.records import StepState
from pikku_storage.workflows.statuses import StepStatus

_NAME = re.compile(r"(?P<visit>(?P<node>[^#\[\]]+)(?:#(?P<ordinal>\d+))?)(?:\[(?P<item>\d+)\])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """One reach of a node; `steps` is by item, or has the one step under `None`."""

    name: str
    node: Node
    ordinal: int
    steps: dict[int | None, StepState] = field(default_factory=dict)

    @property
    def came_from(self) -> str | None:
        """The visit that led here; `None` if the run began here."""
        return next(iter(self.steps.values())).from_step_name

    @property
    def begun_at(self) -> datetime:
        """When its first step was made."""
        return min(step.created_at for step in self.steps.values())

    @property
    def ended_at(self) -> datetime:
        """When its last step changed last."""
        return max(step.updated_at for step in self.steps.values())

    @property
    def is_open(self) -> bool:
        """Whether one of its steps is not settled."""
        return any(not step.is_settled for step in self.steps.values())

    @property
    def failed_step(self) -> StepState | None:
        """The first of its steps that failed for good."""
        failed = (step for step in self.steps.values() if step.is_settled and step.status == StepStatus.FAILED)
        return min(failed, key=lambda step: (step.updated_at, step.step_name), default=None)

    @property
    def is_of_items(self) -> bool:
        """Whether its steps are about elements of a list."""
        return self.node.for_each is not None and None not in self.steps

    @property
    def branch(self) -> str | None:
        """The branch that its step chose."""
        return None if self.is_of_items else self.steps[None].branch_taken

    @property
    def result(self) -> Json:
        """What it came to, once it has succeeded; that of the items in their order."""
        if self.is_of_items:
            return [self.steps[index].result for index in sorted(self.steps, key=_number)]
        return self.steps[None].result

    def missing(self, width: int) -> list[int]:
        """The items that can begin now, of `width` in all. Side by side all of them are carried to their end, one after
        the other they stop at the first that fails."""
        missing = [index for index in range(width) if index not in self.steps]
        if self.node.mode != SEQUENTIAL:
            return missing
        return [] if self.is_open or self.failed_step is not None else missing[:1]


def _number(index: int | None) -> int:
    return -1 if index is None else index


def visits_in(graph: Graph, steps: Iterable[StepState]) -> dict[str, Visit]:
    """The visits by name, in the order they began. Steps that are none of the graph's are left out."""
    visits: dict[str, Visit] = {}
    for step in steps:
        named = _NAME.fullmatch(step.step_name)
        if named is None or named["node"] not in graph.nodes:
            continue
        name = named["visit"]
        if name not in visits:
            visits[name] = Visit(name=name, node=graph.nodes[named["node"]], ordinal=int(named["ordinal"] or 0))
        visits[name].steps[None if named["item"] is None else int(named["item"])] = step
    return visits
