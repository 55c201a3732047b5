"""procrastinate: a job per step. Each job is durable; a chain or a join is what the jobs make of it."""

from __future__ import annotations

import time
from typing import Any

from benchmarks.processes import Workers
from benchmarks.scenarios import BURST, Kind, Scenario
from benchmarks.systems.base import WITH_WORKERS, System
from benchmarks.waiting import wait_until


class ProcrastinateJobs(System):
    """A chain is a job that defers the next one; a fan-out is one bulk insert, its join a client that waits for all."""

    name = "procrastinate"
    title = "procrastinate, a job per step"
    scenarios = WITH_WORKERS
    rate = BURST
    raw = "raw-django-postgresql"
    packages = ("procrastinate",)

    def versions(self) -> dict[str, str]:
        """See `System.versions`."""
        return {**super().versions(), "PostgreSQL": self.environment.postgres_version()}

    def setup(self) -> None:
        """See `System.setup`."""
        url = self.environment.create_database("procrastinate")
        import psycopg

        from benchmarks.systems.procrastinate_app import app

        self._app = app.open()
        self._app.schema_manager.apply_schema()
        self._look = psycopg.connect(url, autocommit=True)
        self._workers = Workers(self.environment.directory / f"{self.name}.log")
        for _ in range(self.environment.workers):
            self._workers.start(["-m", "benchmarks.systems.procrastinate_app"])

    def run(self, scenario: Scenario) -> float:
        """See `System.run`."""
        if scenario.kind == Kind.FANOUT:
            task = self._app.tasks["add_one"]
            jobs: list[Any] = [{"number": index} for index in range(scenario.steps)]
        else:
            task = self._app.tasks["chain_step"]
            jobs = [{"number": 0, "steps": scenario.steps}] * scenario.runs
        begun = time.perf_counter()
        task.batch_defer(*jobs)
        wait_until(self._is_idle, workers=self._workers, patience=self.environment.patience)
        return time.perf_counter() - begun

    def teardown(self) -> None:
        """See `System.teardown`."""
        if hasattr(self, "_workers"):
            self._workers.stop()
        if hasattr(self, "_look"):
            self._look.close()
            self._app.close()

    def _is_idle(self) -> bool:
        query = "SELECT NOT EXISTS (SELECT 1 FROM procrastinate_jobs WHERE status IN ('todo', 'doing'))"
        row = self._look.execute(query.encode()).fetchone()
        return bool(row and row[0])
