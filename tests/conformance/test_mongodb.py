"""What is MongoDB's own: how documents are named, and chains of writes that a crash cut off."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pikku_storage.db import Engine, clock, engine
from pikku_storage.db.operations import Insert, InsertMany, Update
from pikku_storage.exceptions import PayloadError
from pikku_storage.workflows.models import WorkflowRun, WorkflowStep, WorkflowStepHistory
from pikku_storage.workflows.service import WorkflowService
from tests.conformance.failing import failing
from tests.conformance.support import DATABASE, MINUTE, connection

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(connection.vendor != "mongodb", reason="about MongoDB"),
]

AT = datetime(2026, 3, 2, 9, tzinfo=UTC)


@pytest.fixture
def db_engine(db: None) -> Engine:
    found = engine(DATABASE)
    # Asked for its time once, so that no question comes between the writes of a test.
    found.now()
    return found


@pytest.fixture
def step(db_engine: Engine) -> str:
    """A running step with its open attempt."""
    db_engine.apply(
        Insert(WorkflowRun, {"id": "run", "workflow": "w", "status": "running", "created_at": AT, "updated_at": AT})
    )
    db_engine.apply(
        Insert(WorkflowStep, {"id": "step", "run_id": "run", "step_name": "s", "status": "running", "due_at": AT}),
        Insert(WorkflowStepHistory, {"id": "attempt", "step_id": "step", "status": "running", "created_at": AT}),
    )
    return "step"


def ending(status: str = "succeeded") -> tuple[Update, Update, Update]:
    """A step's outcome, its attempt's, and the run's wake-up."""
    return (
        Update(WorkflowStep, {"id": "step", "status": "running"}, {"status": status, "result": {"n": 1}}),
        Update(WorkflowStepHistory, {"id": "attempt", "status": "running"}, {"status": status, "result": {"n": 1}}),
        Update(WorkflowRun, {"id": "run", "status": "running"}, {"due_at": AT, "wake_token": "t"}),
    )


def stored(model: Any, pk: str) -> dict[str, Any]:
    """The document as the server has it."""
    document: dict[str, Any] = connection.database[model._meta.db_table].find_one({"_id": pk})
    return document


def state() -> tuple[str, str, str | None]:
    """Status of the step and of its attempt, and the run's wake token."""
    return (
        stored(WorkflowStep, "step")["status"],
        stored(WorkflowStepHistory, "attempt")["status"],
        stored(WorkflowRun, "run").get("wakeToken"),
    )


def unfinished() -> int:
    """How many documents carry what must still follow."""
    return int(connection.database["workflow_step"].count_documents({"_follows": {"$exists": True}}))


def test_the_primary_key_is_the_document_s(step: str) -> None:
    assert set(stored(WorkflowStep, step)) == {
        *("_id", "workflowRunId", "stepName", "status", "dueAt"),
        *("rpcName", "data", "result", "error", "branchTaken", "retries", "retryDelay", "fromStepName"),
    }
    assert WorkflowStep.objects.get(pk=step).run_id == "run"


def test_payloads_are_documents_and_times_are_dates(db_engine: Engine, step: str) -> None:
    db_engine.apply(*ending())
    document = stored(WorkflowStep, step)
    assert document["result"] == {"n": 1}
    assert document["dueAt"] == AT.replace(tzinfo=None)


def test_a_chain_leaves_nothing_behind(db_engine: Engine, step: str) -> None:
    assert db_engine.apply(*ending()) == (1, 1, 1)
    assert state() == ("succeeded", "succeeded", "t")
    assert db_engine.recover(WorkflowStep, WorkflowRun) == 0
    assert unfinished() == 0


@pytest.mark.parametrize(
    ("at", "before"),
    [
        (1, ("running", "running", None)),
        (2, ("succeeded", "running", None)),
        (3, ("succeeded", "succeeded", None)),
        (4, ("succeeded", "succeeded", "t")),
    ],
)
def test_a_process_that_dies_between_two_writes_of_an_outcome(
    db_engine: Engine, step: str, at: int, before: tuple[str, str, str | None]
) -> None:
    """Cut off before write `at` of four: the outcome, the attempt's, the wake-up, and taking off the ticket."""
    with failing(at, "down") as failure:
        db_engine.apply(*ending())
    assert failure.reached is not None
    assert state() == before

    assert db_engine.recover(WorkflowStep) == 0, "the process that decided is given its time"
    with clock.travel(MINUTE):
        assert db_engine.recover(WorkflowStep) == (0 if at == 1 else 1)
        assert db_engine.recover(WorkflowStep) == 0
    assert state() == (("running", "running", None) if at == 1 else ("succeeded", "succeeded", "t"))
    assert unfinished() == 0


