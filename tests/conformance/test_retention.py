"""Old runs are deleted, whole, and nothing else is; whatever is cut off is finished by the next call."""

import itertools
from collections.abc import Callable
from datetime import datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import OperationalError
from django.db.models import Model

from pikku_storage.db import clock, engine
from pikku_storage.workflows import workflow
from pikku_storage.workflows.definitions import WorkflowDefinition
from pikku_storage.workflows.engine import retention
from pikku_storage.workflows.flow import Flow
from pikku_storage.workflows.handle import WorkflowRunHandle
from pikku_storage.workflows.models import WorkflowRun, WorkflowStep, WorkflowStepHistory
from pikku_storage.workflows.querysets import LIVE, TERMINAL, StepQuerySet
from pikku_storage.workflows.records import Pruned
from pikku_storage.workflows.runs import WorkflowRunService
from pikku_storage.workflows.service import WorkflowService
from tests.conformance.conftest import Counter
from tests.conformance.failing import failing
from tests.conformance.support import DATABASE, about_sql, connection, data_statements, needs_transactions
from tests.factories import AttemptRowFactory, RunRowFactory, StepRowFactory

pytestmark = pytest.mark.django_db

DAY = timedelta(days=1)
Order = WorkflowDefinition[Any]


@pytest.fixture
def order() -> Order:
    """A workflow whose runs have two steps, one of which is tried twice."""
    calls = itertools.count(1)

    @workflow(name="order")
    def order(flow: Flow) -> int:
        flow.do("pack", lambda: None)
        return flow.do("count", lambda: next(calls), retries=0)

    return order


def run_days_ago(days: float, order: Order, **options: Any) -> WorkflowRunHandle:
    """A run that ended so long ago."""
    with clock.travel(-days * DAY):
        return order.run(**options)


def now() -> datetime:
    return engine(DATABASE).now()


def count(model: type[Model]) -> int:
    return model._default_manager.count()


def left() -> list[str]:
    """The ids of the runs that are there, in their order."""
    return list(WorkflowRun.objects.order_by("created_at", "id").values_list("id", flat=True))


# -- what is deleted ---------------------------------------------------------------------------------------------------


def test_runs_that_ended_long_ago_are_deleted_with_their_steps_and_attempts(
    service: WorkflowService, order: Order
) -> None:
    old = [run_days_ago(days, order) for days in (100, 91)]
    young = [run_days_ago(days, order) for days in (89, 0)]

    assert service.prune_runs("90d", statuses=["completed"]) == Pruned(deleted=2)

    assert left() == [run.id for run in young]
    assert (count(WorkflowStep), count(WorkflowStepHistory)) == (4, 4)
    assert all(service.get_run(run.id) is None for run in old)
    assert service.prune_runs("90d", statuses=["completed"]) == Pruned()


def test_what_counts_is_the_end_of_a_run(service: WorkflowService) -> None:
    began = now() - 100 * DAY
    ended = RunRowFactory.create(status="completed", created_at=began, updated_at=began)
    slept = RunRowFactory.create(status="completed", created_at=began, updated_at=now() - 80 * DAY)

    assert service.prune_runs("90d", statuses=["completed"]) == Pruned(deleted=1)
    assert left() == [slept.id]
    assert ended.id not in left()


@pytest.mark.parametrize("status", TERMINAL)
def test_only_the_statuses_that_are_named_are_deleted(service: WorkflowService, status: str) -> None:
    runs = {each: RunRowFactory.create(status=each).id for each in (*LIVE, *TERMINAL)}
    assert service.prune_runs("1ms", statuses=[status]) == Pruned(deleted=1)
    assert left() == [run_id for each, run_id in runs.items() if each != status]


def test_live_runs_stay_whatever_is_asked_for(service: WorkflowService) -> None:
    runs = {each: RunRowFactory.create(status=each).id for each in (*LIVE, *TERMINAL)}
    assert service.prune_runs(0, statuses=TERMINAL) == Pruned(deleted=3)
    assert left() == [runs[status] for status in LIVE]


def test_only_one_workflow_may_be_asked_for(service: WorkflowService) -> None:
    RunRowFactory.create(status="completed", workflow="a")
    other = RunRowFactory.create(status="completed", workflow="b")
    assert service.prune_runs("1d", statuses=["completed"], workflow_name="a") == Pruned(deleted=1)
    assert left() == [other.id]


