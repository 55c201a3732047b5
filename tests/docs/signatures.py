"""Signatures as the reference writes them: names and defaults, without types."""

import inspect
from collections.abc import Callable
from enum import Enum
from typing import Any

from pikku_storage.async_twins import AsyncTwins


def signature_text(name: str, function: Callable[..., Any], *, skip: int = 1) -> str:
    """`name(a, b=1, *, c=None)`, without the first `skip` parameters (`self`)."""
    parameters = list(inspect.signature(function).parameters.values())[skip:]
    plain = [
        parameter.replace(annotation=parameter.empty, default=_plain_default(parameter.default))
        for parameter in parameters
    ]
    return f"{name}{inspect.Signature(plain)}"


def _plain_default(default: Any) -> Any:
    return default.value if isinstance(default, Enum) and isinstance(default, str) else default


def public_methods(cls: type) -> dict[str, Callable[..., Any]]:
    """The class's public methods, its own first and then its bases', without the async twins and the properties."""
    found = {name: getattr(cls, name) for base in cls.__mro__ for name in _functions(base)}
    twins = {f"a{name}" for name in found}
    # A twin whose name would be a keyword has an underscore at its end.
    return {name: value for name, value in found.items() if name.rstrip("_") not in twins}


def _functions(cls: type) -> dict[str, Callable[..., Any]]:
    if cls in {object, AsyncTwins}:
        return {}
    return {name: value for name, value in vars(cls).items() if inspect.isfunction(value) and not name.startswith("_")}


def public_properties(cls: type) -> list[str]:
    """The class's own public properties, in their order."""
    return [name for name, value in vars(cls).items() if isinstance(value, property) and not name.startswith("_")]
