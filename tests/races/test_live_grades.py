"""One message that two workers carry out at the same moment: both grade, and one grade is kept."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connections

from pikku_storage.agents.scoring import Turn, scorer, scorers
from pikku_storage.agents.service import AgentStorageService
from pikku_storage.agents.tasks import score_run

pytestmark = pytest.mark.django_db(transaction=True)
WORKERS = 4


@pytest.mark.contract("SR-07")
def test_a_message_that_is_carried_out_twice_at_once_adds_one_grade(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scorers, "by_name", {})
    barrier = threading.Barrier(WORKERS)

    @scorer
    def slow(turn: Turn) -> float:
        # All of them have seen that there is no grade yet.
        barrier.wait(30)
        return 0.5

    storage = AgentStorageService()
    thread_id = storage.create_thread("ada").id
    run_id = storage.create_run(agent_name="helper", thread_id=thread_id, resource_id="ada")

    def work(_: int) -> None:
        try:
            score_run.run(run_id, "slow")
        finally:
            connections.close_all()

    with ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(work, range(WORKERS)))

    assert [(score.scorer_name, score.score) for score in storage.get_scores(run_id)] == [("slow", 0.5)]
