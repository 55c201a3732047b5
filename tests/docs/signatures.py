"""Signatures as the reference writes them: names and defaults, without types."""

import inspect
from collections.abc import Callable
from enum import Enum
from typing import Any


def signature_text(name: str, function: Callable[..., Any], *, skip: int = 1) -> str:
    """`name(a, b=1, *, c=None)`, without the first `skip` parameters (`self`)."""
    parameters = list(inspect.signature(function).parameters.values())[skip:]
    plain = [
        parameter.replace(annotation=parameter.empty, default=_plain_default(parameter.default))
        for parameter in parameters
    ]
    return f"{name}{inspect.Signature(plain)}"


def _plain_default(default: Any) -> Any:
    return default.value if isinstance(default, Enum) else default


def public_methods(cls: type) -> dict[str, Callable[..., Any]]:
    """The class's own public methods, in their order, without the async twins and the properties."""
    found = {name: value for name, value in vars(cls).items() if inspect.isfunction(value) and not name.startswith("_")}
    return {name: value for name, value in found.items() if not (name.startswith("a") and name[1:] in found)}


def public_properties(cls: type) -> list[str]:
    """The class's own public properties, in their order."""
    return [name for name, value in vars(cls).items() if isinstance(value, property) and not name.startswith("_")]
