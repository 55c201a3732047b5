"""The same work for Celery alone: `celery -A benchmarks.systems.celery_app worker`. Nothing in it is durable."""

import os

from celery import Celery

_PREFIX = f"{os.environ['BENCH_REDIS_PREFIX']}celery:"
_URL = os.environ["BENCH_BROKER_URL"]

app = Celery("bench-celery", broker=_URL, backend=_URL, set_as_current=False)
app.conf.update(
    broker_transport_options={"global_keyprefix": _PREFIX},
    result_backend_transport_options={"global_keyprefix": _PREFIX},
    broker_connection_retry_on_startup=True,
    task_default_queue="bench-celery",
    result_expires=600,
)


@app.task(name="bench.add_one")
def add_one(number: int) -> int:
    """A task that adds one."""
    return number + 1


@app.task(name="bench.total")
def total(numbers: list[int]) -> int:
    """The join of a chord."""
    return sum(numbers)
