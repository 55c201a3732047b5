"""What a worker weighs, beside a bare one that has loaded Django."""

from __future__ import annotations

from pathlib import Path

from benchmarks.comparison import Comparison
from benchmarks.environment import Environment
from benchmarks.processes import Workers
from benchmarks.scenarios import CHAIN_100, FANOUT
from benchmarks.systems.celery_canvas import CeleryBare
from benchmarks.systems.pikku import PikkuQueued


def weigh(environment: Environment) -> Comparison:
    """Both after the same work, with as many processes. What processes share is divided among them (PSS)."""
    weights = []
    for system in (CeleryBare(environment), PikkuQueued(environment)):
        try:
            system.setup()
            for _ in range(3):
                system.run(CHAIN_100)
                system.run(FANOUT)
            weights.append(_weight(system.workers))
        finally:
            system.teardown()
    return Comparison(
        title="memory of a process of a worker: Celery with Django loaded, Pikku Storage",
        unit="MB",
        first=weights[0],
        second=weights[1],
        goal=1.2,
    )


def _weight(workers: Workers) -> float:
    """MB of one process, on average over the workers and their children."""
    pids = [pid for leader in workers.pids for pid in (leader, *_children(leader))]
    return sum(_kilobytes(pid) for pid in pids) / len(pids) / 1024


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _kilobytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