def test_what_follows_may_happen_twice(db_engine: Engine, step: str) -> None:
    with failing(4, "down"):
        db_engine.apply(*ending())
    connection.database["workflow_step_history"].update_one({"_id": "attempt"}, {"$set": {"result": "looked at since"}})

    with clock.travel(MINUTE):
        assert db_engine.recover(WorkflowStep) == 1
    assert stored(WorkflowStepHistory, "attempt")["result"] == "looked at since"


def test_two_writes_that_were_cut_off_are_both_finished(db_engine: Engine, step: str) -> None:
    """The second writer does not lose what the first one left."""
    with failing(2, "down"):
        db_engine.apply(*ending("failed"))
    again = Update(WorkflowStep, {"id": "step", "status": "failed"}, {"status": "running", "current_attempt": 2})
    second = {"id": "second", "step_id": "step", "status": "running", "created_at": AT}
    with failing(2, "down"):
        db_engine.apply(again, Insert(WorkflowStepHistory, second))
    assert state() == ("running", "running", None)

    with clock.travel(MINUTE):
        assert db_engine.recover(WorkflowStep) == 1
    assert state() == ("running", "failed", "t")
    assert stored(WorkflowStepHistory, "second")["status"] == "running"
    assert unfinished() == 0


def test_a_later_chain_does_not_take_off_an_older_ticket(db_engine: Engine, step: str) -> None:
    with failing(2, "down"):
        db_engine.apply(*ending("failed"))
    again = Update(WorkflowStep, {"id": "step", "status": "failed"}, {"status": "running"})
    second = {"id": "second", "step_id": "step", "status": "running", "created_at": AT}
    assert db_engine.apply(again, Insert(WorkflowStepHistory, second)) == (1, 1)

    with clock.travel(MINUTE):
        db_engine.recover(WorkflowStep)
    assert stored(WorkflowStepHistory, "attempt")["status"] == "failed"
    assert unfinished() == 0


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_process_that_dies_while_it_inserts(db_engine: Engine, at: int) -> None:
    """What comes last is what makes it so: before it nothing is there that anybody could find."""
    rows = [{"id": f"copy {number}", "step_name": f"s{number}"} for number in range(2)]
    common = {"run_id": "new", "status": "succeeded", "created_at": AT, "updated_at": AT}
    attempts = [{"id": f"attempt {number}", "step_id": f"copy {number}"} for number in range(2)]
    chain = (
        Insert(WorkflowRun, {"id": "new", "workflow": "w", "status": "running", "created_at": AT, "updated_at": AT}),
        InsertMany(WorkflowStep, common, rows),
        InsertMany(WorkflowStepHistory, {"status": "succeeded", "created_at": AT}, attempts),
    )
    with failing(at, "down"):
        db_engine.apply(*chain)
    assert not WorkflowRun.objects.filter(pk="new").exists()

    assert db_engine.apply(*chain) == (1, 2, 2), "what is there already is no obstacle"
    assert WorkflowStep.objects.filter(run_id="new").count() == 2
    assert WorkflowStepHistory._default_manager.filter(step_id__in=["copy 0", "copy 1"]).count() == 2


def test_the_relay_finishes_what_was_cut_off(service: WorkflowService, db_engine: Engine, step: str) -> None:
    with failing(2, "down"):
        db_engine.apply(*ending())
    with clock.travel(MINUTE):
        service.relay()
    assert state()[:2] == ("succeeded", "succeeded")


@pytest.mark.parametrize("model", [WorkflowRun, WorkflowStep])
def test_what_must_follow_is_found_by_an_index(model: Any) -> None:
    found = [dict(index) for index in connection.database[model._meta.db_table].list_indexes()]
    assert any(dict(index["key"]) == {"_follows.at": 1} and index["sparse"] for index in found)


def test_a_step_is_found_by_an_index_that_is_not_partial() -> None:
    found = [dict(index) for index in connection.database["workflow_step"].list_indexes()]
    keys = [list(index["key"]) for index in found if "partialFilterExpression" not in index]
    assert ["workflowRunId", "stepName"] in keys


def test_a_state_that_outgrows_a_document_is_an_error_that_says_so(db_engine: Engine, step: str) -> None:
    def grow(number: int) -> int:
        return db_engine.merge_json_key(WorkflowRun, "run", "state", f"key {number}", "x" * 4_000_000, AT)

    assert [grow(number) for number in range(4)] == [1] * 4
    with pytest.raises(PayloadError, match="16 MB"):
        grow(4)


def test_time_is_the_server_s(db_engine: Engine) -> None:
    assert abs(db_engine.now() - datetime.now(UTC)) < timedelta(seconds=5)
