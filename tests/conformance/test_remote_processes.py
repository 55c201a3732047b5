"""Two services, each in a process of its own, that find and call each other, and one of which dies."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from pytest_django import Settings

from pikku_storage.deployments.service import DeploymentService
from pikku_storage.exceptions import DeploymentNotFoundError, RemoteCallError
from tests.conformance import remote_service

pytestmark = pytest.mark.django_db(transaction=True)
ROOT = Path(__file__).parents[2]
Process = subprocess.Popen[bytes]


@pytest.fixture
def serve(process_env: dict[str, str], settings: Settings) -> Iterator[Callable[[str, str], Process]]:
    settings.PIKKU_STORAGE = {**settings.PIKKU_STORAGE, **remote_service.REMOTE}
    with ExitStack() as stack:

        def start(name: str, other: str) -> Process:
            command = [sys.executable, str(ROOT / "tests" / "conformance" / "remote_service.py"), name, other]
            environment = {**process_env, "PYTHONPATH": str(ROOT)}
            process = stack.enter_context(subprocess.Popen(command, env=environment, stdin=subprocess.PIPE))
            stack.callback(process.kill)
            return process

        yield start


def wait(until: Callable[[], bool]) -> None:
    ends = time.monotonic() + 30
    while not until():
        assert time.monotonic() < ends
        time.sleep(0.05)


@pytest.mark.contract("DS-01", "RM-01")
def test_services_call_each_other_and_do_without_one_that_died(serve: Callable[[str, str], Process]) -> None:
    service = DeploymentService()
    shop, rates = serve("shop", "rates"), serve("rates", "shop")
    wait(lambda: bool(service.find_deployments("shop/ask") and service.find_deployments("rates/ask")))
    session = {"userId": "ada"}
    for asked, answering in (("shop", "rates"), ("rates", "shop")):
        answer = service.invoke(f"{asked}/ask", {"who": "Bob"}, session, trace_id="trace-1")
        assert answer == {"text": f"Hello Bob, this is {answering}", "user": "ada"}

    with pytest.raises(RemoteCallError, match="Remote RPC call to 'shop/greet' failed: 422") as caught:
        service.invoke("shop/greet", {"whom": "Bob"})
    assert caught.value.status == 422

    again = serve("shop", "rates")
    wait(lambda: len(service.find_deployments("shop/greet")) == 2)
    shop.kill()
    shop.wait(30)
    # The dead one still counts as up, and may be the first that is tried.
    for _ in range(5):
        assert service.invoke("shop/greet", {"who": "Bob"})["text"] == "Hello Bob, this is shop"

    assert again.stdin is not None
    assert rates.stdin is not None
    for process in (again, rates):
        process.communicate(timeout=30)
    with pytest.raises(RemoteCallError, match="no deployment can be reached") as caught:
        service.invoke("shop/greet", {"who": "Bob"})
    assert not caught.value.was_sent
    with pytest.raises(DeploymentNotFoundError, match="No deployment found for function 'rates/ask'"):
        service.invoke("rates/ask", {"who": "Bob"})
