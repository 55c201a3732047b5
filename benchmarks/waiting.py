"""How a client waits for work that others do: the same for every system that has no way of its own to be told."""

from __future__ import annotations

import time
from collections.abc import Callable

from benchmarks.processes import Workers

LIMIT = 120.0
"""Seconds after which a system is given up."""
_FIRST_LOOK = 0.001
_RESOLUTION = 0.02


def wait_until(is_over: Callable[[], bool], *, workers: Workers | None = None, patience: float = 0.0) -> None:
    """Look again and again, after 1 ms and then after another 2 % of the time that has passed.

    So the time that is measured is at most 2 % (or 1 ms) too long, whatever the system's own polling is, and few looks
    disturb the workers. Raises `TimeoutError`, and `WorkerError` if a worker has ended meanwhile.
    """
    begun = time.perf_counter()
    time.sleep(patience)
    while not is_over():
        elapsed = time.perf_counter() - begun
        if elapsed > LIMIT:
            if workers is not None:
                workers.check()
            raise TimeoutError(f"not done after {LIMIT:.0f} s")
        if workers is not None and elapsed > 1:
            workers.check()
        time.sleep(max(_FIRST_LOOK, elapsed * _RESOLUTION))
