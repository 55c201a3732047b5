"""Tests of workflows: a clock to travel by, a driver that needs no broker, fakes for step functions, and histories as
text.

The pytest plugin is in `plugin.py`. pytest imports it, and this module, in every project of the environment and before
any settings are read; so nothing is imported here before somebody asks for it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pikku_storage.testing.clock import FrozenClock, frozen_clock
    from pikku_storage.testing.driver import RunUntilIdle, Waiting, driving
    from pikku_storage.testing.fakes import FakeFunction, FakeFunctions, faking
    from pikku_storage.testing.history import assert_history, history_of
    from pikku_storage.testing.steps import as_step

__all__ = [
    "FakeFunction",
    "FakeFunctions",
    "FrozenClock",
    "RunUntilIdle",
    "Waiting",
    "as_step",
    "assert_history",
    "driving",
    "faking",
    "frozen_clock",
    "history_of",
]

UPDATE_OPTION = "--pikku-update-histories"
"""The option of pytest that writes histories to the files they are compared with."""

_MODULES = {
    "clock": ("FrozenClock", "frozen_clock"),
    "driver": ("RunUntilIdle", "Waiting", "driving"),
    "fakes": ("FakeFunction", "FakeFunctions", "faking"),
    "history": ("assert_history", "history_of"),
    "steps": ("as_step",),
}


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
