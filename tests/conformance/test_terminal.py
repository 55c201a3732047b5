"""A run that has ended stays as it ended; cancel, resume, retry and delete."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from pikku_storage.db import clock
from pikku_storage.exceptions import WorkflowError, WorkflowRunNotFoundError
from pikku_storage.workflows import current_step, function, workflow
from pikku_storage.workflows.flow import Flow
from pikku_storage.workflows.invariants import find_violations
from pikku_storage.workflows.models import WorkflowRun, WorkflowStep, WorkflowStepHistory
from pikku_storage.workflows.querysets import StepQuerySet
from pikku_storage.workflows.records import Run
from pikku_storage.workflows.runs import WorkflowRunService
from pikku_storage.workflows.service import WorkflowService
from pikku_storage.workflows.statuses import TERMINAL_RUN_STATUSES
from tests.conformance.conftest import Counter
from tests.conformance.recording import RecordingDispatcher
from tests.conformance.support import (
    MINUTE,
    about_sql,
    connection,
    data_statements,
    noting,
    outcomes,
    step_names,
    step_of,
)
from tests.factories import RunFactory, StepFactory

pytestmark = pytest.mark.django_db(transaction=True)

TERMINAL = sorted(TERMINAL_RUN_STATUSES)
Operation = Callable[[WorkflowService, str], Any]


def _ended(service: WorkflowService, status: str) -> Run:
    """A run that ended that way while one step was pending."""
    run = RunFactory.create()
    StepFactory.create(run_id=run.id, step_name="left")
    service.update_run_status(run.id, status, {"total": 1} if status == "completed" else None, {"message": "why"})
    ended = service.get_run(run.id)
    assert ended is not None
    return ended


def _set(status: str) -> Operation:
    return lambda service, run_id: service.update_run_status(run_id, status, {"late": True})


OPERATIONS: dict[str, Operation] = {
    **{f"set {status}": _set(status) for status in ("running", "suspended", "completed", "failed", "cancelled")},
    "cancel": lambda service, run_id: service.cancel_workflow(run_id),
    "resume": lambda service, run_id: service.resume_workflow(run_id),
    "orchestrate": lambda service, run_id: service.orchestrate_workflow(run_id),
    "execute a step": lambda service, run_id: service.execute_workflow_step(run_id, "left"),
    "relay": lambda service, run_id: service.relay(),
    "finish a step": lambda service, run_id: service.set_step_result(step_of(run_id, "left").step_id, 1) and None,
}


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("status", TERMINAL)
def test_nothing_changes_how_a_run_ended(
    service: WorkflowService, outbox: RecordingDispatcher, status: str, operation: str
) -> None:
    ended = _ended(service, status)

    with clock.travel(20 * MINUTE):
        answer = OPERATIONS[operation](service, ended.id)
        outbox.deliver()

    assert not answer
    assert service.get_run(ended.id) == ended
    assert outbox.sent == []


@pytest.mark.parametrize("status", ["running", "suspended", "completed", "failed", "cancelled"])
@pytest.mark.parametrize("before", ["running", "suspended"])
def test_a_live_run_may_take_any_status(service: WorkflowService, before: str, status: str) -> None:
    run = RunFactory.create()
    service.update_run_status(run.id, before)

    assert service.update_run_status(run.id, status)
    after = service.get_run(run.id)
    assert after is not None
    assert after.status == status


@about_sql
@pytest.mark.contract("TG-01", "TG-02", "TG-03")
@pytest.mark.parametrize("status", TERMINAL)
def test_an_orchestrator_message_for_a_run_that_ended_does_not_enter_it(
    service: WorkflowService, statements: Counter, status: str
) -> None:
    """It tries to, which matches nothing, and sees that there is such a run: no pass, no read of its steps."""
    ended = _ended(service, status)
    before = WorkflowRun.objects.filter(pk=ended.id).values().get()

    with statements() as seen:
        service.orchestrate_workflow(ended.id)

    enter, look = data_statements(seen)
    table, column = map(connection.ops.quote_name, ("workflow_runs", "pass_token"))
    assert f"UPDATE {table} SET {column}" in enter  # noqa: S608
    assert look.startswith("SELECT")
    assert "workflow_step" not in look
    assert WorkflowRun.objects.filter(pk=ended.id).values().get() == before
    assert before["pass_token"] is None


@pytest.mark.contract("TG-04")
def test_a_suspended_run_is_still_orchestrated_and_becomes_running(
    service: WorkflowService, outbox: RecordingDispatcher
) -> None:
    """The contract leaves it suspended while it works; ours is running."""
    seen: list[str] = []

    @workflow
    def order(flow: Flow) -> str:
        seen.append(WorkflowRun.objects.get(pk=flow.run_id).status)
        return "done"

    run = order.start()
    service.update_run_status(run.id, "suspended", error={"message": "waiting", "code": "WORKFLOW_SUSPENDED"})
    outbox.lose_everything()
    service.orchestrate_workflow(run.id)

    assert seen == ["running"]
    assert (run.status, run.error, run.output) == ("completed", None, "done")


# -- cancel ------------------------------------------------------------------------------------------------------------


def test_cancelling_stops_before_the_next_step(service: WorkflowService) -> None:
    called: list[str] = []

    def work(name: str) -> str:
        called.append(name)
        if name == "second":
            assert service.cancel_workflow(current_step().run_id, "out of stock")
        return name

    @workflow
    def order(flow: Flow) -> None:
        for name in ("first", "second", "third"):
            flow.do(name, work, {"name": name})

    run = order.run()

    assert called == ["first", "second"]
    assert run.status == "cancelled"
    assert run.error == {"message": "out of stock", "code": "WORKFLOW_CANCELLED"}
    assert run.output is None
    assert [(step.step_name, step.status, step.result) for step in run.steps()] == [
        ("first", "succeeded", "first"),
        ("second", "succeeded", "second"),
    ], "the step that ran may end"


def test_a_cancelled_run_has_a_default_reason(service: WorkflowService) -> None:
    run = RunFactory.create()
    assert service.cancel_workflow(run.id)
    assert not service.cancel_workflow(run.id, "again")

    after = service.get_run(run.id)
    assert after is not None
    assert after.error == {"message": "Workflow was cancelled", "code": "WORKFLOW_CANCELLED"}
    assert after.completed_at is not None


def test_a_queued_step_of_a_cancelled_run_does_not_begin(outbox: RecordingDispatcher, service: WorkflowService) -> None:
    called: list[int] = []

    @function(queued=True)
    def pack() -> None:
        called.append(1)

    @workflow
    def order(flow: Flow) -> None:
        flow.do("pack", pack)

    run = order.start()
    outbox.deliver_one()
    run.cancel()
    outbox.deliver()
    with clock.travel(10 * MINUTE):
        service.relay()
        outbox.deliver()

    assert called == []
    assert outcomes(run.id, "pack") == ["scheduled"]
    assert step_of(run.id, "pack").due_at is None


def test_cancelling_an_unknown_run_does_nothing(service: WorkflowService) -> None:
    assert not service.cancel_workflow("nothing")
    assert not service.resume_workflow("nothing")


def test_a_run_that_is_set_failed_from_outside_begins_nothing_more(service: WorkflowService) -> None:
    called: list[str] = []

    @workflow
    def order(flow: Flow) -> str:
        flow.do("first", lambda: service.update_run_status(current_step().run_id, "failed", error={"message": "stop"}))
        flow.do("second", lambda: called.append("second"))
        return "done"

    run = order.run()
    assert (run.status, run.error, run.output, called) == ("failed", {"message": "stop"}, None, [])


@pytest.mark.parametrize("retry_delay", [0, "50ms"], ids=["at once", "later"])
def test_a_run_that_is_cancelled_between_two_attempts_gets_no_other_inline(
    service: WorkflowService, monkeypatch: pytest.MonkeyPatch, retry_delay: Any
) -> None:
    called: list[int] = []
    fail = StepQuerySet.fail

    def fail_and_cancel(steps: StepQuerySet, step_id: str, *args: Any, **options: Any) -> bool:
        """Somebody cancels right after the failure of the attempt is written."""
        written = fail(steps, step_id, *args, **options)
        assert service.cancel_workflow(WorkflowStep.objects.get(pk=step_id).run_id)
        return written

    monkeypatch.setattr(StepQuerySet, "fail", fail_and_cancel)

    def work() -> None:
        called.append(1)
        raise ValueError("no box")

    @workflow
    def order(flow: Flow) -> None:
        flow.do("pack", work, retries=3, retry_delay=retry_delay)

    run = order.run()

    assert run.status == "cancelled"
    assert called == [1]
    assert outcomes(run.id, "pack") == ["failed"]
    assert list(find_violations()) == []


@pytest.mark.parametrize("queued", [True, False], ids=["queued", "in its run"])
def test_a_run_that_is_cancelled_between_two_attempts_gets_no_other_from_a_worker(
    outbox: RecordingDispatcher, service: WorkflowService, queued: bool
) -> None:
    called: list[int] = []

    @function(queued=queued, retries=3, retry_delay="10s")
    def pack() -> None:
        called.append(1)
        raise ValueError("no box")

    @workflow
    def order(flow: Flow) -> None:
        flow.do("pack", pack)

    run = order.start()
    outbox.deliver()
    assert outcomes(run.id, "pack") == ["failed"]
    assert run.cancel()
    assert step_of(run.id, "pack").due_at is None
    with clock.travel(MINUTE):
        assert outbox.deliver() > 0, "the retry's message was under way"
        service.execute_workflow_step(run.id, "pack")
        assert service.relay() == []

    assert run.status == "cancelled"
    assert called == [1]
    assert outcomes(run.id, "pack") == ["failed"]
    assert list(find_violations()) == []


@pytest.mark.parametrize("mode", ["inline", "in its run", "queued", "fanned out"])
def test_a_step_may_cancel_its_own_run(outbox: RecordingDispatcher, service: WorkflowService, mode: str) -> None:
    """It ends, and its result is kept; nothing begins after it."""
    called: list[str] = []

    @function(queued=mode == "queued")
    def pack(n: int) -> str:
        called.append("pack")
        service.get_handle(current_step().run_id).cancel("sold out")
        return "packed"

    @workflow
    def order(flow: Flow) -> None:
        if mode == "fanned out":
            flow.map("pack", pack, [1, 2])
        else:
            flow.do("pack", pack, {"n": 1})
        flow.do("ship", lambda: called.append("ship"))

    if mode == "inline":
        run = order.run()
    else:
        run = order.start()
        outbox.deliver()
    with clock.travel(10 * MINUTE):
        service.relay()
        outbox.deliver()

    assert (run.status, run.output) == ("cancelled", None)
    assert run.error == {"message": "sold out", "code": "WORKFLOW_CANCELLED"}
    assert called == ["pack"]
    statuses = [step.status for step in run.steps()]
    assert statuses == (["succeeded", "scheduled"] if mode == "fanned out" else ["succeeded"])
    assert list(find_violations()) == []


def test_an_inline_run_that_waits_for_a_retry_is_not_inside_of_its_step(service: WorkflowService) -> None:
    """Cancelling it from elsewhere while it waits ends it, once the wait is over."""

    def work() -> None:
        raise ValueError("no box")

    @workflow
    def order(flow: Flow) -> None:
        flow.do("pack", work, retries=1, retry_delay="200ms")

    with ThreadPoolExecutor(1) as pool:

        def carry_out() -> Any:
            try:
                return order.run()
            finally:
                connection.close()

        going = pool.submit(carry_out)
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline and not WorkflowStep.objects.filter(status="failed").exists():
            time.sleep(0.005)
        assert service.cancel_workflow(WorkflowRun.objects.get().pk)
        run = going.result(timeout=10)

    assert run.status == "cancelled"
    assert outcomes(run.id, "pack") == ["failed"]


# -- retry -------------------------------------------------------------------------------------------------------------


def test_a_failed_run_is_tried_again_as_a_new_run_that_keeps_what_was_done(
    outbox: RecordingDispatcher, service: WorkflowService
) -> None:
    called: list[str] = []
    broken = True

    def work(name: str) -> str:
        called.append(name)
        if name == "ship" and broken:
            raise ValueError("no courier")
        return name.upper()

    @workflow
    def order(flow: Flow, order_id: str) -> list[str]:
        flow.set_state("order", order_id)
        results = [flow.do("pack", work, {"name": "pack"})]
        flow.sleep("rest", 0)
        results.append(flow.do("ship", work, {"name": "ship"}, retries=0))
        return results

    failed = order.start({"order_id": "A1"}, owner="user-1", trigger="http", idempotency_key="A1")
    outbox.deliver()
    before = failed.get()
    assert before.status == "failed"
    broken = False

    run = failed.retry()
    assert run != failed
    assert run.status == "running"
    outbox.deliver()

    assert (run.status, run.output) == ("completed", ["PACK", "SHIP"])
    assert called == ["pack", "ship", "ship"], "what was done is not done again"
    assert failed.get() == before
    new = run.get()
    assert (new.workflow, new.input, new.owner_id, new.graph_hash) == (
        "order",
        before.input,
        "user-1",
        before.graph_hash,
    )
    assert new.wire == {"type": "http", "pikkuUserId": "user-1", "retryOf": failed.id}
    assert new.idempotency_key is None
    assert run.state == {"order": "A1"}
    assert outcomes(run.id, "pack") == ["succeeded"]
    assert step_of(run.id, "pack").result == "PACK"


def test_what_came_after_the_failure_is_done_again(outbox: RecordingDispatcher) -> None:
    """The body's own undoing belongs to the failed run, not to the new one."""
    called: list[str] = []
    broken = True

    def reserve() -> None:
        called.append("reserve")

    def charge() -> None:
        called.append("charge")
        if broken:
            raise ValueError("no funds")

    @workflow
    def order(flow: Flow) -> str:
        flow.do("reserve", reserve)
        try:
            flow.do("charge", charge, retries=0)
        except Exception:
            flow.do("note", lambda: called.append("note"))
            raise
        return flow.do("note", lambda: noting(called, "note", "paid"))

    failed = order.start()
    outbox.deliver()
    broken = False
    run = failed.retry()
    outbox.deliver()

    assert run.output == "paid"
    assert called == ["reserve", "charge", "note", "charge", "note"]


