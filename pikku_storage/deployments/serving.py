"""What this process serves to others: the functions that say `@function(remote=True)`."""

from __future__ import annotations

from typing import Any

from pikku_storage.exceptions import RPCNotFoundError
from pikku_storage.workflows.definitions import FunctionDefinition
from pikku_storage.workflows.registry import registry


def remote_functions() -> list[str]:
    """The names of the functions that others may call."""
    return sorted(name for name, definition in registry.functions.items() if definition.remote)


def remote_function(name: str) -> FunctionDefinition[Any, Any]:
    """The function of that name, if others may call it; raises `RPCNotFoundError`, as if it was not there."""
    definition = registry.functions.get(name)
    if definition is None or not definition.remote:
        raise RPCNotFoundError(name)
    return definition
