"""Real Celery workers answer which queues they listen on, over each broker."""

from pathlib import Path

import pytest

from tests.integration.conftest import Workers

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(180)]

ASK = """
from console.workflows.listening import listening_on
found = listening_on([{queue!r}, "nobody-listens-here"])
print([each.workers for each in found])
"""


def test_workers_are_asked_for_their_queues(workers: Workers) -> None:
    assert workers.ask(ASK.format(queue=workers.queue)) == "[(), ()]"
    workers.start(beat=False, concurrency=1)
    assert workers.ask(ASK.format(queue=workers.queue)) == f"[('{workers.name_of(0)}',), ()]"


def test_a_broker_that_is_away_is_no_answer(tmp_path: Path, process_env: dict[str, str]) -> None:
    ask = """
import time
from console.workflows.listening import listening_on
began = time.monotonic()
print(listening_on(["celery"]), time.monotonic() - began < 10)
"""
    away = Workers("amqp://guest:guest@127.0.0.1:1//", tmp_path, process_env)
    assert away.ask(ask) == "None True"