def test_the_finished_items_of_a_failed_fan_out_are_kept(outbox: RecordingDispatcher) -> None:
    called: list[int] = []
    broken = True

    @function(retries=0)
    def work(n: int) -> int:
        called.append(n)
        if n == 1 and broken:
            raise ValueError("odd")
        return n

    @workflow
    def order(flow: Flow) -> list[int]:
        return flow.map("work", work, range(4))

    failed = order.start()
    outbox.deliver()
    broken = False
    run = failed.retry()
    outbox.deliver()

    assert run.output == [0, 1, 2, 3]
    assert sorted(called) == [0, 1, 1, 2, 3]


def test_a_cancelled_run_is_tried_again_as_a_new_run(outbox: RecordingDispatcher) -> None:
    called: list[int] = []

    @workflow
    def order(flow: Flow) -> str:
        flow.do("pack", lambda: called.append(1))
        flow.sleep("wait", "1h")
        return "done"

    cancelled = order.start()
    outbox.deliver()
    cancelled.cancel()
    run = cancelled.retry()
    outbox.deliver()

    assert cancelled.status == "cancelled"
    assert run.status == "running"
    assert step_names(run.id) == ["pack", "wait"]
    assert step_of(run.id, "wait").status == "scheduled"
    assert called == [1]


def test_a_completed_run_has_nothing_to_try_again(service: WorkflowService) -> None:
    @workflow
    def order(flow: Flow) -> None: ...

    run = order.run()
    with pytest.raises(WorkflowError, match=f"Run {run.id} is completed; there is nothing to try again"):
        run.retry()
    with pytest.raises(WorkflowRunNotFoundError):
        service.retry_run("nothing")
    assert WorkflowRun.objects.count() == 1


