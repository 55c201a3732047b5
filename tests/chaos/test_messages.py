"""Messages lost and doubled, brokers emptied, restarted and cut off: it may only cost time."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import pytest
import redis

from tests.chaos.conftest import Scene
from tests.chaos.servers import BadLine, PrivateRedis

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(500)]

TWICE = "tests.integration.dispatchers.EachTwice"
A_THIRD_LOST = "tests.integration.dispatchers.AThirdLost"


def test_every_message_arrives_twice(
    broker: str, make_scene: Callable[..., Scene], process_env: dict[str, str]
) -> None:
    scene = make_scene(broker, process_env, TWICE)
    scene.start_beat()
    scene.start_worker()
    scene.start_worker()
    report = scene.see_through(scene.place(32))
    assert report["lost"] == 0


def test_a_third_of_the_messages_is_lost(
    make_scene: Callable[..., Scene], redis_url: str, process_env: dict[str, str], chance: random.Random
) -> None:
    env = {**process_env, "PIKKU_TEST_SEED": str(chance.randrange(1_000_000))}
    scene = make_scene(redis_url, env, A_THIRD_LOST)
    scene.start_beat()
    scene.start_worker()
    scene.start_worker()
    report = scene.see_through(scene.place(32, patience=400))
    assert report["lost"] == 0


def test_the_broker_forgets_everything(scene: Scene) -> None:
    """Queued messages and those that a worker has and has not acknowledged."""
    scene.start_beat()
    scene.start_worker()
    orders = scene.place(32)
    client = redis.Redis.from_url(scene.workers.broker)
    for settled in (4, 12, 20):
        orders.wait_for(settled)
        time.sleep(scene.chance.uniform(0.0, 0.5))
        client.delete(scene.workers.queue, "unacked", "unacked_index")
    client.close()
    scene.see_through(orders)


def test_redis_is_flushed_and_restarted(
    make_scene: Callable[..., Scene], own_redis: PrivateRedis, process_env: dict[str, str]
) -> None:
    """One that comes back with what it had, and one that comes back with nothing."""
    scene = make_scene(own_redis.url, process_env)
    scene.start_beat()
    scene.start_worker()
    orders = scene.place(32, seconds=0.05)
    orders.wait_for(5)
    own_redis.flush()
    orders.wait_for(12)
    own_redis.kill()
    time.sleep(scene.chance.uniform(0.1, 2.0))
    own_redis.start()
    scene.see_through(orders)


def test_rabbitmq_is_cut_off(
    make_scene: Callable[..., Scene],
    bad_line: Callable[..., BadLine],
    amqp_url: str,
    process_env: dict[str, str],
) -> None:
    """All connections to it break, and what was not acknowledged is delivered again."""
    line = bad_line(amqp_url)
    scene = make_scene(line.url, process_env)
    scene.start_beat()
    scene.start_worker()
    orders = scene.place(32, seconds=0.05)
    for settled in (4, 12, 20):
        orders.wait_for(settled)
        time.sleep(scene.chance.uniform(0.0, 0.5))
        line.tell("cut")
    scene.see_through(orders)
