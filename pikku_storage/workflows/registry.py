"""Which workflows and functions this process knows, by name."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any, TypeVar

from pikku_storage.exceptions import RPCNotFoundError, WorkflowNotFoundError, WorkflowRegistrationError

if TYPE_CHECKING:
    from pikku_storage.workflows.definitions import BaseWorkflow, FunctionDefinition

logger = logging.getLogger(__name__)

Definition = TypeVar("Definition", bound="FunctionDefinition[Any, Any] | BaseWorkflow")


class Registry:
    """Names are unique over functions and workflows together: a step names either by one name."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.functions: dict[str, FunctionDefinition[Any, Any]] = {}
        self.workflows: dict[str, BaseWorkflow] = {}

    def add_function(self, definition: FunctionDefinition[Any, Any]) -> None:
        """Register a function; raises `WorkflowRegistrationError` if the name is taken."""
        self._add(self.functions, definition)

    def add_workflow(self, definition: BaseWorkflow) -> None:
        """Register a workflow; raises `WorkflowRegistrationError` if the name is taken."""
        self._add(self.workflows, definition)

    def function(self, name: str) -> FunctionDefinition[Any, Any]:
        """The function of that name; raises `RPCNotFoundError`."""
        try:
            return self.functions[name]
        except KeyError:
            raise RPCNotFoundError(name) from None

    def workflow(self, name: str) -> BaseWorkflow:
        """The workflow of that name; raises `WorkflowNotFoundError`."""
        try:
            return self.workflows[name]
        except KeyError:
            raise WorkflowNotFoundError(name) from None

    def _add(self, room: dict[str, Definition], definition: Definition) -> None:
        with self._lock:
            known = self.functions.get(definition.name) or self.workflows.get(definition.name)
            # The same lines again are a reloaded module, not a second definition.
            if known is not None and known.source_place != definition.source_place:
                raise WorkflowRegistrationError(
                    f"The name {definition.name!r} is registered twice: by {known.source_place} and by "
                    f"{definition.source_place}. Give one of them another name=…"
                )
            if known is not None and definition.is_closure:
                logger.warning(
                    "%s is registered again by the same lines, with other values around it; the new one replaces the "
                    "old one, also for runs that began with that. Give each its own name=…",
                    definition.name,
                )
            room[definition.name] = definition


registry = Registry()
