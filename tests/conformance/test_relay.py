"""The relay: no lost message, worker or broker costs more than time."""

import logging
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from pikku_storage.db import clock
from pikku_storage.workflows import current_step, function, workflow
from pikku_storage.workflows.definitions import FunctionDefinition
from pikku_storage.workflows.dispatch import Message
from pikku_storage.workflows.flow import Flow
from pikku_storage.workflows.models import WorkflowRun, WorkflowStep
from pikku_storage.workflows.service import WorkflowService
from tests.conformance.recording import RecordingDispatcher
from tests.conformance.support import MINUTE, SECOND, attempts_of, outcomes, step_of
from tests.factories import RunFactory, StepFactory

pytestmark = pytest.mark.django_db(transaction=True)

HOUR = timedelta(hours=1)


# -- undispatched steps ------------------------------------------------------------------------------------------------


@pytest.mark.contract("RL-01")
def test_a_step_pending_for_too_long_has_its_run_put_back_on_the_queue(
    outbox: RecordingDispatcher, service: WorkflowService
) -> None:
    step = StepFactory.create()

    with clock.travel(31 * SECOND):
        assert service.relay_undispatched_steps() == [step.run_id]
    assert outbox.waiting == [Message(run_id=step.run_id)]


@pytest.mark.contract("RL-02")
def test_a_fresh_pending_step_is_left_alone(outbox: RecordingDispatcher, service: WorkflowService) -> None:
    StepFactory.create()

    with clock.travel(29 * SECOND):
        assert service.relay() == []
    assert outbox.sent == []


@pytest.mark.contract("RL-03")
def test_a_second_round_right_after_does_not_dispatch_again(
    outbox: RecordingDispatcher, service: WorkflowService
) -> None:
    StepFactory.create()

    with clock.travel(31 * SECOND):
        service.relay()
        assert service.relay() == []
        assert service.relay_undispatched_steps() == []
    assert len(outbox.sent) == 1


def test_a_step_that_stays_pending_is_dispatched_less_and_less_often(service: WorkflowService) -> None:
    step = StepFactory.create()
    rounds = []
    for minutes in range(60):
        with clock.travel(minutes * MINUTE):
            if service.relay_undispatched_steps():
                rounds.append(minutes)

    assert rounds[:5] == [1, 2, 3, 5, 9]
    assert [later - earlier for earlier, later in pairwise(rounds[5:])] == [10] * len(rounds[6:])
    assert step_of(step.run_id, step.step_name).status == "pending"


@pytest.mark.contract("RL-04")
@pytest.mark.parametrize("status", ["completed", "failed", "cancelled"])
def test_steps_of_finished_runs_are_ignored(outbox: RecordingDispatcher, service: WorkflowService, status: str) -> None:
    step = StepFactory.create()
    service.update_run_status(step.run_id, status)

    with clock.travel(HOUR):
        assert service.relay() == []
        assert service.relay() == []
    assert outbox.sent == []
    assert step_of(step.run_id, step.step_name).due_at is None, "it is not looked at again"


@pytest.mark.contract("RL-05")
def test_several_stuck_steps_of_one_run_are_one_message_per_round(
    outbox: RecordingDispatcher, service: WorkflowService
) -> None:
    run, other = RunFactory.create(), RunFactory.create()
    for _ in range(5):
        StepFactory.create(run_id=run.id)
    StepFactory.create(run_id=other.id)

    with clock.travel(31 * SECOND):
        assert set(service.relay()) == {run.id, other.id}
    assert sorted(message.run_id for message in outbox.sent) == sorted([run.id, other.id])


def test_the_oldest_come_first_and_a_batch_has_its_limit(outbox: RecordingDispatcher, service: WorkflowService) -> None:
    steps = []
    for seconds in (3, 1, 2):
        with clock.travel(seconds * SECOND):
            steps.append(StepFactory.create())

    with clock.travel(MINUTE):
        assert service.relay_undispatched_steps(limit=2) == [steps[1].run_id, steps[2].run_id]
        assert service.relay_undispatched_steps(limit=2) == [steps[0].run_id]


