"""DBOS, called directly: the workflow runs in the caller's process."""

from __future__ import annotations

import time

from benchmarks.scenarios import CHAIN_100, Kind, Scenario
from benchmarks.systems.base import DIRECT, System


class DbosDirect(System):
    """A plain call of a `@DBOS.workflow`; a fan-out starts its children as threads of this process."""

    name = "dbos-direct"
    title = "DBOS, direct call"
    scenarios = DIRECT
    rate = CHAIN_100
    raw = "raw-django-postgresql"
    packages = ("dbos", "SQLAlchemy")
    _launched = False

    def versions(self) -> dict[str, str]:
        """See `System.versions`."""
        return {**super().versions(), "PostgreSQL": self.environment.postgres_version()}

    def setup(self) -> None:
        """See `System.setup`."""
        url = self.environment.create_database("dbos")
        from benchmarks.systems import dbos_workflows

        self._launched = True
        dbos_workflows.launch(url, "direct", serves_queue=False)

    def run(self, scenario: Scenario) -> float:
        """See `System.run`."""
        from benchmarks.systems import dbos_workflows

        workflow = dbos_workflows.fan_out if scenario.kind == Kind.FANOUT else dbos_workflows.chain
        begun = time.perf_counter()
        for _ in range(scenario.runs):
            workflow(scenario.steps)
        return time.perf_counter() - begun

    def teardown(self) -> None:
        """See `System.teardown`."""
        if self._launched:
            from dbos import DBOS

            DBOS.destroy()
