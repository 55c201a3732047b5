"""Ours."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, ClassVar

from benchmarks.django_project import prepare_database
from benchmarks.processes import Workers
from benchmarks.scenarios import BURST, CHAIN_100, Kind, Scenario
from benchmarks.systems.base import DIRECT, WITH_WORKERS, System
from benchmarks.waiting import wait_until

if TYPE_CHECKING:
    from pikku_storage.workflows.handle import WorkflowRunHandle


class PikkuInline(System):
    """`workflow.run(…)`: everything in the caller's process."""

    alias: ClassVar[str]
    scenarios = DIRECT
    rate = CHAIN_100
    packages = ("django-pikku-storage", "Django")

    def require_packages(self) -> None:
        """Ours is here: it is this repository."""

    def setup(self) -> None:
        """See `System.setup`."""
        prepare_database(self.environment, self.alias)

    def run(self, scenario: Scenario) -> float:
        """See `System.run`."""
        from benchmarks.project import workflows

        workflow: Any = workflows.fan_out if scenario.kind == Kind.FANOUT else workflows.chain
        begun = time.perf_counter()
        for _ in range(scenario.runs):
            handle = workflow.run({"steps": scenario.steps}, using=self.alias)
        seconds = time.perf_counter() - begun
        if handle.status != "completed":
            raise RuntimeError(f"the run is {handle.status}: {(handle.error or {}).get('message')}")
        return seconds


class PikkuInlineSqlite(PikkuInline):
    """On SQLite."""

    name = "pikku-inline-sqlite"
    title = "Pikku Storage inline, SQLite"
    alias = "sqlite"
    raw = "raw-django-sqlite"


class PikkuInlinePostgresql(PikkuInline):
    """On PostgreSQL."""

    name = "pikku-inline-postgresql"
    title = "Pikku Storage inline, PostgreSQL"
    alias = "default"
    raw = "raw-django-postgresql"
    peers = {"DBOS": "dbos-direct"}


class PikkuQueued(System):
    """`workflow.start(…)`: the worker that takes the run does its steps; a fan-out spreads over all workers."""

    name = "pikku-queued"
    title = "Pikku Storage in workers"
    scenarios: ClassVar[tuple[Scenario, ...]] = WITH_WORKERS
    rate = BURST
    raw = "raw-django-postgresql"
    peers = {"DBOS": "dbos-queue", "Celery": "celery-redis"}
    packages = ("django-pikku-storage", "Django", "celery", "redis")
    chain = "chain"

    def versions(self) -> dict[str, str]:
        """See `System.versions`."""
        return {**super().versions(), "Redis": self.environment.redis_version()}

    def require_packages(self) -> None:
        """Ours is here: it is this repository."""

    def setup(self) -> None:
        """See `System.setup`."""
        self.environment.redis_version()
        prepare_database(self.environment, "default")
        self.workers = Workers(self.environment.directory / f"{self.name}.log")
        self.workers.start(
            [
                *"-m celery -A benchmarks.project.celery worker --loglevel warning".split(),
                *"--without-gossip --without-mingle --without-heartbeat --pool prefork".split(),
                *("--concurrency", str(self.environment.workers), "--queues", self.name),
                *("--hostname", f"{self.name}@%h"),
            ],
            BENCH_QUEUE=self.name,
        )

    def run(self, scenario: Scenario) -> float:
        """See `System.run`."""
        from django.test import override_settings

        from benchmarks.project import workflows

        workflow: Any = workflows.fan_out if scenario.kind == Kind.FANOUT else getattr(workflows, self.chain)
        with override_settings(PIKKU_STORAGE={"QUEUE": self.name}):
            begun = time.perf_counter()
            handles = [workflow.start({"steps": scenario.steps}) for _ in range(scenario.runs)]
            for handle in handles:
                wait_until(lambda: _is_over(handle), workers=self.workers, patience=self.environment.patience)  # noqa: B023
            return time.perf_counter() - begun

    def teardown(self) -> None:
        """See `System.teardown`."""
        if hasattr(self, "workers"):
            self.workers.stop()


class PikkuQueuedSteps(PikkuQueued):
    """Every step declared `queued=True`, so that each one is a message of its own."""

    name = "pikku-queued-steps"
    title = "Pikku Storage in workers, a message per step"
    scenarios = tuple(scenario for scenario in WITH_WORKERS if scenario.kind != Kind.FANOUT)
    peers = {"DBOS": "dbos-queue", "Celery": "celery-redis"}
    chain = "queued_chain"


def _is_over(handle: WorkflowRunHandle) -> bool:
    run = handle.get()
    if run.status not in ("running", "completed"):
        raise RuntimeError(f"the run is {run.status}: {(run.error or {}).get('message')}")
    return run.status == "completed"
