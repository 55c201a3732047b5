"""Many who change one working memory at the same moment: nobody's key is lost."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connections

from pikku_storage.agents.memory.service import AgentMemory

pytestmark = pytest.mark.django_db(transaction=True)
THREADS = 6
UPDATES = 5


@pytest.mark.contract("AM-06")
def test_updates_of_different_keys_are_all_kept() -> None:
    barrier = threading.Barrier(THREADS)

    def update(worker: int) -> None:
        memory = AgentMemory("helper")
        try:
            # The first ones race to make the memory.
            barrier.wait(30)
            for number in range(UPDATES):
                assert memory.update("ada", {f"{worker}-{number}": number, "shared": {str(worker): number}})
        finally:
            connections.close_all()

    with ThreadPoolExecutor(THREADS) as pool:
        for future in [pool.submit(update, worker) for worker in range(THREADS)]:
            future.result()

    keys = {f"{worker}-{number}": number for worker in range(THREADS) for number in range(UPDATES)}
    shared = {str(worker): UPDATES - 1 for worker in range(THREADS)}
    assert AgentMemory("helper").get("ada") == {**keys, "shared": shared}
