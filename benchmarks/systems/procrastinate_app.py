"""The same work for procrastinate. A worker: `python -m benchmarks.systems.procrastinate_app`."""

from __future__ import annotations

import os

from procrastinate import App, PsycopgConnector

app = App(connector=PsycopgConnector(conninfo=os.environ["BENCH_PROCRASTINATE_URL"]))


@app.task(name="chain_step")
async def chain_step(number: int, steps: int) -> int:
    """A job that adds one, and defers the next job of its chain before it ends."""
    if number + 1 < steps:
        await chain_step.defer_async(number=number + 1, steps=steps)
    return number + 1


@app.task(name="add_one")
async def add_one(number: int) -> int:
    """A job that adds one."""
    return number + 1


if __name__ == "__main__":
    # From the module that jobs know their tasks by.
    from benchmarks.systems import procrastinate_app

    procrastinate_app.app.run_worker(concurrency=1)
