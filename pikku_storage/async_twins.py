"""Async twins of sync services, produced once: `service.get_run(…)` has `await service.aget_run(…)`."""

from __future__ import annotations

from functools import wraps
from inspect import iscoroutinefunction
from keyword import iskeyword
from typing import TYPE_CHECKING, Any

from asgiref.sync import sync_to_async


class AsyncTwins:
    """Every public method of a subclass gets an awaitable twin whose name has an `a` in front, as Django's own methods
    do."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name, method in list(vars(cls).items()):
            is_abstract = getattr(method, "__isabstractmethod__", False)
            if callable(method) and not name.startswith("_") and not is_abstract and not iscoroutinefunction(method):
                twin = f"a{name}"
                if twin not in vars(cls) and not iskeyword(twin):
                    setattr(cls, twin, _twin(name, method))

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """The twins are made at run time."""


def _twin(name: str, method: Any) -> Any:
    @wraps(method)
    async def twin(self: Any, /, *args: Any, **options: Any) -> Any:
        return await sync_to_async(getattr(self, name))(*args, **options)

    twin.__name__ = f"a{name}"
    twin.__qualname__ = f"{method.__qualname__.rpartition('.')[0]}.a{name}"
    twin.__doc__ = f"Async twin of `{name}`."
    return twin
