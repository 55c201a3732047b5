"""A process that is told to stop gives back what it holds; nobody waits for the end of its leases."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import OperationalError, transaction

from pikku_storage.db import clock
from pikku_storage.workflows import current_step, function, workflow
from pikku_storage.workflows.engine import calls
from pikku_storage.workflows.flow import Flow
from pikku_storage.workflows.invariants import find_violations
from pikku_storage.workflows.models import WorkflowRun
from pikku_storage.workflows.querysets import StepQuerySet
from pikku_storage.workflows.service import WorkflowService
from tests.conformance.recording import RecordingDispatcher
from tests.conformance.support import MINUTE, attempts_of, connection, outcomes, step_of

pytestmark = pytest.mark.django_db(transaction=True)


class WorkerTerminate(SystemExit):
    """As Celery's."""


def _told_to_stop(monkeypatch: pytest.MonkeyPatch) -> SystemExit:
    """What a pool process of Celery does in its signal handler."""
    monkeypatch.setattr(calls, "_was_told", [True])
    return SystemExit(-241)


@pytest.fixture(params=["KeyboardInterrupt", "WorkerTerminate", "signal"])
def stop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Raises what ends a process, wherever that is."""

    def stop() -> None:
        match request.param:
            case "KeyboardInterrupt":
                raise KeyboardInterrupt
            case "WorkerTerminate":
                raise WorkerTerminate(1)
            case _:
                raise _told_to_stop(monkeypatch)

    return stop


def _stopped(outbox: RecordingDispatcher, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker takes what there is, and is stopped at it; then there is another one."""
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        outbox.deliver()
    monkeypatch.setattr(calls, "_was_told", [False])


@pytest.mark.parametrize("queued", [False, True], ids=["in its run", "queued"])
def test_a_step_is_handed_back_and_tried_again_at_once(
    outbox: RecordingDispatcher,
    service: WorkflowService,
    monkeypatch: pytest.MonkeyPatch,
    stop: Any,
    queued: bool,
) -> None:
    @function(queued=queued, retries=1, retry_delay=0)
    def pack() -> int:
        if current_step().attempt == 1:
            stop()
        return current_step().attempt

    @workflow
    def order(flow: Flow) -> Any:
        return flow.do("pack", pack)

    run = order.start()
    _stopped(outbox, monkeypatch)
    held = step_of(run.id, "pack")
    assert (held.status, held.claim_token) == ("running", None)
    assert held.due_at is not None
    assert held.due_at <= service._runtime.now()

    service.relay()
    outbox.deliver()

    assert (run.status, run.output) == ("completed", 2)
    assert outcomes(run.id, "pack") == ["failed", "succeeded"]
    lost = attempts_of(run.id, "pack")[0].error
    assert lost == {"code": "WORKER_LOST", "message": "The worker worker-1 was told to stop; the attempt is lost"}
    assert list(find_violations()) == []


@pytest.mark.parametrize("queued", [False, True], ids=["in its run", "queued"])
def test_the_budget_decides_whether_it_is_tried_again(
    outbox: RecordingDispatcher,
    service: WorkflowService,
    monkeypatch: pytest.MonkeyPatch,
    stop: Any,
    queued: bool,
) -> None:
    """Its effect may have happened, and it was to be tried once."""

    @function(queued=queued, retries=0)
    def charge() -> None:
        stop()

    @workflow
    def order(flow: Flow) -> Any:
        return flow.do("charge", charge)

    run = order.start()
    _stopped(outbox, monkeypatch)
    service.relay()
    outbox.deliver()

    assert run.status == "failed"
    assert run.error is not None
    assert run.error["code"] == "WORKER_LOST"
    assert outcomes(run.id, "charge") == ["failed"]


def test_a_run_is_handed_back_between_its_steps(
    outbox: RecordingDispatcher, service: WorkflowService, monkeypatch: pytest.MonkeyPatch, stop: Any
) -> None:
    bodies: list[int] = []

    @workflow
    def order(flow: Flow) -> str:
        flow.do("first", lambda: bodies.append(1))
        if len(bodies) == 1:
            bodies.append(2)
            stop()
        return "done"

    run = order.start()
    _stopped(outbox, monkeypatch)
    stored = WorkflowRun.objects.get()
    assert (stored.status, stored.pass_token, stored.pass_until) == ("running", None, None)

    assert service.relay() == [run.id]
    outbox.deliver()

    assert run.output == "done"
    assert bodies == [1, 2], "the step that had succeeded was not carried out again"


