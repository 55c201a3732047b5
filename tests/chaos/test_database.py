"""PostgreSQL crashes, restarts, is slow and drops connections, and workers' clocks are off: it may only cost time."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from django.db import connection

from tests.chaos.conftest import Scene
from tests.chaos.servers import BadLine, PrivatePostgres

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.timeout(500),
    # On SQLite there is no server to crash, and the machine's clock is everybody's.
    pytest.mark.skipif(connection.vendor != "postgresql", reason="about PostgreSQL; DATABASE_URL names another engine"),
]

MIGRATE = "from django.core.management import call_command; call_command('migrate', run_syncdb=True, verbosity=0)"


@pytest.mark.parametrize("mode", ["immediate", "fast"])
def test_postgresql_restarts(
    mode: str,
    make_scene: Callable[..., Scene],
    own_postgres: PrivatePostgres,
    redis_url: str,
    process_env: dict[str, str],
) -> None:
    """`immediate` is a crash: what was not yet written down is gone, and that may be leases and starts of steps."""
    scene = make_scene(redis_url, {**process_env, "DATABASE_URL": own_postgres.create(f"restarted_{mode}")})
    scene.workers.ask(MIGRATE)
    scene.start_beat()
    scene.start_worker()
    scene.start_worker()
    orders = scene.place(50, seconds=0.02)
    for settled in (5, 17, 30):
        orders.wait_for(settled)
        time.sleep(scene.chance.uniform(0.0, 1.0))
        own_postgres.restart(mode)
    scene.see_through(orders)


def test_the_database_is_slow_and_drops_connections(
    make_scene: Callable[..., Scene], bad_line: Callable[..., BadLine], redis_url: str, process_env: dict[str, str]
) -> None:
    """Each statement and each answer takes its time, some never arrive, and for longer than a lease nothing does."""
    line = bad_line(process_env["DATABASE_URL"], delay=0.02, cuts=0.001)
    scene = make_scene(redis_url, {**process_env, "DATABASE_URL": line.url})
    scene.start_beat()
    scene.start_worker()
    scene.start_worker()
    orders = scene.place(20, patience=360)
    orders.wait_for(5)
    line.tell("cut")
    orders.wait_for(12)
    line.tell("hold 4")
    scene.see_through(orders)


@pytest.mark.parametrize("minutes", [(7, -7), (7, 7)], ids=["apart", "ahead"])
def test_the_clocks_of_workers_are_off_by_minutes(
    minutes: tuple[int, int], make_scene: Callable[..., Scene], redis_url: str, process_env: dict[str, str]
) -> None:
    """None of them takes another's work for lost, or a message of the relay for out of date."""
    scene = make_scene(redis_url, process_env)
    scene.start_beat()
    for off_by in minutes:
        scene.start_worker(clock_off_by=off_by)
    report = scene.see_through(scene.place(40, seconds=0.05))
    assert report["lost"] == 0
