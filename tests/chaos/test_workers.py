"""Workers that are killed, stopped or frozen: it may only cost time.

After each of these every order has come to its right end and stays there, the invariants hold, the books balance, and
every attempt was called once.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable

import pytest

from tests.chaos.conftest import Scene

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(500)]

MOST_KILLS = 10
TOO_LATE = "ended too late; its outcome is dropped"


def test_workers_killed_at_random(scene: Scene) -> None:
    """`kill -9` of whole workers and of single pool processes, during a few hundred runs."""
    scene.start_beat()
    scene.start_worker()
    scene.start_worker()
    orders = scene.place(200, seconds=0.05, patience=440)
    kills = 0
    while not orders.are_over and kills < MOST_KILLS:
        time.sleep(scene.chance.uniform(0.2, 3.0))
        worker = scene.chance.choice(scene.serving)
        if scene.chance.random() < 0.4:
            scene.kill_child(worker)
        else:
            scene.kill(worker)
        kills += 1
    report = scene.see_through(orders)
    assert kills > 3
    assert report["lost"] > 0, "no kill hit anything"


def test_workers_killed_on_each_broker(
    broker: str, make_scene: Callable[..., Scene], process_env: dict[str, str]
) -> None:
    scene = make_scene(broker, process_env)
    scene.start_beat()
    scene.start_worker()
    orders = scene.place(26, seconds=0.05)
    for settled in (4, 10, 16):
        orders.wait_for(settled)
        time.sleep(scene.chance.uniform(0.0, 0.5))
        scene.kill(scene.serving[0])
    scene.see_through(orders)


def test_workers_told_to_stop_finish_what_they_have(scene: Scene) -> None:
    scene.start_beat()
    scene.start_worker()
    orders = scene.place(26, seconds=0.05)
    for settled in (4, 11, 18):
        orders.wait_for(settled)
        time.sleep(scene.chance.uniform(0.0, 0.5))
        leaving = scene.serving[0]
        scene.replace(leaving)
        leaving.send_signal(signal.SIGTERM)
        assert leaving.wait(60) == 0
    report = scene.see_through(orders)
    assert report["lost"] == 0, "a worker that was asked to stop finished what it had"


def test_workers_stopped_impatiently_hand_back_what_they_have(scene: Scene) -> None:
    """SIGTERM, and SIGQUIT soon after. The leases are too long to be waited for."""
    scene.workers.database_env["PIKKU_TEST_LEASE"] = "10m"
    scene.start_relay()
    scene.start_worker()
    orders = scene.place(10, most_open=4, seconds=1.0)
    for settled in (1, 3, 6):
        orders.wait_for(settled)
        time.sleep(scene.chance.uniform(0.0, 1.0))
        leaving = scene.serving[0]
        scene.replace(leaving)
        leaving.send_signal(signal.SIGTERM)
        time.sleep(scene.chance.uniform(0.0, 0.2))
        leaving.send_signal(signal.SIGQUIT)
        try:
            leaving.wait(10)
        except subprocess.TimeoutExpired:
            # Celery's main process may hang in its handler. Its children have been told by then.
            scene.workers.kill(leaving)
    report = scene.see_through(orders)
    assert report["lost"] > 0, "no stop hit anything"


def test_steps_that_outlive_their_lease_come_too_late(scene: Scene) -> None:
    """A worker is frozen for longer than its lease, its renewals with it. Then it goes on, as if nothing had been."""
    scene.start_relay()
    scene.start_worker()
    scene.start_worker()
    orders = scene.place(24, most_open=5, seconds=1.0)
    orders.wait_for(1)
    while not (orders.are_over or TOO_LATE in scene.everything_said()):
        time.sleep(scene.chance.uniform(0.0, 1.0))
        frozen = scene.chance.choice(scene.serving)
        os.killpg(frozen.pid, signal.SIGSTOP)
        time.sleep(scene.chance.uniform(4.0, 5.0))
        os.killpg(frozen.pid, signal.SIGCONT)
    report = scene.see_through(orders)
    assert report["lost"] > 0
    assert TOO_LATE in scene.everything_said()
