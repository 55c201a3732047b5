"""The same work for Celery alone: `celery -A benchmarks.systems.celery_app:APPLICATION worker`. Nothing in it is
durable."""

import os

from celery import Celery

_PREFIX = f"{os.environ['BENCH_REDIS_PREFIX']}celery:"
_URL = os.environ["BENCH_BROKER_URL"]


def _application(name: str, backend: str | None) -> Celery:
    app = Celery(name, broker=_URL, backend=backend, set_as_current=False)
    app.conf.update(
        broker_transport_options={"global_keyprefix": _PREFIX},
        broker_connection_retry_on_startup=True,
        task_default_queue=name,
        result_expires=600,
        # As our `configure(app)`: without it a task that uses the database connects anew.
        db_reuse_max=1_000_000,
    )
    if backend == _URL:
        app.conf.result_backend_transport_options = {"global_keyprefix": _PREFIX}

    @app.task(name="bench.add_one", shared=False)
    def add_one(number: int) -> int:
        """A task that adds one."""
        return number + 1

    @app.task(name="bench.total", shared=False)
    def total(numbers: list[int]) -> int:
        """The join of a chord."""
        return sum(numbers)

    return app


redis_results = _application("bench-celery", _URL)
django_results = _application("bench-celery-django", "django-db")
