"""What is special about MariaDB: deadlocks, collations, JSON as text."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from queue import SimpleQueue
from typing import Any

import pytest
from django.db import OperationalError, connection, connections, transaction

from pikku_storage.db import engine
from pikku_storage.db.mysql import DEADLOCK, TRIES, MysqlEngine
from pikku_storage.db.operations import Insert, Update
from pikku_storage.workflows.models import WorkflowRun, WorkflowStep, WorkflowStepHistory, WorkflowVersion
from pikku_storage.workflows.querysets import StepQuerySet
from pikku_storage.workflows.runs import WorkflowRunService

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(connection.vendor != "mysql", reason="about MariaDB"),
]

AT = datetime(2026, 3, 2, tzinfo=UTC)
LOCK_WAIT_TIMEOUT = 1205


@pytest.fixture
def db_engine() -> MysqlEngine:
    """The engine of this test run."""
    made = engine("default")
    assert isinstance(made, MysqlEngine)
    return made


def new_run(run_id: str, **values: Any) -> Insert:
    row = {"id": run_id, "workflow": "orders", "status": "running", "created_at": AT, "updated_at": AT, **values}
    return Insert(WorkflowRun, row)


def count_up(run_id: str, value: int) -> Update:
    return Update(WorkflowRun, {"id": run_id}, {"redrives": value})


def await_lock(connection_id: int) -> None:
    """Wait until that connection waits for a row that somebody else holds."""
    with connection.cursor() as cursor:
        for _ in range(100):
            # The server itself refreshes this table every tenth of a second.
            time.sleep(0.2)
            cursor.execute(
                "SELECT 1 FROM information_schema.innodb_trx "
                "WHERE trx_mysql_thread_id = %s AND trx_state = 'LOCK WAIT'",
                [connection_id],
            )
            if cursor.fetchone():
                return
    raise AssertionError("it never waited")


def test_a_write_that_the_server_undid_is_written_after_all(db_engine: MysqlEngine) -> None:
    for run_id in "ab":
        db_engine.apply(new_run(run_id))
    began: SimpleQueue[int] = SimpleQueue()
    seen: list[str] = []

    def note(execute: Any, sql: str, *rest: Any) -> Any:
        seen.append(sql)
        return execute(sql, *rest)

    def write() -> tuple[int, ...]:
        try:
            mine = connections["default"]
            mine.ensure_connection()
            began.put(mine.connection.thread_id())
            with mine.execute_wrapper(note):
                return db_engine.apply(count_up("a", 1), count_up("b", 2))
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            # InnoDB undoes the transaction that has changed less.
            for number in range(50):
                db_engine.apply(new_run(f"more {number}"))
            db_engine.apply(count_up("b", 10))
            written = pool.submit(write)
            await_lock(began.get(timeout=30))
            # Each now holds what the other waits for.
            db_engine.apply(count_up("a", 10))
        assert written.result(30) == (1, 1)
    assert len(seen) == 4, "both statements, twice"
    assert [WorkflowRun.objects.get(pk=run_id).redrives for run_id in "ab"] == [1, 2]


class Failing:
    """A write that fails with a code of the server some times."""

    def __init__(self, code: int, times: int) -> None:
        self.code, self.times, self.calls = code, times, 0

    def __call__(self) -> str:
        self.calls += 1
        if self.calls <= self.times:
            raise OperationalError(self.code, "said the server")
        return "written"


def test_a_deadlock_is_tried_again_and_not_for_ever(db_engine: MysqlEngine) -> None:
    write = Failing(DEADLOCK, TRIES - 1)
    assert (db_engine.retrying(write), write.calls) == ("written", TRIES)

    write = Failing(DEADLOCK, TRIES)
    with pytest.raises(OperationalError, match="said the server"):
        db_engine.retrying(write)
    assert write.calls == TRIES


def test_other_troubles_are_the_callers(db_engine: MysqlEngine) -> None:
    write = Failing(LOCK_WAIT_TIMEOUT, 1)
    with pytest.raises(OperationalError, match="said the server"):
        db_engine.retrying(write)
    assert write.calls == 1


def test_inside_a_transaction_there_is_one_try(db_engine: MysqlEngine) -> None:
    """The server has undone what came before in it, too."""
    write = Failing(DEADLOCK, 1)
    with pytest.raises(OperationalError, match="said the server"), transaction.atomic():
        db_engine.retrying(write)
    assert write.calls == 1


class OneDeadlock:
    """Ends the first statement that begins like this in a deadlock."""

    def __init__(self, beginning: str) -> None:
        self.beginning, self.ended = beginning, 0

    def __call__(self, execute: Any, sql: str, *rest: Any) -> Any:
        if sql.startswith(self.beginning) and not self.ended:
            self.ended += 1
            raise OperationalError(DEADLOCK, "said the server")
        return execute(sql, *rest)


STEPS: StepQuerySet = WorkflowStep.objects.all()


@pytest.mark.parametrize(
    ("beginning", "write", "answer"),
    [
        ("UPDATE `workflow_step`", lambda: STEPS.hurry("failed", at=AT), True),
        ("UPDATE `workflow_step`", lambda: STEPS.settle_idle("run"), 1),
        ("DELETE FROM `workflow_step_history`", lambda: WorkflowRunService().delete_run("run"), True),
        ("DELETE FROM `workflow_step`", lambda: WorkflowRunService().delete_run("run"), True),
        ("DELETE FROM `workflow_runs`", lambda: WorkflowRunService().delete_run("run"), True),
    ],
)
def test_single_writes_are_tried_again_too(
    db_engine: MysqlEngine, beginning: str, write: Callable[[], Any], answer: Any
) -> None:
    db_engine.apply(new_run("run"))
    times = {"due_at": AT, "created_at": AT, "updated_at": AT}
    WorkflowStep.objects.create(pk="failed", run_id="run", step_name="failed", status="failed", **times)
    WorkflowStepHistory._default_manager.create(pk="attempt", step_id="failed", status="failed", created_at=AT)

    with connection.execute_wrapper(deadlock := OneDeadlock(beginning)):
        assert write() == answer
    assert deadlock.ended == 1


@pytest.fixture
def columns() -> Iterator[dict[tuple[str, str], tuple[str, str | None]]]:
    """Type and collation of each column of our tables."""
    tables = [model._meta.db_table for model in (WorkflowRun, WorkflowStep, WorkflowStepHistory, WorkflowVersion)]
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT table_name, column_name, data_type, collation_name FROM information_schema.columns "
            "WHERE table_schema = DATABASE() AND table_name IN %s",
            [tables],
        )
        yield {(table, column): (kind, collation) for table, column, kind, collation in cursor.fetchall()}


def test_every_text_has_the_collation_that_tells_all_apart(columns: dict[Any, tuple[str, str | None]]) -> None:
    texts = {kind for kind, collation in columns.values() if collation is not None}
    assert texts == {"varchar", "longtext"}
    assert {collation for _, collation in columns.values()} == {"utf8mb4_nopad_bin", None}


def test_the_server_checks_no_json(columns: dict[Any, tuple[str, str | None]]) -> None:
    """Its own check would refuse more than 31 levels."""
    assert columns["workflow_step", "result"] == ("longtext", "utf8mb4_nopad_bin")
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT COUNT(*) FROM information_schema.check_constraints WHERE constraint_schema = DATABASE() "
            "AND table_name LIKE 'workflow%%'"
        )
        assert cursor.fetchone() == (0,)


@pytest.mark.parametrize("levels", [29, 30, 31, 32, 99])
def test_a_state_too_deep_for_the_servers_functions_is_merged_all_the_same(db_engine: MysqlEngine, levels: int) -> None:
    deep: Any = "bottom"
    for _ in range(levels):
        deep = [deep]
    db_engine.apply(new_run("run", state={"a": 1, "n": None}))

    for key, value in [("deep", deep), ("b", {"x": None}), ("a", 2), ("deep", [deep]), ("b", deep)]:
        assert db_engine.merge_json_key(WorkflowRun, "run", "state", key, value, AT) == 1

    run = WorkflowRun.objects.get(pk="run")
    assert run.state == {"a": 2, "n": None, "deep": [deep], "b": deep}
    assert run.updated_at == AT
    assert db_engine.merge_json_key(WorkflowRun, "run", "state", "deep", 0, AT) == 1
    assert db_engine.merge_json_key(WorkflowRun, "nobody", "state", "deep", deep, AT) == 0
