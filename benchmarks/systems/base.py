"""The interface of a measured system."""

from __future__ import annotations

import importlib.metadata
from abc import ABC, abstractmethod
from importlib.util import find_spec
from typing import ClassVar

from benchmarks.environment import Environment, MissingError
from benchmarks.scenarios import BURST, CHAIN_1, CHAIN_10, CHAIN_100, FANOUT, Scenario

DIRECT = (CHAIN_1, CHAIN_10, CHAIN_100, FANOUT)
WITH_WORKERS = (CHAIN_1, CHAIN_10, CHAIN_100, FANOUT, BURST)


class System(ABC):
    """Something that can do (some of) the scenarios. `setup` comes first, `teardown` last, also after an error."""

    name: ClassVar[str]
    """How the command line, the JSON report and other systems' ratios call it."""
    title: ClassVar[str]
    """How the table calls it."""
    scenarios: ClassVar[tuple[Scenario, ...]]
    """What it does."""
    rate: ClassVar[Scenario]
    """The scenario that its steps (or commits) per second are taken from."""
    raw: ClassVar[str | None] = None
    """Name of the system whose commits per second its steps per second are compared with."""
    peers: ClassVar[dict[str, str]] = {}
    """Column of the table -> name of the system that does the same work for that column's ratio."""
    uses_database: ClassVar[bool] = True
    """Whether its steps are statements that can be counted."""
    packages: ClassVar[tuple[str, ...]] = ()
    """Distributions it needs beside ours, each importable under its own name with `_` for `-`."""

    def __init__(self, environment: Environment) -> None:
        self.environment = environment

    def versions(self) -> dict[str, str]:
        """Versions of its packages and servers."""
        return {package: importlib.metadata.version(package) for package in self.packages}

    def require_packages(self) -> None:
        """Raise `MissingError` if a package is not installed."""
        for package in self.packages:
            if find_spec(package.replace("-", "_").lower()) is None:
                raise MissingError(f"the package {package} is not installed (extra `bench`)")

    @abstractmethod
    def setup(self) -> None:
        """Make databases and start workers, ready for `run`; raises `MissingError` if something is not here."""

    @abstractmethod
    def run(self, scenario: Scenario) -> float:
        """Do the scenario's work once; answers with the seconds from asking for it to knowing that it is done."""

    def teardown(self) -> None:  # noqa: B027 - most have something to stop, but not all
        """Stop workers and close connections. Databases are the environment's to drop."""
