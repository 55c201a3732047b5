"""Celery alone: canvas chains and chords, results in Redis. Not durable, and what many projects have today."""

from __future__ import annotations

import time
from typing import Any

from benchmarks.processes import Workers
from benchmarks.scenarios import BURST, Kind, Scenario
from benchmarks.systems.base import WITH_WORKERS, System
from benchmarks.waiting import LIMIT


class CeleryRedis(System):
    """`chain(…)` and `chord(…)`. The client is told of a result by Redis and does not poll."""

    name = "celery-redis"
    title = "Celery chain/chord, Redis results (not durable)"
    scenarios = WITH_WORKERS
    rate = BURST
    raw = "raw-django-postgresql"
    uses_database = False
    packages = ("celery", "redis")

    def versions(self) -> dict[str, str]:
        """See `System.versions`."""
        return {**super().versions(), "Redis": self.environment.redis_version()}

    def setup(self) -> None:
        """See `System.setup`."""
        self.environment.redis_version()
        self._workers = Workers(self.environment.directory / f"{self.name}.log")
        self._workers.start(
            [
                *"-m celery -A benchmarks.systems.celery_app worker --loglevel warning".split(),
                *"--without-gossip --without-mingle --without-heartbeat --pool prefork".split(),
                *("--concurrency", str(self.environment.workers), "--hostname", f"{self.name}@%h"),
            ]
        )

    def run(self, scenario: Scenario) -> float:
        """See `System.run`."""
        begun = time.perf_counter()
        results = [_signature(scenario).apply_async() for _ in range(scenario.runs)]
        for result in results:
            self._workers.check()
            result.get(timeout=LIMIT)
        return time.perf_counter() - begun

    def teardown(self) -> None:
        """See `System.teardown`."""
        if hasattr(self, "_workers"):
            self._workers.stop()


def _signature(scenario: Scenario) -> Any:
    from celery import chain, chord

    from benchmarks.systems.celery_app import add_one, app, total

    if scenario.kind == Kind.FANOUT:
        return chord([add_one.s(index) for index in range(scenario.steps)], total.s(), app=app)
    return chain(add_one.s(0), *[add_one.s() for _ in range(scenario.steps - 1)], app=app)
