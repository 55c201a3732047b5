"""Letting the systems take turns."""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from benchmarks.comparison import Comparison
from benchmarks.environment import MissingError
from benchmarks.scenarios import WARM_UP, Scenario
from benchmarks.statements import Count
from benchmarks.systems.base import System

Say = Callable[[str], None]
_LONGEST_REASON = 400


@dataclass(slots=True, kw_only=True)
class Result:
    """What one system did: by scenario, the seconds of each round (the median of the round's goes)."""

    system: System
    versions: dict[str, str]
    seconds: dict[Scenario, list[float]] = field(default_factory=dict)
    count: Count | None = None


@dataclass(slots=True, kw_only=True)
class Outcome:
    """A whole run. `missing` maps titles of systems that were not (fully) measured to the reason."""

    rounds: int
    results: list[Result]
    missing: dict[str, str]
    comparisons: list[Comparison] = field(default_factory=list)

    @property
    def versions(self) -> dict[str, str]:
        """Versions of everything that was measured."""
        return dict(sorted((name, version) for result in self.results for name, version in result.versions.items()))


class Runner:
    """Sets systems up, measures them in interleaved rounds, and tears them down whatever happens.

    A system that something is missing for, or that fails, is reported and left out; the others go on. No round is begun
    that would end later than `budget` seconds after the start, but for the first.
    """

    def __init__(
        self,
        systems: Sequence[System],
        scenarios: Iterable[Scenario],
        *,
        rounds: int,
        say: Say,
        quick: bool = False,
        budget: float = math.inf,
    ) -> None:
        self._systems = list(systems)
        self._scenarios = list(scenarios)
        self._rounds = rounds
        self._say = say
        self._quick = quick
        self._budget = budget
        self._missing: dict[str, str] = {}
        self._results: dict[str, Result] = {}

    def measure(self) -> Outcome:
        """Do it all."""
        begun: list[System] = []
        started, done = time.monotonic(), 0
        try:
            for system in self._systems:
                begun.append(system)
                self._try(system, self._set_up)
            # Only now, so that the workers of all have begun side by side.
            for system in self._able():
                self._try(system, self._warm_up)
            # What was imported lives on; not every garbage collection of the measured code must walk through it.
            gc.collect()
            gc.freeze()
            longest = 0.0
            while done < self._rounds and (not done or time.monotonic() - started + longest < self._budget):
                round_started = time.monotonic()
                self._round(done)
                longest = max(longest, time.monotonic() - round_started)
                done += 1
        finally:
            gc.unfreeze()
            for system in reversed(begun):
                self._tear_down(system)
        results = [result for result in self._results.values() if result.seconds]
        return Outcome(rounds=done, results=results, missing=self._missing)

    def _able(self, scenario: Scenario | None = None) -> list[System]:
        """Those that were set up and have not failed, and do this scenario."""
        return [
            result.system
            for result in self._results.values()
            if result.system.title not in self._missing and (scenario is None or scenario in result.system.scenarios)
        ]

    def _try(self, system: System, action: Callable[[System], None]) -> None:
        try:
            action(system)
        except MissingError as error:
            self._missing[system.title] = str(error)
        except Exception as error:  # noqa: BLE001 - one that breaks must not keep the others from being measured
            self._missing[system.title] = _reason(error)

    def _set_up(self, system: System) -> None:
        self._say(f"setting up {system.title}")
        system.require_packages()
        versions = system.versions()
        system.setup()
        self._results[system.name] = Result(system=system, versions=versions)

    def _warm_up(self, system: System) -> None:
        self._say(f"warming up {system.title}")
        own = [scenario for scenario in self._scenarios if scenario in system.scenarios]
        for scenario in [scenario for scenario in own if scenario in WARM_UP] or own[:1]:
            system.run(scenario)

    def _round(self, number: int) -> None:
        for scenario in self._scenarios:
            able = self._able(scenario)
            # Another one begins each time, so that nobody always follows the same neighbour.
            shift = number % len(able) if able else 0
            for system in able[shift:] + able[:shift]:
                self._say(f"round {number + 1} of {self._rounds}, {scenario.key}: {system.title}")
                self._try(system, partial(self._go, scenario))

    def _go(self, scenario: Scenario, system: System) -> None:
        gc.collect()
        repeats = scenario.quick_repeats if self._quick else scenario.repeats
        seconds = statistics.median(system.run(scenario) for _ in range(repeats))
        self._results[system.name].seconds.setdefault(scenario, []).append(seconds)

    def _tear_down(self, system: System) -> None:
        try:
            system.teardown()
        except Exception as error:  # noqa: BLE001 - the next system's workers must be stopped too
            self._say(f"{system.title} was not torn down: {_reason(error)}")


def _reason(error: Exception) -> str:
    """The error on one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:_LONGEST_REASON]