def test_a_round_sees_to_all_that_is_due_however_many_that_are(
    outbox: RecordingDispatcher, service: WorkflowService
) -> None:
    steps = [StepFactory.create() for _ in range(25)]

    with clock.travel(MINUTE):
        assert set(service.relay(limit=10)) == {step.run_id for step in steps}
    assert len(outbox.sent) == 25


def test_a_round_sees_to_all_steps_of_one_run(outbox: RecordingDispatcher, service: WorkflowService) -> None:
    @function
    def work(n: int) -> int:
        return n

    @workflow
    def order(flow: Flow) -> list[int]:
        return flow.map("work", work, range(25))

    order.start()
    outbox.deliver_one()
    outbox.lose_everything()
    with clock.travel(MINUTE):
        service.relay(limit=10)

    assert len({message.step_name for message in outbox.waiting if message.step_name}) == 25


# -- stalled runs ------------------------------------------------------------------------------------------------------


@pytest.mark.contract("ST-01")
def test_a_running_run_with_only_an_old_pending_step_is_resumed(
    outbox: RecordingDispatcher, service: WorkflowService
) -> None:
    step = StepFactory.create()

    with clock.travel(6 * MINUTE):
        assert service.recover_stalled_runs() == [step.run_id]
    assert outbox.waiting == [Message(run_id=step.run_id)]


def test_a_running_run_without_any_step_is_resumed(service: WorkflowService) -> None:
    run = RunFactory.create()

    with clock.travel(6 * MINUTE):
        assert service.recover_stalled_runs() == [run.id]


@pytest.mark.contract("ST-02")
@pytest.mark.parametrize("status", ["scheduled", "running"])
def test_a_run_with_a_step_under_way_is_left(
    outbox: RecordingDispatcher, service: WorkflowService, status: str
) -> None:
    """As long as the step's own due time will bring it up; the contract leaves such runs for ever."""
    step = StepFactory.create()
    with clock.travel(6 * MINUTE - 10 * SECOND):
        if status == "running":
            service.claim_step(step.run_id, step.step_name)
        else:
            service.set_step_scheduled(step.step_id)

    with clock.travel(6 * MINUTE):
        assert service.recover_stalled_runs() == []
    assert outbox.sent == []


@pytest.mark.contract("ST-03")
def test_a_run_that_was_active_recently_is_left(outbox: RecordingDispatcher, service: WorkflowService) -> None:
    @function(queued=True)
    def pack() -> None: ...

    @workflow
    def order(flow: Flow) -> None:
        flow.do("pack", pack)

    run = order.start()
    with clock.travel(4 * MINUTE):
        service.orchestrate_workflow(run.id)
    outbox.lose_everything()

    with clock.travel(8 * MINUTE):
        assert service.recover_stalled_runs() == []


@pytest.mark.contract("ST-04")
def test_a_second_sweep_right_after_does_not_resume_again(
    outbox: RecordingDispatcher, service: WorkflowService
) -> None:
    RunFactory.create()

    with clock.travel(6 * MINUTE):
        assert len(service.recover_stalled_runs()) == 1
        assert service.recover_stalled_runs() == []
    assert len(outbox.sent) == 1


@pytest.mark.contract("ST-05")
def test_a_run_that_was_just_relayed_is_not_also_resumed(outbox: RecordingDispatcher, service: WorkflowService) -> None:
    step = StepFactory.create()

    with clock.travel(6 * MINUTE):
        assert service.relay_undispatched_steps() == [step.run_id]
        assert service.recover_stalled_runs() == []
        assert service.relay() == []
    assert len(outbox.sent) == 1


@pytest.mark.contract("ST-06")
@pytest.mark.parametrize("status", ["completed", "failed", "cancelled"])
def test_a_finished_run_is_left(outbox: RecordingDispatcher, service: WorkflowService, status: str) -> None:
    run = RunFactory.create()
    service.update_run_status(run.id, status)

    with clock.travel(HOUR):
        assert service.recover_stalled_runs() == []
    assert outbox.sent == []