def test_a_dry_run_counts_and_deletes_nothing(service: WorkflowService, order: Order) -> None:
    for days in (100, 95, 10):
        run_days_ago(days, order)
    assert service.prune_runs("90d", statuses=["completed"], dry_run=True, batch=1) == Pruned(deleted=2)
    assert (count(WorkflowRun), count(WorkflowStep), count(WorkflowStepHistory)) == (3, 6, 6)


@pytest.mark.parametrize("batch", [1, 3, 7, 8])
def test_every_run_is_come_to_however_the_batches_fall(service: WorkflowService, batch: int) -> None:
    """Also where many began in the same millisecond."""
    began = now() - 100 * DAY
    for number in range(7):
        RunRowFactory.create(status="completed", created_at=began + timedelta(seconds=number // 3))
    told: list[Pruned] = []

    for dry_run in (True, False):
        pruned = service.prune_runs("90d", statuses=["completed"], batch=batch, dry_run=dry_run, progress=told.append)
        assert pruned == told[-1] == Pruned(deleted=7)
    assert len(told) == 2 * -(-7 // batch)
    assert left() == []


def test_a_run_with_more_steps_than_one_statement_deletes(
    service: WorkflowService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "STEPS", 2)
    for steps in (4, 5):
        run = RunRowFactory.create(status="failed")
        for _ in range(steps):
            AttemptRowFactory.create(step=StepRowFactory.create(run=run, status="failed"))

    assert service.prune_runs("1d", statuses=["failed"]) == Pruned(deleted=2)
    assert (count(WorkflowRun), count(WorkflowStep), count(WorkflowStepHistory)) == (0, 0, 0)


# -- what is kept ------------------------------------------------------------------------------------------------------


def test_a_cancelled_run_is_kept_while_a_worker_is_in_a_step_of_it(service: WorkflowService) -> None:
    run = RunRowFactory.create(status="cancelled")
    step = StepRowFactory.create(run=run, status="running", due_at=now())
    other = RunRowFactory.create(status="cancelled")

    assert service.prune_runs("1d", statuses=["cancelled"]) == Pruned(deleted=1, kept=1)
    assert left() == [run.id]
    assert other.id not in left()

    WorkflowStep.objects.filter(pk=step.id).update(status="failed", due_at=None)
    assert service.prune_runs("1d", statuses=["cancelled"]) == Pruned(deleted=1)


def test_a_run_that_was_begun_anew_under_its_old_id_is_left_alone(
    service: WorkflowService, order: Order, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody deleted the old one, and started it again, after this call had found it."""
    old = run_days_ago(100, order, idempotency_key="A17")
    other = run_days_ago(100, order)
    needed = retention._needed

    def meanwhile(*args: Any) -> set[str]:
        answer = needed(*args)
        assert WorkflowRunService().delete_run(old.id)
        anew = order.run(idempotency_key="A17")
        assert (anew.id, anew.output, len(anew.steps())) == (old.id, 3, 2)
        return answer

    monkeypatch.setattr(retention, "_needed", meanwhile)
    assert service.prune_runs("90d", statuses=["completed"]) == Pruned(deleted=1)

    assert left() == [old.id]
    assert other.id not in left()
    assert (count(WorkflowStep), count(WorkflowStepHistory)) == (2, 2)


def test_the_steps_of_a_retry_that_was_made_again_are_left_alone(
    service: WorkflowService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their ids are the old ones' too, so it is their age that tells them apart."""

    @workflow(name="order")
    def order(flow: Flow) -> None:
        flow.do("pack", lambda: None)
        flow.do("ship", lambda: 1 // 0, retries=0)

    failed = order.run()
    with clock.travel(-100 * DAY):
        retry = service.retry_run(failed.id)
        assert retry.cancel()
    steps = [step.step_id for step in retry.steps()]
    remove = StepQuerySet.remove

    def meanwhile(queryset: StepQuerySet, step_ids: Any, **options: Any) -> int:
        monkeypatch.undo()
        assert WorkflowRunService().delete_run(retry.id)
        assert service.retry_run(failed.id).created
        return remove(queryset, step_ids, **options)

    monkeypatch.setattr(StepQuerySet, "remove", meanwhile)
    assert service.prune_runs("90d", statuses=["cancelled"]) == Pruned()

    assert [step.step_id for step in retry.steps()] == steps
    assert [entry.status for entry in WorkflowRunService().get_run_history(retry.id)] == ["succeeded"]


@needs_transactions
@pytest.mark.django_db(transaction=True)
def test_a_run_that_somebody_adds_to_is_left_for_another_time(service: WorkflowService) -> None:
    run = RunRowFactory.create(status="completed")
    AttemptRowFactory.create(step=StepRowFactory.create(run=run, status="succeeded"), created_at=now())

    assert service.prune_runs("90d", statuses=["completed"]) == Pruned(kept=1)
    assert left() == [run.id]


# -- being cut off -----------------------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_whatever_is_cut_off_is_finished_by_the_next_call_and_no_old_result_is_met(
    service: WorkflowService, order: Order
) -> None:
    """At each of the statements the process dies. An id is free only when nothing is left of its run."""
    for at in itertools.count(1):
        key = f"order {at}"
        old = run_days_ago(100, order, idempotency_key=key)
        output = old.output
        now()
        with failing(at, "down") as failure:
            service.prune_runs("90d", statuses=["completed"])

        again = order.run(idempotency_key=key)
        if again.created:
            assert again.output != output
            assert [step.attempt_count for step in again.steps()] == [1, 1]
            assert WorkflowRunService().delete_run(again.id)
        else:
            assert again.output == output
        assert service.prune_runs("90d", statuses=["completed"]) == Pruned(deleted=0 if again.created else 1)
        assert (count(WorkflowRun), count(WorkflowStep), count(WorkflowStepHistory)) == (0, 0, 0)
        if failure.reached is None:
            break
    assert at > 5


@pytest.mark.django_db(transaction=True)
def test_a_deletion_that_was_cut_off_is_finished_by_asking_again(order: Order, runs: WorkflowRunService) -> None:
    for at in itertools.count(1):
        run = order.run()
        now()
        with failing(at, "down") as failure:
            runs.delete_run(run.id)

        assert runs.delete_run(run.id) == (failure.reached is not None)
        assert (count(WorkflowRun), count(WorkflowStep), count(WorkflowStepHistory)) == (0, 0, 0)
        if failure.reached is None:
            break
    assert at > 3


# -- what it costs -----------------------------------------------------------------------------------------------------


def _with_steps(runs: int) -> None:
    for _ in range(runs):
        run = RunRowFactory.create(status="completed")
        for _ in range(2):
            AttemptRowFactory.create(step=StepRowFactory.create(run=run, status="succeeded"))


@pytest.mark.parametrize("runs", [1, 40])
def test_a_batch_takes_as_many_statements_however_many_runs_are_in_it(
    service: WorkflowService, statements: Counter, runs: int
) -> None:
    _with_steps(2 * runs)
    with statements() as seen:
        assert service.prune_runs("1d", statuses=["completed"], batch=runs) == Pruned(deleted=2 * runs)
    # For each of two batches: find, what is needed (two reads), slots, trails of approvals, steps, three deletions.
    # Then there is no more to find.
    assert len(data_statements(seen)) == 2 * 9 + 1


@about_sql
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("workflow_name", [None, "rare"])
def test_old_runs_are_found_by_index(workflow_name: str | None, service: WorkflowService) -> None:
    began = now() - 100 * DAY
    rows = (
        WorkflowRun(
            pk=f"run {number:04}",
            workflow="rare" if number % 50 == 0 else "frequent",
            status="completed" if number % 20 == 0 else "failed",
            created_at=began + timedelta(minutes=number),
            updated_at=began + timedelta(minutes=number),
        )
        for number in range(2000)
    )
    WorkflowRun.objects.bulk_create(rows, batch_size=500)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE TABLE workflow_runs" if connection.vendor == "mysql" else "ANALYZE workflow_runs")
        if cursor.description:
            cursor.fetchall()
    ended = retention.Ended(status="completed", by=began + 2 * DAY, seen_at=now(), workflow=workflow_name)
    found = retention.old_runs(service._runtime, ended, (began + DAY, "run 0000"))[:100]

    assert "idx_workflow_runs_" in found.explain(), found.explain()


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"older_than": "90 days"}, "Invalid duration format: 90 days"),
        ({"older_than": -1}, "Invalid duration"),
        ({"older_than": "99999y"}, "Nothing is as old as '99999y'"),
        ({"statuses": []}, "statuses are some of cancelled, completed, failed, not"),
        ({"statuses": ["completed", "running"]}, "statuses are some of cancelled, completed, failed, not"),
        ({"statuses": "completed"}, "statuses are some of"),
        ({"batch": 0}, "A batch is 1 to 5000 runs, not 0"),
        ({"batch": 5001}, "A batch is 1 to 5000 runs, not 5001"),
    ],
)
def test_what_makes_no_sense_is_refused(service: WorkflowService, arguments: dict[str, Any], message: str) -> None:
    RunRowFactory.create(status="completed")
    with pytest.raises(ValueError, match=message):
        service.prune_runs(**{"older_than": "1d", "statuses": ["completed"], **arguments})
    assert count(WorkflowRun) == 1


