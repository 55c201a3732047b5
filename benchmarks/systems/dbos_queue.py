"""DBOS with a queue and worker processes."""

from __future__ import annotations

import time
from typing import Any

from benchmarks.processes import Workers
from benchmarks.scenarios import BURST, Kind, Scenario
from benchmarks.systems.base import WITH_WORKERS, System
from benchmarks.waiting import wait_until


class DbosQueue(System):
    """A client enqueues workflows; workers poll the queue every 10 ms, and are paused while others are measured."""

    name = "dbos-queue"
    title = "DBOS, queue polled every 10 ms"
    scenarios = WITH_WORKERS
    rate = BURST
    raw = "raw-django-postgresql"
    packages = ("dbos", "SQLAlchemy")

    def setup(self) -> None:
        """See `System.setup`."""
        url = self.environment.create_database("dbos_queue")
        self._workers = Workers(self.environment.directory / f"{self.name}.log")
        for number in range(self.environment.workers):
            self._workers.start(["-m", "benchmarks.systems.dbos_workflows", url, f"worker-{number}"])
            if number == 0:
                # The first one makes the tables; two at once would run into each other.
                self._wait_for_tables(url)
        from dbos import DBOSClient

        self._client = DBOSClient(system_database_url=url)
        # The first run proves that the workers serve the queue, and ends with them paused.
        self.run(self.scenarios[0])

    def run(self, scenario: Scenario) -> float:
        """See `System.run`."""
        from benchmarks.systems import dbos_workflows

        workflow = dbos_workflows.queued_fan_out if scenario.kind == Kind.FANOUT else dbos_workflows.chain
        options = dbos_workflows.enqueue_options(workflow)
        self._workers.resume()
        try:
            time.sleep(0.05)
            begun = time.perf_counter()
            handles: list[Any] = [self._client.enqueue(options, scenario.steps) for _ in range(scenario.runs)]
            for handle in handles:
                wait_until(
                    lambda: handle.get_status().status not in ("ENQUEUED", "PENDING", "DELAYED"),  # noqa: B023
                    workers=self._workers,
                    patience=self.environment.patience,
                )
            seconds = time.perf_counter() - begun
            for handle in handles:
                handle.get_result()
        finally:
            self._workers.pause()
        return seconds

    def teardown(self) -> None:
        """See `System.teardown`."""
        if hasattr(self, "_workers"):
            self._workers.stop()
        if hasattr(self, "_client"):
            self._client.destroy()

    def _wait_for_tables(self, url: str) -> None:
        import psycopg

        def are_there() -> bool:
            with psycopg.connect(url) as connection:
                row = connection.execute("SELECT to_regclass('dbos.queues')").fetchone()
                if row is None or row[0] is None:
                    return False
                return connection.execute("SELECT 1 FROM dbos.queues WHERE name = 'bench'").fetchone() is not None

        wait_until(are_there, workers=self._workers)