def test_every_live_run_or_a_step_of_it_is_due_some_time(outbox: RecordingDispatcher, service: WorkflowService) -> None:
    """Nothing is ever stuck for ever (invariant 5)."""

    @function(queued=True, retries=1, retry_delay="1h")
    def flaky() -> None:
        raise ValueError("no")

    @workflow
    def order(flow: Flow) -> None:
        flow.do("plain", lambda: 1)
        flow.do("flaky", flaky)

    run = order.start()
    for _ in range(3):
        dues = [run.get().due_at, *(step.due_at for step in run.steps())]
        assert any(dues)
        if outbox.waiting:
            outbox.deliver_one()
    assert step_of(run.id, "flaky").status == "failed"
    assert run.get().due_at is not None


@pytest.mark.parametrize("queued", [True, False])
def test_a_relay_that_is_faster_than_the_message_of_a_retry_does_not_delay_it(
    outbox: RecordingDispatcher, service: WorkflowService, queued: bool
) -> None:
    @function(queued=queued, retries=1, retry_delay="5s")
    def pack() -> str:
        if current_step().attempt == 1:
            raise ValueError("no box")
        return "packed"

    @workflow
    def order(flow: Flow) -> str:
        return flow.do("pack", pack)

    run = order.start()
    outbox.deliver()
    with clock.travel(6 * SECOND):
        service.relay()
        outbox.deliver()

    assert run.output == "packed"


@pytest.mark.parametrize("queued", [True, False])
def test_a_retry_after_hours_comes_from_the_relay(
    outbox: RecordingDispatcher, service: WorkflowService, queued: bool
) -> None:
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
    for minutes in range(0, 180, 5):
        with clock.travel(minutes * MINUTE):
            service.relay()
            outbox.deliver()

    assert run.output == "packed"


# -- lost workers ------------------------------------------------------------------------------------------------------


@pytest.fixture
def pack() -> FunctionDefinition[Any, Any]:
    """A queued function with one retry, due at once."""

    @function(queued=True, retries=1, retry_delay=0)
    def pack() -> str:
        return f"packed in attempt {current_step().attempt}"

    return pack


def _claimed_by_a_worker_that_dies(outbox: RecordingDispatcher, target: FunctionDefinition[Any, Any]) -> Any:
    @workflow
    def order(flow: Flow) -> Any:
        return flow.do("pack", target)

    run = order.start()
    outbox.deliver_one()
    outbox.lose_everything()
    assert WorkflowService(worker="worker-9").claim_step(run.id, "pack") is not None
    return run