def test_an_inline_run_that_is_interrupted_goes_on_elsewhere_at_once(
    outbox: RecordingDispatcher, service: WorkflowService, stop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    @workflow
    def order(flow: Flow) -> int:
        def pack() -> int:
            if current_step().attempt == 1:
                stop()
            return current_step().attempt

        return flow.do("pack", pack, retries=1, retry_delay=0)

    with pytest.raises((KeyboardInterrupt, SystemExit)):
        order.run(idempotency_key="A17")
    monkeypatch.setattr(calls, "_was_told", [False])
    service.relay()
    outbox.deliver()

    assert order.start(idempotency_key="A17").output == 2


def test_what_a_function_makes_of_the_signal_is_no_failure_of_its_own(
    outbox: RecordingDispatcher, service: WorkflowService, monkeypatch: pytest.MonkeyPatch
) -> None:
    @function(queued=True, retries=1, retry_delay=0)
    def pack() -> int:
        if current_step().attempt == 1:
            try:
                raise _told_to_stop(monkeypatch)
            finally:
                raise ConnectionError("cannot roll back")
        return current_step().attempt

    @workflow
    def order(flow: Flow) -> Any:
        return flow.do("pack", pack)

    run = order.start()
    with pytest.raises(ConnectionError):
        outbox.deliver()
    monkeypatch.setattr(calls, "_was_told", [False])
    service.relay()
    outbox.deliver()

    assert run.output == 2
    assert [entry.error and entry.error["code"] for entry in attempts_of(run.id, "pack")] == ["WORKER_LOST", None]


def test_what_is_done_after_handing_back_is_too_late(
    outbox: RecordingDispatcher, service: WorkflowService, stop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a renewal under way nor an outcome brings the claim back."""
    tokens: list[str | None] = []

    @function(queued=True, retries=1, retry_delay=0)
    def pack() -> str:
        step = current_step()
        tokens.append(step_of(step.run_id, "pack").claim_token)
        if step.attempt == 1:
            stop()
        return "packed"

    @workflow
    def order(flow: Flow) -> Any:
        return flow.do("pack", pack)

    run = order.start()
    _stopped(outbox, monkeypatch)
    step = step_of(run.id, "pack")
    token = tokens[0]
    assert token is not None
    until = service._runtime.lease_end(service._runtime.now())
    assert not service._runtime.steps.renew(step.step_id, token, until=until)
    assert not service.set_step_result(step.step_id, "too late", attempt=1, claim_token=token)
    assert not service._runtime.steps.give_up(step.step_id, token, at=until)

    service.relay()
    outbox.deliver()
    assert run.output == "packed"


@pytest.mark.skipif(connection.vendor == "mongodb", reason="its driver takes another connection by itself")
def test_a_stop_in_the_middle_of_a_statement_hands_back_on_a_new_connection(
    outbox: RecordingDispatcher, service: WorkflowService, monkeypatch: pytest.MonkeyPatch
) -> None:
    @function(queued=True, retries=1, retry_delay=0)
    def pack() -> int:
        return current_step().attempt

    @workflow
    def order(flow: Flow) -> Any:
        return flow.do("pack", pack)

    used: list[Any] = []
    succeed, give_up = StepQuerySet.succeed, StepQuerySet.give_up

    def interrupted(queryset: StepQuerySet, *args: Any, **options: Any) -> bool:
        used.append(connection.connection)
        monkeypatch.setattr(StepQuerySet, "succeed", succeed)
        raise KeyboardInterrupt

    def noted(queryset: StepQuerySet, *args: Any, **options: Any) -> bool:
        done = give_up(queryset, *args, **options)
        used.append(connection.connection)
        return done

    monkeypatch.setattr(StepQuerySet, "succeed", interrupted)
    monkeypatch.setattr(StepQuerySet, "give_up", noted)
    run = order.start()
    _stopped(outbox, monkeypatch)
    assert used[0] is not used[1]

    service.relay()
    outbox.deliver()
    assert run.output == 2


def test_a_stop_inside_a_transaction_leaves_the_connection_alone() -> None:
    @workflow
    def order(flow: Flow) -> None:
        raise KeyboardInterrupt

    with transaction.atomic():
        before = connection.connection
        with pytest.raises(KeyboardInterrupt):
            order.run()
        assert connection.connection is before
        assert WorkflowRun.objects.get().pass_token is None


def test_where_nothing_can_be_handed_back_the_lease_runs_out(
    outbox: RecordingDispatcher, service: WorkflowService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A database that does not answer must not hide that the process was told to stop."""

    @function(queued=True, retries=1, retry_delay=0)
    def pack() -> int:
        if current_step().attempt == 1:
            raise KeyboardInterrupt
        return current_step().attempt

    @workflow
    def order(flow: Flow) -> Any:
        return flow.do("pack", pack)

    def unreachable(*args: Any, **options: Any) -> bool:
        raise OperationalError("the server is gone")

    run = order.start()
    with monkeypatch.context() as patch:
        patch.setattr(StepQuerySet, "give_up", unreachable)
        _stopped(outbox, monkeypatch)
    assert service.relay_undispatched_steps() == []

    with clock.travel(2 * MINUTE):
        service.relay()
        outbox.deliver()
    assert run.output == 2
    lost = attempts_of(run.id, "pack")[0].error
    assert lost is not None
    assert lost["message"] == "The worker worker-1 stopped renewing its lease; the attempt is lost"
