"""The mirror: another database has what the engine wrote, and never gets in its way."""

from __future__ import annotations

import itertools
import logging
import random
import time
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.db import IntegrityError, OperationalError, connections, transaction
from pytest_django import Settings

from pikku_storage.db import clock
from pikku_storage.exceptions import FinalError, StepTimeoutError, WorkflowStepFailedError
from pikku_storage.workflows import current_step, function, mirroring, workflow
from pikku_storage.workflows.definitions import WorkflowDefinition
from pikku_storage.workflows.flow import Flow
from pikku_storage.workflows.mirror import WorkflowMirror, _ends_a_run, runs_of
from pikku_storage.workflows.mirroring import LONGEST_PAUSE, PAUSE, Write
from pikku_storage.workflows.models import (
    WorkflowRun,
    WorkflowSchedule,
    WorkflowStep,
    WorkflowStepHistory,
    WorkflowVersion,
)
from pikku_storage.workflows.runs import WorkflowRunService
from pikku_storage.workflows.schedules.service import ScheduleService
from pikku_storage.workflows.service import WorkflowService
from tests.conformance.failing import WAYS, Way, failing
from tests.conformance.recording import RecordingDispatcher
from tests.conformance.support import DATABASE, MINUTE, MIRROR, connection, mirrored, needs_transactions
from tests.factories import RunFactory, StepFactory

pytestmark = mirrored

STRIDE = 7 if connection.vendor == "sqlite" else 29
"""Each so many statements one fails. The mirror's are the same wherever the runs are."""
LOGGER = mirroring.logger.name


def differences() -> dict[str, int]:
    """How many rows of each table differ between the two databases."""
    different: Counter[str] = Counter()
    for gap in WorkflowMirror(MIRROR).pair.compare():
        different[gap.model._meta.db_table] += len(gap)
    return {table: rows for table, rows in different.items() if rows}


def rows_in(alias: str) -> int:
    """How many rows of ours a database has."""
    models: list[Any] = [WorkflowRun, WorkflowStep, WorkflowStepHistory, WorkflowVersion]
    return sum(model._default_manager.using(alias).count() for model in models)


def empty_the_mirror() -> None:
    """As before its first write."""
    for model in (WorkflowStepHistory, WorkflowStep, WorkflowRun, WorkflowVersion):
        model._default_manager.using(MIRROR).delete()


def everything(name: str = "order") -> WorkflowDefinition[Any]:
    """A workflow with retries, a fan-out, a sleep, compensation and state."""

    @function(retries=2, retry_delay=0)
    def flaky() -> dict[str, Any]:
        if current_step().attempt < 3:
            raise ValueError(f"no luck in attempt {current_step().attempt}")
        return {"tries": [1, 2.5, True, None, "ö\u2028"]}

    @function(queued=True, retries=1, retry_delay=0)
    def pack(parcel: int) -> int:
        if parcel == 2 and current_step().attempt == 1:
            raise ValueError("no box")
        return parcel

    @function
    def refund(error: Any, input: Any, invocation_id: str) -> str:
        return f"refunded {input['amount']}"

    @function
    def charge(amount: int) -> None:
        raise FinalError("no funds")

    @workflow(name=name)
    def order(flow: Flow) -> Any:
        flow.set_state("stage", {"name": "begun"})
        flow.do("flaky", flaky)
        parcels = flow.map("pack", pack, [1, 2, 3])
        flow.set_state("stage", "packed")
        flow.sleep("rest", 1)
        try:
            flow.do("charge", charge, {"amount": 5}, on_error=refund)
        except WorkflowStepFailedError:
            return {"parcels": parcels, "paid": False}

    return order


def live(definition: WorkflowDefinition[Any], service: WorkflowService, outbox: RecordingDispatcher) -> str:
    """From the start to the end, with workers and a relay; answers with the run's id."""
    run = definition.start()
    outbox.deliver()
    for minutes in itertools.count(1):
        if run.status == "completed":
            break
        with clock.travel(minutes * MINUTE):
            service.relay()
            outbox.deliver()
    assert run.output == {"parcels": [1, 2, 3], "paid": False}
    return run.id


