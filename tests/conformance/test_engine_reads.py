"""What an engine promises about many new rows, about reads, and about taking a row, on every database.

Reads and takes are shown twice: as the engine does them, and as `Engine` does them for an engine that brings no way of
its own.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import IntegrityError, transaction

from pikku_storage.agents.runs import AgentRunService
from pikku_storage.agents.service import AgentStorageService
from pikku_storage.db import Engine, engine
from pikku_storage.db.operations import NOT_NULL, Expired, Guard, Insert, InsertMany, OrNull, Update
from pikku_storage.workflows.models import WorkflowRun, WorkflowStep, WorkflowStepHistory
from tests.conformance.support import DATABASE, needs_transactions

pytestmark = pytest.mark.django_db(transaction=True)

AT = datetime(2026, 3, 2, 9, 30, 15, 123_000, tzinfo=UTC)
SECOND = timedelta(seconds=1)
GUARD = Guard(WorkflowRun, {"id": "run", "status": "running"})
STEP = {"run_id": "run", "status": "pending", "current_attempt": 1, "created_at": AT}
PAYLOADS = [
    {"n": 0},
    {"n": True},
    {"n": 1},
    {"n": 1.0},
    {"text": 'a "quoted" \\ line\n{}%s ✓'},
    {"big": 1e20},
    [],
    None,
]


@pytest.fixture
def db_engine() -> Engine:
    """The engine of this test run, with one run."""
    made = engine(DATABASE)
    made.apply(
        Insert(
            WorkflowRun,
            {
                "id": "run",
                "workflow": "orders",
                "status": "running",
                "created_at": AT,
                "updated_at": AT,
                "inline": True,
            },
        )
    )
    return made


@pytest.fixture(params=["its own way", "the common way"])
def read(request: pytest.FixtureRequest, db_engine: Engine) -> Callable[..., list[dict[str, Any]]]:
    """`Engine.read`, as this engine has it and as the base class has it."""
    if request.param == "its own way":
        return db_engine.read
    return lambda *arguments, **options: Engine.read(db_engine, *arguments, **options)


@pytest.fixture(params=["its own way", "the common way"])
def take(request: pytest.FixtureRequest, db_engine: Engine) -> Callable[..., dict[str, Any] | None]:
    """`Engine.take`, likewise."""
    if request.param == "its own way":
        return db_engine.take
    return lambda *arguments, **options: Engine.take(db_engine, *arguments, **options)


def steps(*rows: dict[str, Any], **common: Any) -> InsertMany:
    own = [{"id": f"s{index}", "step_name": f"s{index}", **row} for index, row in enumerate(rows)]
    return InsertMany(WorkflowStep, {**STEP, "updated_at": AT, **common}, own)


def step_ids() -> list[str]:
    return list(WorkflowStep.objects.order_by("id").values_list("id", flat=True))


# -- many new rows -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 700])
def test_many_rows_are_inserted_together(db_engine: Engine, count: int) -> None:
    assert db_engine.apply(steps(*[{}] * count)) == (count,)
    assert len(step_ids()) == count


def test_each_row_has_its_own_values_and_the_common_ones(db_engine: Engine) -> None:
    rows = [{"data": data, "due_at": AT + index * SECOND} for index, data in enumerate(PAYLOADS)]
    db_engine.apply(steps(*rows, group="g", queue=None, timeout_ms=250))
    found = WorkflowStep.objects.order_by("created_at", "id")
    for step, row in zip(found, rows, strict=True):
        assert (repr(step.data), step.due_at) == (repr(row["data"]), row["due_at"])
        assert (step.group, step.queue, step.timeout_ms, step.created_at) == ("g", None, 250, AT)


def test_a_guard_decides_about_many_rows_and_they_decide_about_what_follows(db_engine: Engine) -> None:
    history = InsertMany(
        WorkflowStepHistory,
        {"status": "pending", "created_at": AT},
        [{"id": "h0", "step_id": "s0"}, {"id": "h1", "step_id": "s1"}],
    )
    ended = Guard(WorkflowRun, {"id": "run", "status": "completed"})
    assert db_engine.apply(ended, steps({}, {}), history) == (0, 0, 0)
    assert step_ids() == []
    assert db_engine.apply(GUARD, steps({}, {}), history) == (2, 2, 2)
    assert WorkflowStepHistory.objects.filter(step__run_id="run").count() == 2
    missed = Update(WorkflowRun, {"id": "nobody"}, {"redrives": 1})
    assert db_engine.apply(
        missed, InsertMany(WorkflowStep, {**STEP, "updated_at": AT}, [{"id": "x", "step_name": "x"}])
    ) == (0, 0)


@needs_transactions
def test_one_duplicate_among_many_rows_keeps_all_of_them_out(db_engine: Engine) -> None:
    db_engine.apply(steps({"id": "other", "step_name": "s2"}))
    with pytest.raises(IntegrityError), transaction.atomic():
        db_engine.apply(GUARD, steps({}, {}, {}))
    assert step_ids() == ["other"]


# -- reads -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ({"id": "s1"}, ["s1"]),
        ({"id": ["s0", "s2", "s9"]}, ["s0", "s2"]),
        ({"id": ("s1",)}, ["s1"]),
        ({"due_at": None}, ["s0"]),
        ({"due_at": NOT_NULL}, ["s1", "s2"]),
        ({"due_at": Expired(AT + SECOND)}, ["s0", "s1"]),
        ({"redrives": OrNull(7)}, ["s0", "s2"]),
        ({"run_id": "run", "due_at": NOT_NULL, "redrives": 7}, ["s2"]),
        ({"run_id": "nobody"}, []),
    ],
    ids=repr,
)
def test_a_read_finds_what_meets_its_conditions(
    db_engine: Engine, read: Callable[..., list[dict[str, Any]]], where: dict[str, Any], found: list[str]
) -> None:
    due: list[dict[str, Any]] = [
        {"due_at": None, "redrives": None},
        {"due_at": AT + SECOND, "redrives": 1},
        {"due_at": AT + 2 * SECOND, "redrives": 7},
    ]
    db_engine.apply(steps(*due))
    assert [row["id"] for row in read(WorkflowStep, where, ("id",), order_by=("id",))] == found


def test_a_read_is_in_order_and_ends_at_its_limit(db_engine: Engine, read: Callable[..., list[dict[str, Any]]]) -> None:
    db_engine.apply(steps(*[{"due_at": AT - index * SECOND} for index in range(4)]))
    where = {"run_id": "run"}
    assert [row["id"] for row in read(WorkflowStep, where, ("id",), order_by=("due_at", "id"))] == [
        "s3",
        "s2",
        "s1",
        "s0",
    ]
    assert [row["id"] for row in read(WorkflowStep, where, ("id",), order_by=("due_at",), limit=2)] == ["s3", "s2"]


@pytest.mark.parametrize("data", PAYLOADS, ids=repr)
def test_a_read_gives_values_as_the_orm_does(
    db_engine: Engine, read: Callable[..., list[dict[str, Any]]], data: Any
) -> None:
    db_engine.apply(steps({"data": data}))
    columns = tuple(field.attname for field in WorkflowStep._meta.concrete_fields)
    (row,) = read(WorkflowStep, {"id": "s0"}, columns)
    expected = WorkflowStep.objects.values(*columns).get(pk="s0")
    assert repr(sorted(row.items())) == repr(sorted(expected.items()))


def test_a_read_follows_a_foreign_key(db_engine: Engine, read: Callable[..., list[dict[str, Any]]]) -> None:
    db_engine.apply(steps({}))
    (row,) = read(
        WorkflowStep, {"id": "s0", "status": "pending"}, ("status", "run__status", "run__inline", "run__created_at")
    )
    assert row == {"status": "pending", "run__status": "running", "run__inline": True, "run__created_at": AT}


# -- taking a row ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("durable", [True, False])
def test_a_taken_row_is_told_as_it_is_afterwards(
    db_engine: Engine, take: Callable[..., dict[str, Any] | None], durable: bool
) -> None:
    update = Update(
        WorkflowRun, {"id": "run", "status": "running", "pass_token": None}, {"pass_token": "mine", "error": {"a": 1}}
    )
    row = take(update, ("workflow", "pass_token", "error", "inline", "created_at", "wake_token"), durable=durable)
    assert row == {
        "workflow": "orders",
        "pass_token": "mine",
        "error": {"a": 1},
        "inline": True,
        "created_at": AT,
        "wake_token": None,
    }
    assert take(update, ("id",), durable=durable) is None
    assert WorkflowRun.objects.get().pass_token == "mine"


@needs_transactions
def test_a_row_that_is_taken_in_a_transaction_is_free_after_its_rollback(
    db_engine: Engine, take: Callable[..., dict[str, Any] | None]
) -> None:
    update = Update(WorkflowRun, {"id": "run"}, {"pass_token": "mine"})
    with transaction.atomic():
        assert take(update, ("pass_token",), durable=False) == {"pass_token": "mine"}
        transaction.set_rollback(True)
    assert WorkflowRun.objects.get().pass_token is None


def test_rows_that_others_refer_to() -> None:
    storage, lists = AgentStorageService(), AgentRunService()
    threads = [storage.create_thread(owner).id for owner in ("ada", "ada", "eve")]
    for thread in (threads[0], threads[0], threads[2]):
        storage.create_run(agent_name="helper", thread_id=thread, resource_id="ada")
    storage.create_run(agent_name="other", thread_id=threads[1], resource_id="ada")

    assert {thread.id for thread in lists.list_threads(agent_name="helper")} == {threads[0], threads[2]}
    assert [thread.id for thread in lists.list_threads(agent_name="helper", owners=["ada"])] == [threads[0]]
    assert lists.list_threads(agent_name="nobody") == []
    assert storage.prune_threads(0, agent_name="other") == 1
