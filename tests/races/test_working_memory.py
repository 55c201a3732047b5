"""Many who change one working memory at the same moment: nobody's key is lost."""

import pytest

from pikku_storage.agents.memory.service import AgentMemory
from tests.races.together import in_threads

pytestmark = pytest.mark.django_db(transaction=True)
THREADS = 6
UPDATES = 5


@pytest.mark.contract("AM-06")
def test_updates_of_different_keys_are_all_kept() -> None:
    def update(worker: int) -> None:
        memory = AgentMemory("helper")
        # The first ones race to make the memory.
        for number in range(UPDATES):
            assert memory.update("ada", {f"{worker}-{number}": number, "shared": {str(worker): number}})

    in_threads(update, THREADS)

    keys = {f"{worker}-{number}": number for worker in range(THREADS) for number in range(UPDATES)}
    shared = {str(worker): UPDATES - 1 for worker in range(THREADS)}
    assert AgentMemory("helper").get("ada") == {**keys, "shared": shared}