def test_an_attempt_whose_worker_is_lost_ends_failed_and_is_tried_again(
    outbox: RecordingDispatcher,
    service: WorkflowService,
    pack: FunctionDefinition[Any, Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    run = _claimed_by_a_worker_that_dies(outbox, pack)

    with clock.travel(59 * SECOND):
        assert service.relay_undispatched_steps() == [], "its lease holds"
    with clock.travel(61 * SECOND), caplog.at_level(logging.WARNING):
        assert run.id in service.relay()
        (first,) = attempts_of(run.id, "pack")
        assert first.error is not None
        assert (first.status, first.error["code"], first.worker) == ("failed", "WORKER_LOST", "worker-9")
        assert "The worker worker-9 stopped renewing its lease" in first.error["message"]
        assert first.failed_at is not None
        outbox.deliver()

    assert run.output == "packed in attempt 2"
    assert outcomes(run.id, "pack") == ["failed", "succeeded"]
    assert "worker-9" in caplog.text


def test_a_retry_after_a_lost_worker_waits_for_its_delay(outbox: RecordingDispatcher, service: WorkflowService) -> None:
    @function(queued=True, retries=1, retry_delay="20s")
    def pack() -> str:
        return "packed"

    run = _claimed_by_a_worker_that_dies(outbox, pack)
    with clock.travel(61 * SECOND):
        service.relay()
        step = step_of(run.id, "pack")
        assert step.due_at is not None
        assert step.due_at - step.updated_at == 20 * SECOND
        outbox.deliver()
        assert outcomes(run.id, "pack") == ["failed"]
    with clock.travel(82 * SECOND):
        outbox.deliver()
    assert run.output == "packed"


def test_the_last_attempt_of_a_lost_worker_fails_the_step_and_wakes_the_run(
    outbox: RecordingDispatcher, service: WorkflowService
) -> None:
    @function(queued=True, retries=0)
    def pack() -> None: ...

    run = _claimed_by_a_worker_that_dies(outbox, pack)
    with clock.travel(61 * SECOND):
        service.relay()
        outbox.deliver()

    assert run.status == "failed"
    assert run.error is not None
    assert run.error["code"] == "WORKER_LOST"
    step = step_of(run.id, "pack")
    assert (step.status, step.due_at) == ("failed", None)


def test_a_worker_that_comes_back_too_late_changes_nothing(
    outbox: RecordingDispatcher, service: WorkflowService, pack: FunctionDefinition[Any, Any]
) -> None:
    run = _claimed_by_a_worker_that_dies(outbox, pack)
    lost = step_of(run.id, "pack")
    with clock.travel(61 * SECOND):
        service.relay()
        late: dict[str, Any] = {"attempt": lost.attempt_count, "claim_token": lost.claim_token}
        assert not service.set_step_result(lost.step_id, "late", **late)
        outbox.deliver()
        assert not service.set_step_error(lost.step_id, {"message": "late"}, **late)

    assert run.output == "packed in attempt 2"
    assert outcomes(run.id, "pack") == ["failed", "succeeded"]


def test_a_function_that_ends_after_its_lease_is_not_believed(
    outbox: RecordingDispatcher, service: WorkflowService, caplog: pytest.LogCaptureFixture
) -> None:
    """The relay takes the attempt away while the function runs; the next attempt decides."""

    @function(queued=True, retries=1, retry_delay=0)
    def pack() -> str:
        attempt = current_step().attempt
        if attempt == 1:
            with clock.travel(61 * SECOND):
                service.relay_undispatched_steps()
        return f"attempt {attempt}"

    @workflow
    def order(flow: Flow) -> str:
        return flow.do("pack", pack)

    run = order.start()
    with caplog.at_level(logging.WARNING):
        outbox.deliver()
        with clock.travel(2 * MINUTE):
            outbox.deliver()

    assert "Attempt 1 of step pack" in caplog.text
    assert "its outcome is dropped (succeeded)" in caplog.text
    assert outcomes(run.id, "pack") == ["failed", "succeeded"]
    assert run.output == "attempt 2"


def test_a_lease_that_is_renewed_is_not_taken(outbox: RecordingDispatcher, service: WorkflowService, pack: Any) -> None:
    run = _claimed_by_a_worker_that_dies(outbox, pack)
    step = step_of(run.id, "pack")
    with clock.travel(50 * SECOND):
        assert step.claim_token
        until = service._runtime.lease_end(service._runtime.now())
        assert service._runtime.steps.renew(step.step_id, step.claim_token, until=until)

    with clock.travel(70 * SECOND):
        assert service.relay_undispatched_steps() == []
    assert step_of(run.id, "pack").status == "running"


@pytest.mark.usefixtures("no_goodbye")
def test_a_step_in_place_whose_worker_is_lost_is_tried_again_in_its_run(
    outbox: RecordingDispatcher, service: WorkflowService
) -> None:
    @function(retries=1, retry_delay=0)
    def pack() -> str:
        if current_step().attempt == 1:
            raise KeyboardInterrupt
        return "packed"

    @workflow
    def order(flow: Flow) -> str:
        return flow.do("pack", pack)

    run = order.start()
    with pytest.raises(KeyboardInterrupt):
        outbox.deliver()
    assert step_of(run.id, "pack").status == "running"

    _go_on(service, outbox, rounds=5)

    assert outcomes(run.id, "pack") == ["failed", "succeeded"]
    assert run.output == "packed"


@pytest.mark.usefixtures("no_goodbye")
def test_an_inline_run_whose_process_is_lost_is_carried_on_by_a_worker(
    outbox: RecordingDispatcher, service: WorkflowService
) -> None:
    called: list[str] = []

    def second() -> None:
        called.append("second")
        if called.count("second") == 1:
            raise KeyboardInterrupt

    @workflow
    def order(flow: Flow) -> str:
        flow.do("first", lambda: called.append("first"))
        flow.do("second", second, retries=1, retry_delay=0)
        return "done"

    with pytest.raises(KeyboardInterrupt):
        order.run()
    _go_on(service, outbox, rounds=5)

    run = WorkflowRun.objects.get()
    assert (run.status, run.output) == ("completed", "done")
    assert called == ["first", "second", "second"]


def _go_on(service: WorkflowService, outbox: RecordingDispatcher, *, rounds: int) -> None:
    """Let minutes pass, with a relay and a worker in each."""
    for minutes in range(1, rounds + 1):
        with clock.travel(minutes * MINUTE + SECOND):
            service.relay()
            outbox.deliver()


@pytest.mark.usefixtures("no_goodbye")
def test_a_pass_whose_worker_is_lost_between_steps_is_taken_over(
    outbox: RecordingDispatcher, service: WorkflowService
) -> None:
    bodies: list[int] = []

    @workflow
    def order(flow: Flow) -> str:
        bodies.append(1)
        if len(bodies) == 1:
            raise KeyboardInterrupt
        return "done"

    run = order.start()
    with pytest.raises(KeyboardInterrupt):
        outbox.deliver()
    with clock.travel(30 * SECOND):
        service.relay()
        outbox.deliver()
        assert bodies == [1], "the pass has its lease"
    _go_on(service, outbox, rounds=3)

    assert run.output == "done"
    assert bodies == [1, 1]


def test_the_running_step_of_a_cancelled_run_ends_when_its_worker_is_lost(
    outbox: RecordingDispatcher, service: WorkflowService, pack: FunctionDefinition[Any, Any]
) -> None:
    run = _claimed_by_a_worker_that_dies(outbox, pack)
    run.cancel()
    assert step_of(run.id, "pack").status == "running"

    with clock.travel(61 * SECOND):
        assert service.relay() == []
        assert outbox.deliver() == 0
    step = step_of(run.id, "pack")
    assert (step.status, step.due_at) == ("failed", None)
    assert outcomes(run.id, "pack") == ["failed"]
    assert run.status == "cancelled"


def test_one_bad_row_does_not_keep_the_others_from_being_seen_to(
    outbox: RecordingDispatcher,
    service: WorkflowService,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    bad, good = StepFactory.create(), StepFactory.create()
    send = outbox.send

    def failing(messages: Any) -> None:
        messages = list(messages)
        if messages[0].run_id == bad.run_id:
            raise RuntimeError("a message that breaks the sender")
        send(messages)

    monkeypatch.setattr(outbox, "send", failing)
    with clock.travel(MINUTE), caplog.at_level(logging.ERROR):
        assert service.relay() == [good.run_id]

    assert f"The relay could not drive run {bad.run_id} on" in caplog.text
    assert [message.run_id for message in outbox.sent] == [good.run_id]


def test_a_row_that_lost_its_due_time_stays_with_its_run(service: WorkflowService) -> None:
    """The run is looked at in any case, and finds its step."""
    step = StepFactory.create()
    WorkflowStep.objects.filter(pk=step.step_id).update(due_at=None)

    with clock.travel(6 * MINUTE):
        assert service.relay() == [step.run_id]


def test_the_order_of_stamps_is_the_order_of_events(outbox: RecordingDispatcher, pack: Any) -> None:
    @workflow
    def order(flow: Flow) -> Any:
        flow.do("plain", lambda: 1)
        return flow.do("pack", pack)

    run = order.start()
    outbox.deliver()

    for name in ("plain", "pack"):
        for attempt in attempts_of(run.id, name):
            stamps: list[datetime] = [
                stamp
                for stamp in (attempt.created_at, attempt.scheduled_at, attempt.running_at, attempt.succeeded_at)
                if stamp is not None
            ]
            assert stamps == sorted(stamps)
            assert all(stamp.microsecond % 1000 == 0 for stamp in stamps)
