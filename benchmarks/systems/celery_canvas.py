"""Celery alone: canvas chains and chords, results in Redis or in Django's database. Not durable, and what many projects
have today."""

from __future__ import annotations

import time
from typing import Any, ClassVar

from benchmarks.django_project import prepare_database
from benchmarks.processes import Workers
from benchmarks.scenarios import BURST, Kind, Scenario
from benchmarks.systems.base import WITH_WORKERS, System
from benchmarks.waiting import LIMIT, wait_until


class CeleryCanvas(System):
    """`chain(…)` and `chord(…)`."""

    scenarios = WITH_WORKERS
    rate = BURST
    raw = "raw-django-postgresql"
    application: ClassVar[str]
    """What it is called in `celery_app`."""
    settings: ClassVar[str] = "benchmarks.project.settings"
    """Celery loads Django by itself where it finds settings."""

    def versions(self) -> dict[str, str]:
        """See `System.versions`."""
        return {**super().versions(), "Redis": self.environment.redis_version()}

    def setup(self) -> None:
        """See `System.setup`."""
        self.environment.redis_version()
        self.workers = Workers(self.environment.directory / f"{self.name}.log")
        self.workers.start(
            [
                *f"-m celery -A benchmarks.systems.celery_app:{self.application} worker --loglevel warning".split(),
                *"--without-gossip --without-mingle --without-heartbeat --pool prefork".split(),
                *("--concurrency", str(self.environment.workers), "--hostname", f"{self.name}@%h"),
            ],
            DJANGO_SETTINGS_MODULE=self.settings,
        )

    def run(self, scenario: Scenario) -> float:
        """See `System.run`."""
        begun = time.perf_counter()
        results = [self._signature(scenario).apply_async() for _ in range(scenario.runs)]
        for result in results:
            self.workers.check()
            self._wait_for(result)
            result.get(timeout=LIMIT)
        return time.perf_counter() - begun

    def teardown(self) -> None:
        """See `System.teardown`."""
        if hasattr(self, "workers"):
            self.workers.stop()

    def _wait_for(self, result: Any) -> None:
        """Wait until the result is there, if `get` is no good way to."""

    def _signature(self, scenario: Scenario) -> Any:
        from celery import chain, chord

        from benchmarks.systems import celery_app

        app = getattr(celery_app, self.application)
        add_one, total = app.tasks["bench.add_one"], app.tasks["bench.total"]
        if scenario.kind == Kind.FANOUT:
            return chord([add_one.s(index) for index in range(scenario.steps)], total.s(), app=app)
        return chain(add_one.s(0), *[add_one.s() for _ in range(scenario.steps - 1)], app=app)


class CeleryRedis(CeleryCanvas):
    """The client is told of a result by Redis and does not poll."""

    name = "celery-redis"
    title = "Celery chain/chord, Redis results (not durable)"
    uses_database = False
    packages = ("celery", "redis")
    application = "redis_results"


class CeleryBare(CeleryRedis):
    """In a Django project that has nothing of ours, to be weighed."""

    name = "celery-bare"
    settings = "benchmarks.project.settings_bare"


class CeleryDjango(CeleryCanvas):
    """Results in the database through `django-celery-results`. Its `get` looks every half second, which would hide
    everything else."""

    name = "celery-django"
    title = "Celery chain/chord, Django results (not durable)"
    packages = ("django-celery-results", "celery", "redis")
    application = "django_results"

    def setup(self) -> None:
        """See `System.setup`."""
        prepare_database(self.environment, "default")
        super().setup()

    def _wait_for(self, result: Any) -> None:
        wait_until(result.ready, workers=self.workers, patience=self.environment.patience)
