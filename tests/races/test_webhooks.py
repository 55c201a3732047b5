"""Many workers at the same webhook, and one that is killed."""

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier

import pytest
from django.db import connections
from pytest_django import Settings

from pikku_storage.db.clock import travel
from pikku_storage.webhooks.service import WebhookService
from tests.servers.receiver import Receiver, receiving

WORKERS = 8

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def receiver(settings: Settings) -> Iterator[Receiver]:
    settings.PIKKU_STORAGE = {**settings.PIKKU_STORAGE, "WEBHOOK_ALLOWED_HOSTS": ["127.0.0.0/8"]}
    with receiving() as receiver:
        yield receiver


def test_of_workers_at_one_attempt_one_makes_it(receiver: Receiver) -> None:
    webhooks = WebhookService()
    receiver.answers = [500]
    delivery = webhooks.send(receiver.url, {}, retries=1, retry_delay=0)
    barrier = Barrier(WORKERS)

    def deliver() -> str | None:
        try:
            barrier.wait(30)
            return WebhookService().deliver(delivery.delivery_id)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(WORKERS) as pool:
        answers = [each.result() for each in [pool.submit(deliver) for _ in range(WORKERS)]]
    found = webhooks.get_delivery(delivery.delivery_id)
    assert found is not None
    made = [answer for answer in answers if answer is not None]
    assert len(receiver.requests) == len(found.attempts) == len(made) == found.delivery.attempts >= 1
    assert [each.attempt_number for each in found.attempts] == list(range(1, len(made) + 1))


def test_an_attempt_that_is_killed_is_lost_and_made_again(receiver: Receiver, process_env: dict[str, str]) -> None:
    webhooks = WebhookService()
    receiver.answers = ["hang", 200]
    delivery = webhooks.send(receiver.url, {})
    command = [sys.executable, "-m", "tests.races.deliverer", delivery.delivery_id]
    with subprocess.Popen(command, env=process_env) as process:
        try:
            assert receiver.arrived.wait(30)
        finally:
            process.kill()
    assert webhooks.deliver(delivery.delivery_id) is None
    with travel(timedelta(minutes=2)):
        assert webhooks.relay() == 0, "the claim has run out, and is given up"
    with travel(timedelta(minutes=3)):
        assert webhooks.relay() == 1
        assert webhooks.deliver(delivery.delivery_id) == "delivered"
    found = webhooks.get_delivery(delivery.delivery_id)
    assert found is not None
    assert ["WORKER_LOST" in str(each.error) for each in found.attempts] == [True, False]