# -- the command -------------------------------------------------------------------------------------------------------


def prune(*args: str) -> list[str]:
    """The lines that the command prints."""
    out = StringIO()
    call_command("prune_runs", *args, stdout=out)
    return out.getvalue().splitlines()


def test_the_command_says_what_it_did() -> None:
    for status in ("completed", "completed", "failed", "cancelled"):
        RunRowFactory.create(status=status)
    young = RunRowFactory.create(status="completed", created_at=now())
    StepRowFactory.create(run=RunRowFactory.create(status="failed"), status="running", due_at=now())

    options = ["--older-than=30d", "--status=failed", "--status=completed"]
    assert prune(*options, "--dry-run") == [
        "completed: 2 runs would be deleted",
        "failed: 1 runs would be deleted, 1 kept because something of them is still under way",
    ]
    assert prune(*options, "--workflow=nobodys") == ["completed: 0 runs deleted", "failed: 0 runs deleted"]
    assert prune(*options, "--batch=1", "--verbosity=2", f"--database={DATABASE}") == [
        "completed: 1 runs deleted so far",
        "completed: 2 runs deleted so far",
        "completed: 2 runs deleted",
        "failed: 1 runs deleted so far",
        "failed: 1 runs deleted so far",
        "failed: 1 runs deleted, 1 kept because something of them is still under way",
    ]
    assert young.id in left()
    assert len(left()) == 3


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "the following arguments are required: --older-than, --status"),
        (["--older-than=90d"], "the following arguments are required: --status"),
        (["--older-than=90d", "--status=running"], "argument --status: invalid choice: 'running'"),
        (["--older-than=soon", "--status=failed"], "Invalid duration format: soon"),
        (["--older-than=1d", "--status=failed", "--batch=many"], "argument --batch: invalid int value: 'many'"),
        (["--older-than=1d", "--status=failed", "--batch=0"], "A batch is 1 to 5000 runs, not 0"),
        (["--older-than=1d", "--status=failed", "--database=no"], "There is no database 'no' in DATABASES."),
    ],
)
def test_bad_arguments_are_refused_by_name(args: list[str], message: str) -> None:
    with pytest.raises(CommandError, match=message) as raised:
        call_command("prune_runs", *args)
    assert raised.value.returncode == 1


@pytest.mark.parametrize(
    ("error", "message", "code"),
    [
        (OperationalError("gone"), "The database failed after 1 completed runs: gone. Call it again to go on.", 1),
        (KeyboardInterrupt(), "Stopped after 1 completed runs. Call it again to go on.", 130),
    ],
)
def test_a_command_that_is_cut_off_says_how_far_it_came(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, message: str, code: int
) -> None:
    for _ in range(3):
        RunRowFactory.create(status="completed")
    delete: Callable[..., Any] = retention._delete
    calls = itertools.count()

    def cut_off(*args: Any) -> Pruned:
        if next(calls):
            raise error
        answer: Pruned = delete(*args)
        return answer

    monkeypatch.setattr(retention, "_delete", cut_off)
    with pytest.raises(CommandError) as raised:
        prune("--older-than=1d", "--status=completed", "--batch=1")
    assert (str(raised.value), raised.value.returncode) == (message, code)
    assert count(WorkflowRun) == 2