# -- what reaches it ---------------------------------------------------------------------------------------------------


@pytest.mark.contract("MI-01", "MI-02")
def test_a_whole_run_is_the_same_on_both_sides(
    mirror: Any, service: WorkflowService, outbox: RecordingDispatcher
) -> None:
    run_id = live(everything(), service, outbox)

    assert differences() == {}
    copy = WorkflowMirror(MIRROR)
    assert copy.get_run(run_id) == service.get_run(run_id)
    assert copy.get_run_state(run_id) == {"stage": "packed"}
    assert copy.list_step_states(run_id) == service.list_step_states(run_id)
    assert copy.get_run_timeline(run_id) == service.get_run_timeline(run_id)
    assert {step.step_name: step.attempt_count for step in copy.list_step_states(run_id)} == {
        "flaky": 3,
        "pack[0]": 1,
        "pack[1]": 2,
        "pack[2]": 1,
        "rest": 1,
        "charge": 1,
        "charge:onError": 1,
    }


def test_each_write_of_a_run_is_there_before_the_next_one(
    mirror: Any, service: WorkflowService, outbox: RecordingDispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Leases, claims and wake-ups as well, and none of them by comparing whole runs but where a run ends."""
    compared: list[str] = []
    repeat, copy_runs = WorkflowMirror.repeat, mirror_pair().copy_runs

    def repeat_and_compare(self: WorkflowMirror, write: Write) -> None:
        repeat(self, write)
        assert differences() == {}, write

    def noting(self: Any, run_ids: list[str]) -> int:
        compared.extend(run_ids)
        return int(copy_runs.__func__(self, run_ids))

    monkeypatch.setattr(WorkflowMirror, "repeat", repeat_and_compare)
    monkeypatch.setattr(type(mirror_pair()), "copy_runs", noting)
    run_id = live(everything(), service, outbox)
    assert compared == [run_id]


def mirror_pair() -> Any:
    """The two databases."""
    return WorkflowMirror(MIRROR).pair


ROW_OPERATIONS: dict[str, Callable[[WorkflowService, str, str], Any]] = {
    "create_run": lambda service, run_id, step_id: service.create_run("orders", {"n": 1}, planned_steps=["a"]),
    "update_run_status": lambda service, run_id, step_id: service.update_run_status(run_id, "completed", output=0),
    "insert_step_state": lambda service, run_id, step_id: service.insert_step_state(run_id, "b", "work", retries=1),
    "set_step_running": lambda service, run_id, step_id: service.set_step_running(step_id),
    "set_step_scheduled": lambda service, run_id, step_id: service.set_step_scheduled(step_id),
    "set_step_result": lambda service, run_id, step_id: service.set_step_result(step_id, [1, {"a": None}]),
    "set_step_error": lambda service, run_id, step_id: service.set_step_error(step_id, ValueError("no")),
    "create_retry_attempt": lambda service, run_id, step_id: (
        service.set_step_error(step_id, ValueError("no")) and service.create_retry_attempt(step_id)
    ),
    "set_step_child_run_id": lambda service, run_id, step_id: service.set_step_child_run_id(step_id, "child"),
    "set_branch_taken": lambda service, run_id, step_id: service.set_branch_taken(step_id, "left"),
    "update_run_state": lambda service, run_id, step_id: service.update_run_state(run_id, 'a"b.c', {"n": [1]}),
    "upsert_workflow_version": lambda service, run_id, step_id: service.upsert_workflow_version("w", "1", {}, "graph"),
    "update_workflow_version_status": lambda service, run_id, step_id: service.update_workflow_version_status(
        "w", "1", "declined"
    ),
    "claim_step": lambda service, run_id, step_id: service.claim_step(run_id, "a"),
    "resume_workflow": lambda service, run_id, step_id: service.resume_workflow(run_id),
    "cancel_workflow": lambda service, run_id, step_id: service.cancel_workflow(run_id),
}


@pytest.mark.contract("MI-01", "MI-02")
def test_each_operation_reaches_it(mirror: Any, service: WorkflowService) -> None:
    copy = WorkflowMirror(MIRROR)
    for name, operation in ROW_OPERATIONS.items():
        step = StepFactory.create(step_name="a", retries=3)
        assert copy.get_run(step.run_id) == service.get_run(step.run_id)
        assert copy.get_step_state(step.run_id, "a") == step

        assert operation(service, step.run_id, step.step_id), name

        assert differences() == {}, name


@pytest.mark.contract("MI-03")
def test_an_error_arrives_as_it_is_stored(mirror: Any, service: WorkflowService) -> None:
    step = StepFactory.create()
    service.set_step_error(step.step_id, ValueError("no luck"))

    error = WorkflowMirror(MIRROR).get_step_state(step.run_id, step.step_name).error
    assert error == service.get_step_state(step.run_id, step.step_name).error
    assert error is not None
    assert (error["message"], set(error) >= {"message", "stack"}) == ("no luck", True)


def test_a_retried_run_and_a_deleted_one(mirror: Any, service: WorkflowService, runs: WorkflowRunService) -> None:
    @workflow
    def order(flow: Flow) -> None:
        flow.do("first", lambda: 1)
        flow.do("second", lambda: 1 // 0, retries=0)

    run = order.run()
    again = service.retry_run(run.id)
    assert [step.step_name for step in WorkflowMirror(MIRROR).list_step_states(again.id)] == ["first"]
    assert differences() == {}

    runs.delete_run(run.id)
    assert WorkflowRunService(MIRROR).get_run(run.id) is None
    assert WorkflowRunService(MIRROR).get_run(again.id) is not None
    assert differences() == {}


def test_other_databases_are_not_mirrored(mirror: Any) -> None:
    """What is written to the mirror itself stays there."""
    copy = WorkflowService(using=MIRROR)
    copy.set_step_running(copy.insert_step_state(copy.create_run("orders"), "a").step_id)
    assert (rows_in(MIRROR), rows_in(DATABASE)) == (3, 0)


@pytest.mark.contract("MI-07")
def test_without_a_mirror_there_is_none(mirror: Any, settings: Settings) -> None:
    settings.PIKKU_STORAGE = {**settings.PIKKU_STORAGE, "MIRROR": None}
    step = StepFactory.create()
    assert WorkflowService().set_step_result(step.step_id, 1)
    assert (rows_in(MIRROR), rows_in(DATABASE)) == (0, 3)


# -- only what landed --------------------------------------------------------------------------------------------------


class Recorder:
    """A mirror of one's own: a list."""

    PATH = "tests.conformance.test_mirror.Recorder"
    writes: list[Write] = []
    error: BaseException | None = None

    def repeat(self, write: Write) -> None:
        """Keep it, or fail."""
        self.writes.append(write)
        if self.error is not None:
            raise self.error


@pytest.fixture
def recorder(mirror: Any, settings: Settings) -> type[Recorder]:
    """The mirror of this test."""
    settings.PIKKU_STORAGE = {**settings.PIKKU_STORAGE, "MIRROR": Recorder.PATH}
    mirroring.mirror.cache_clear()
    # The path is imported under its name, which need not be this module.
    from django.utils.module_loading import import_string

    imported: type[Recorder] = import_string(Recorder.PATH)
    imported.writes, imported.error = [], None
    return imported


@pytest.mark.contract("MI-04", "MI-05")
def test_what_did_not_land_is_not_mirrored(recorder: type[Recorder], service: WorkflowService) -> None:
    step = StepFactory.create(step_name="a")
    service.update_run_status(step.run_id, "completed")
    assert len(recorder.writes) == 3
    recorder.writes.clear()

    assert not service.update_run_status(step.run_id, "failed")
    assert not service.update_run_state("nobody", "key", 1)
    assert not service.set_step_result(step.step_id, 1, attempt=7)
    assert service.claim_step(step.run_id, "a") is None
    with pytest.raises(IntegrityError):
        service.insert_step_state(step.run_id, "a")
    with pytest.raises(IntegrityError):
        service.insert_step_state("nobody", "a")
    with failing(1, "refused") as failure:
        service.set_step_running(step.step_id)
    assert failure.reached
    assert recorder.writes == []


@pytest.mark.contract("MI-04")
@needs_transactions
def test_what_is_rolled_back_is_not_mirrored(mirror: Any, service: WorkflowService) -> None:
    with transaction.atomic(using=DATABASE):
        lost = StepFactory.create()
        service.set_step_running(lost.step_id)
        transaction.set_rollback(True, using=DATABASE)
    with transaction.atomic(using=DATABASE):
        kept = StepFactory.create()
        with transaction.atomic(using=DATABASE):
            service.set_step_error(kept.step_id, ValueError("no"))
            transaction.set_rollback(True, using=DATABASE)
        service.set_step_result(kept.step_id, "yes")
        assert rows_in(MIRROR) == 0, "not before the commit"

    assert [run.id for run in WorkflowRunService(MIRROR).list_runs()] == [kept.run_id]
    assert differences() == {}


def test_what_a_body_does_to_a_result_before_the_commit_is_not_mirrored(mirror: Any) -> None:
    @workflow
    def order(flow: Flow) -> list[int]:
        numbers: list[int] = flow.do("count", lambda: [1])
        numbers.append(2)
        return numbers

    with transaction.atomic(using=DATABASE):
        run = order.run()
    assert run.output == [1, 2]
    assert WorkflowMirror(MIRROR).get_step_state(run.id, "count").result == [1]
    assert differences() == {}


# -- order, and what is missing ----------------------------------------------------------------------------------------


def test_writes_that_arrive_in_any_order_end_alike(
    recorder: type[Recorder], service: WorkflowService, outbox: RecordingDispatcher
) -> None:
    """As those of workers may, whose processes are held up between their write and its repetition."""
    run_id = live(everything(), service, outbox)
    service.update_run_state(run_id, "stage", "late")
    writes = list(recorder.writes)
    assert len(writes) > 30
    for seed in range(5):
        random.Random(seed).shuffle(writes)  # noqa: S311 - no secret
        empty_the_mirror()
        for write in writes:
            WorkflowMirror(MIRROR).repeat(write)
        assert differences() == {}, seed


def test_what_was_missed_on_the_way_is_there_in_the_end(
    recorder: type[Recorder], service: WorkflowService, outbox: RecordingDispatcher
) -> None:
    """Any five writes, if they are not the last."""
    live(everything(), service, outbox)
    for missed in range(0, len(recorder.writes) - 5, 5):
        empty_the_mirror()
        for number, write in enumerate(recorder.writes):
            if not missed <= number < missed + 5:
                WorkflowMirror(MIRROR).repeat(write)
        assert differences().keys() <= {"workflow_versions"}, "which belong to no run"


def test_the_next_write_brings_over_what_was_there_before(
    recorder: type[Recorder], service: WorkflowService, settings: Settings
) -> None:
    step = StepFactory.create()
    other = StepFactory.create(run_id=step.run_id)
    settings.PIKKU_STORAGE = {**settings.PIKKU_STORAGE, "MIRROR": MIRROR}
    service.set_step_running(step.step_id)
    assert WorkflowMirror(MIRROR).list_step_states(step.run_id) == service.list_step_states(step.run_id)
    service.set_branch_taken(other.step_id, "left")
    assert differences() == {}


def test_a_write_names_its_run(recorder: type[Recorder], service: WorkflowService, runs: WorkflowRunService) -> None:
    step = StepFactory.create()
    service.set_step_scheduled(step.step_id)
    service.set_step_error(step.step_id, ValueError("no"))
    service.update_run_state(step.run_id, "key", 1)
    service.upsert_workflow_version("w", "1", {}, "graph")
    assert [runs_of(write) for write in recorder.writes] == [[step.run_id]] * 5 + [[]]


# -- in nobody's way ---------------------------------------------------------------------------------------------------


@pytest.mark.contract("MI-06")
@pytest.mark.parametrize("error", [OperationalError("down"), OSError("down"), ValueError("bad"), KeyError("bad")])
def test_a_mirror_that_always_fails_is_a_warning(
    recorder: type[Recorder],
    service: WorkflowService,
    outbox: RecordingDispatcher,
    caplog: pytest.LogCaptureFixture,
    error: BaseException,
) -> None:
    recorder.error = error
    with caplog.at_level(logging.WARNING, LOGGER):
        run_id = live(everything(), service, outbox)
    said = [record for record in caplog.records if record.name == LOGGER]
    assert all(record.levelno == logging.WARNING for record in said)
    assert any(f"misses a write of run {run_id}" in record.getMessage() for record in said) or len(said) == 1
    assert len(said) == len(recorder.writes)


@pytest.mark.contract("MI-06")
def test_a_mirror_that_cannot_be_made_is_a_warning(
    recorder: type[Recorder], settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    settings.PIKKU_STORAGE = {**settings.PIKKU_STORAGE, "MIRROR": "nowhere.Mirror"}
    run = RunFactory.create()
    assert f"The mirror 'nowhere.Mirror' misses a write of run {run.id}" in caplog.text


@pytest.mark.contract("MI-06")
@pytest.mark.parametrize("way", WAYS)
def test_whichever_statement_fails_there_the_run_is_none_the_worse(
    mirror: Any, service: WorkflowService, outbox: RecordingDispatcher, monkeypatch: pytest.MonkeyPatch, way: Way
) -> None:
    monkeypatch.setattr(mirroring, "PAUSE", 0.0)
    monkeypatch.setattr(mirroring, "LONGEST_PAUSE", 0.0)
    missed: list[Write] = []
    repeat = WorkflowMirror.repeat

    def noting(self: WorkflowMirror, write: Write) -> None:
        try:
            repeat(self, write)
        except Exception:
            missed.append(write)
            raise

    monkeypatch.setattr(WorkflowMirror, "repeat", noting)
    order = everything()
    for at in itertools.count(1, STRIDE):
        missed.clear()
        with failing(at, way, connections[MIRROR]) as failure:
            live(order, service, outbox)
        assert bool(missed) == (failure.reached is not None)
        if way != "down" and not any(map(_ends_a_run, missed)):
            assert differences() in ({}, {"workflow_versions": 1}), failure.reached
        WorkflowMirror(MIRROR).catch_up()
        assert differences() == {}, failure.reached
        if failure.reached is None:
            break
        outbox.reset()
    assert at > 60


def test_a_mirror_that_is_down_is_left_alone_for_a_while(
    recorder: type[Recorder],
    service: WorkflowService,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = itertools.accumulate(itertools.repeat(0.0), initial=1_000.0)
    moments = {"now": next(now), "takes": 0.0}

    class Time:
        """Stands still, but for what a failure takes."""

        @staticmethod
        def monotonic() -> float:
            moments["now"] += moments["takes"]
            return moments["now"]

    monkeypatch.setattr(mirroring, "time", Time)
    run = RunFactory.create()
    recorder.writes.clear()

    def write(times: int = 1) -> int:
        """How many of these writes the mirror is told of."""
        recorder.writes.clear()
        for number in range(times):
            assert service.update_run_state(run.id, "n", number)
        return len(recorder.writes)

    for takes, pause in ((0.01, PAUSE), (1.0, 10.0), (30.0, LONGEST_PAUSE)):
        recorder.error, moments["takes"] = OperationalError("down"), takes
        assert write() == 1
        moments["takes"] = 0.0
        assert write(3) == 0
        moments["now"] += pause - 0.1
        assert write(1) == 0
        moments["now"] += 0.2
        recorder.error = None
        caplog.clear()
        assert write(2) == 2
        (said,) = [record.getMessage() for record in caplog.records if record.name == LOGGER]
        assert "answers again. It missed 5 writes of this process" in said

    recorder.error = ValueError("one bad row")
    assert write(3) == 3, "which is no reason to leave the others out"


def test_the_time_limit_of_a_step_is_not_swallowed(recorder: type[Recorder], service: WorkflowService) -> None:
    run = RunFactory.create()
    recorder.error = StepTimeoutError("too long")
    with pytest.raises(StepTimeoutError):
        service.update_run_state(run.id, "key", 1)


def test_a_mirror_that_is_slow_to_fail_costs_one_write(
    mirror: Any, service: WorkflowService, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunFactory.create()
    tries: list[float] = []

    def refuse() -> None:
        tries.append(time.monotonic())
        raise OperationalError("no route to host")

    # Longer than twenty writes take on a busy machine.
    monkeypatch.setattr(mirroring, "PAUSE", LONGEST_PAUSE)
    mirror.close()
    with monkeypatch.context() as patch:
        patch.setattr(mirror, "connect", refuse)
        for number in range(20):
            assert service.update_run_state(run.id, "n", number)
    assert len(tries) == 1


# -- catching up -------------------------------------------------------------------------------------------------------


def called(*args: str) -> tuple[int, str]:
    """Exit code and output of `manage.py mirror`."""
    from io import StringIO

    out = StringIO()
    try:
        call_command("mirror", *args, stdout=out)
    except SystemExit as ended:
        return int(ended.code or 0), out.getvalue()
    return 0, out.getvalue()


def test_what_was_missed_is_brought_over(
    recorder: type[Recorder],
    service: WorkflowService,
    runs: WorkflowRunService,
    outbox: RecordingDispatcher,
    settings: Settings,
) -> None:
    settings.PIKKU_STORAGE = {**settings.PIKKU_STORAGE, "MIRROR": MIRROR}
    deleted, kept = RunFactory.create(), RunFactory.create()
    settings.PIKKU_STORAGE = {**settings.PIKKU_STORAGE, "MIRROR": Recorder.PATH}
    runs.delete_run(deleted.id)
    live(everything(), service, outbox)
    service.update_run_state(kept.id, "key", 1)
    missed = {"workflow_runs": 3, "workflow_step": 7, "workflow_step_history": 10, "workflow_versions": 1}
    assert differences() == missed

    settings.PIKKU_STORAGE = {**settings.PIKKU_STORAGE, "MIRROR": MIRROR}
    said = "".join(f"{table}: {rows} rows differ\n" for table, rows in sorted(missed.items()))
    assert called() == (1, said)
    assert called("--catch-up") == (0, "21 rows brought over\n")
    assert called("--catch-up") == (0, "0 rows brought over\n")
    assert called()[0] == 0
    assert differences() == {}


def test_only_some_runs_are_brought_over(mirror: Any, service: WorkflowService, settings: Settings) -> None:
    settings.PIKKU_STORAGE = {**settings.PIKKU_STORAGE, "MIRROR": None}
    first, second = StepFactory.create(), StepFactory.create()
    settings.PIKKU_STORAGE = {**settings.PIKKU_STORAGE, "MIRROR": MIRROR}
    assert called(first.run_id)[0] == 1
    assert called("--catch-up", first.run_id) == (0, "3 rows brought over\n")
    assert called(first.run_id)[0] == 0
    assert [run.id for run in WorkflowRunService(MIRROR).list_runs()] == [first.run_id]
    assert called(second.run_id)[0] == 1


def test_what_is_older_is_not_looked_at_unless_something_of_it_is_due(
    mirror: Any, service: WorkflowService, outbox: RecordingDispatcher, settings: Settings
) -> None:
    """A week's worth of ended runs need not be read for an hour that the mirror was down."""

    @workflow
    def quick(flow: Flow) -> None:
        flow.do("one", lambda: 1)

    waiting = RunFactory.create()
    outside = StepFactory.create()
    service.set_step_running(outside.step_id)
    service.cancel_workflow(outside.run_id)
    settings.PIKKU_STORAGE = {**settings.PIKKU_STORAGE, "MIRROR": None}
    old = quick.run()
    with clock.travel(timedelta(hours=5)):
        recent = quick.run()
        # Each leaves another trace: a due time, a time of its own, no trace but in the mirror.
        service.resume_workflow(waiting.id)
        service.set_step_result(outside.step_id, 1)
        settings.PIKKU_STORAGE = {**settings.PIKKU_STORAGE, "MIRROR": MIRROR}
        assert called("--catch-up", "--since", "2h")[0] == 0
    assert WorkflowRunService(MIRROR).get_run(recent.id) is not None
    assert WorkflowRunService(MIRROR).get_run(old.id) is None
    assert differences() == {"workflow_runs": 1, "workflow_step": 1, "workflow_step_history": 1}
    assert called("--catch-up", "--since", "2020-01-01")[0] == 0
    assert differences() == {}


@pytest.mark.parametrize(
    ("named", "args", "said"),
    [
        (None, (), "The mirror None is no alias"),
        ("tests.conformance.test_mirror.Recorder", ("--catch-up",), "is no alias in DATABASES"),
        (MIRROR, ("--since", "yesterday"), "neither an ISO time nor a duration"),
    ],
)
def test_what_cannot_be_caught_up_is_said(
    mirror: Any, settings: Settings, named: str | None, args: tuple[str, ...], said: str
) -> None:
    from django.core.management import CommandError

    settings.PIKKU_STORAGE = {"MIRROR": named}
    with pytest.raises(CommandError, match=said):
        called(*args)


def test_more_than_a_page_is_brought_over(
    mirror: Any, service: WorkflowService, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pikku_storage.workflows import catch_up

    for name, value in {"BATCH": 2, "KEYS": 3, "ROWS": 2}.items():
        monkeypatch.setattr(catch_up, name, value)
    left = [RunFactory.create() for _ in range(5)]
    settings.PIKKU_STORAGE = {**settings.PIKKU_STORAGE, "MIRROR": None}
    for run in left:
        WorkflowRunService().delete_run(run.id)
    for _ in range(5):
        run_id = RunFactory.create().id
        for _ in range(4):
            StepFactory.create(run_id=run_id)
    assert differences() == {"workflow_runs": 10, "workflow_step": 20, "workflow_step_history": 20}
    assert WorkflowMirror(MIRROR).catch_up() == 50
    assert differences() == {}


# -- the mirror's own operations, for an engine that is not ours -------------------------------------------------------


@pytest.fixture
def copy(mirror: Any) -> WorkflowMirror:
    """The mirror, written by hand."""
    return WorkflowMirror()


@pytest.mark.contract("KM-01", "KM-02", "KM-03", "KM-04", "KM-16")
def test_a_run_written_by_hand(copy: WorkflowMirror) -> None:
    given = copy.create_run("orders", {"n": 1}, graph_hash="1", wire={"type": "http"}, run_id="run-1")
    reader = WorkflowRunService(MIRROR)
    run = reader.get_run("run-1")
    assert run is not None
    assert (given, run.workflow, run.status, run.input, run.graph_hash) == ("run-1", "orders", "running", {"n": 1}, "1")

    copy.update_run_status("run-1", "completed", output={"ok": True})
    run = WorkflowService(using=MIRROR).get_run("run-1")
    assert run is not None
    assert (run.status, run.output, run.error) == ("completed", {"ok": True}, None)
    assert [run.id for run in reader.list_runs(workflow_name="orders")] == ["run-1"]
    assert reader.get_distinct_workflow_names() == ["orders"]
    assert rows_in(DATABASE) == 0

    assert copy.create_run("others", run_id="run-1") == "run-1"
    assert reader.get_distinct_workflow_names() == ["orders"]


@pytest.mark.contract("KM-05", "KM-06", "KM-07", "KM-08", "KM-09", "KM-10", "KM-11")
def test_a_step_written_by_hand(copy: WorkflowMirror) -> None:
    run_id = copy.create_run("orders", run_id="run-1")
    reader = WorkflowRunService(MIRROR)
    for name in ("good", "bad"):
        state = copy.insert_step_state(run_id, name, "work", from_step_name="start", retries=1, step_id=f"id of {name}")
        assert state.step_id == f"id of {name}"
    assert [(entry.status, entry.from_step_name) for entry in reader.get_run_history(run_id)] == [
        ("pending", "start")
    ] * 2

    assert copy.set_step_running("id of good")
    assert copy.set_step_result("id of good", {"n": 1})
    (good,) = [entry for entry in reader.get_run_history(run_id) if entry.step_name == "good"]
    assert (good.status, good.result) == ("succeeded", {"n": 1})
    assert good.running_at is not None
    assert good.succeeded_at is not None

    error = {"message": "no luck", "stack": "at work", "code": None, "expected": True}
    assert copy.set_step_error("id of bad", error)
    assert copy.get_step_state(run_id, "bad").error == error
    again = copy.create_retry_attempt("id of bad", "running")
    assert (again.step_id, again.attempt_count, again.result, again.error) == ("id of bad", 2, None, None)
    bad = [entry for entry in reader.get_run_history(run_id) if entry.step_name == "bad"]
    assert [(entry.status, entry.error) for entry in bad] == [("failed", error), ("running", None)]

    assert copy.set_step_child_run_id("id of bad", "child")
    assert copy.set_branch_taken("id of bad", "left")
    state = copy.get_step_state(run_id, "bad")
    assert (state.child_run_id, state.branch_taken) == ("child", "left")


@pytest.mark.contract("KM-12")
def test_state_written_by_hand_is_merged(copy: WorkflowMirror) -> None:
    run_id = copy.create_run("orders")
    copy.update_run_state(run_id, "a", 1)
    copy.update_run_state(run_id, "b", {"c": 2})
    assert copy.get_run_state(run_id) == {"a": 1, "b": {"c": 2}}


@pytest.mark.contract("KM-13", "KM-14")
def test_a_version_written_by_hand(copy: WorkflowMirror) -> None:
    assert copy.upsert_workflow_version("orders", "1", {"nodes": 1}, "graph")
    assert not copy.upsert_workflow_version("orders", "1", {"nodes": 2}, "graph")
    version = WorkflowRunService(MIRROR).get_workflow_version("orders", "1")
    assert version is not None
    assert version.graph == {"nodes": 1}
    assert copy.update_workflow_version_status("orders", "1", "declined")
    assert WorkflowVersion.objects.using(MIRROR).get().status == "declined"


@pytest.mark.contract("KM-15")
def test_its_tables_may_be_made_twice(mirror: Any, migrate_the_mirror: Callable[[], None]) -> None:
    run_id = WorkflowMirror().create_run("orders")
    migrate_the_mirror()
    assert WorkflowMirror().get_run(run_id) is not None
    assert not {"auth_user", "django_session"} & set(mirror.introspection.table_names())


def test_a_run_that_a_schedule_starts_is_mirrored_and_the_schedule_is_not(
    mirror: Any, service: WorkflowService, outbox: RecordingDispatcher, caplog: pytest.LogCaptureFixture
) -> None:
    @workflow(name="report")
    def report(flow: Flow) -> None: ...

    schedules = ScheduleService()
    with clock.travel(-120 * MINUTE):
        schedules.create("hourly", "report", "@hourly")
    (run_id,) = service.relay()
    assert WorkflowRun.objects.using(MIRROR).filter(pk=run_id, wire__schedule="hourly").exists()
    assert schedules.pause("hourly")
    assert schedules.delete("hourly")
    outbox.deliver()

    assert differences() == {}
    assert not WorkflowSchedule.objects.using(MIRROR).exists()
    assert [record for record in caplog.records if record.name == LOGGER] == []