@pytest.mark.parametrize("queued", [True, False])
def test_a_live_run_gets_its_retries_now(outbox: RecordingDispatcher, queued: bool) -> None:
    @function(queued=queued, retries=1, retry_delay="2h")
    def pack() -> str:
        if current_step().attempt == 1:
            raise ValueError("no box")
        return "packed"

    @workflow
    def order(flow: Flow) -> str:
        return flow.do("pack", pack)

    run = order.start()
    outbox.deliver()
    assert run.status == "running"
    again = run.retry()
    outbox.deliver()

    assert again == run
    assert not again.created
    assert run.output == "packed"
    assert outcomes(run.id, "pack") == ["failed", "succeeded"]


def test_without_a_broker_a_failed_run_is_tried_again_in_this_process(no_broker: None) -> None:
    broken = True

    def work() -> str:
        if broken:
            raise ValueError("no")
        return "done"

    @workflow
    def order(flow: Flow) -> str:
        return flow.do("work", work, retries=0)

    failed = order.run()
    broken = False
    assert failed.retry().output == "done"


# -- delete ------------------------------------------------------------------------------------------------------------


@pytest.mark.contract("WR-04")
def test_a_deleted_run_is_gone_with_its_steps_and_attempts(runs: WorkflowRunService) -> None:
    @workflow
    def order(flow: Flow) -> None:
        for n in range(3):
            flow.do(f"step {n}", lambda n=n: 1 // (current_step().attempt - 1), retries=1, retry_delay=0)

    run, other = order.run(), order.run()

    assert runs.delete_run(run.id)

    assert runs.get_run(run.id) is None
    assert not WorkflowStep.objects.filter(run_id=run.id).exists()
    assert WorkflowStep.objects.count() == 3
    assert WorkflowStepHistory.objects.count() == 6
    assert other.status == "completed"


@pytest.mark.contract("WR-05")
def test_deleting_an_unknown_run_answers_false(runs: WorkflowRunService) -> None:
    assert not runs.delete_run("nothing")


def test_deleting_a_run_while_it_works_ends_its_pass(runs: WorkflowRunService) -> None:
    called: list[str] = []

    @workflow
    def order(flow: Flow) -> None:
        flow.do("delete", lambda: runs.delete_run(current_step().run_id))
        flow.do("second", lambda: called.append("second"))

    order.run()

    assert called == []
    assert not WorkflowRun.objects.exists()
    assert not WorkflowStep.objects.exists()
    assert not WorkflowStepHistory.objects.exists()


def test_a_key_of_a_deleted_run_may_be_used_again(runs: WorkflowRunService) -> None:
    """And does not replay the old run's results."""
    called: list[int] = []

    def pack() -> int:
        called.append(1)
        return len(called)

    @workflow
    def order(flow: Flow) -> Any:
        return flow.do("pack", pack)

    first = order.run(idempotency_key="A1")
    runs.delete_run(first.id)
    second = order.run(idempotency_key="A1")

    assert second.created
    assert second.output == 2
