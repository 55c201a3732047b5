"""Which steps become messages, and what a broker may do with them."""

from typing import Any

import pytest

from pikku_storage.db import clock
from pikku_storage.exceptions import WorkflowDispatchException, WorkflowStepFunctionMismatchError
from pikku_storage.workflows import current_step, function, workflow
from pikku_storage.workflows.definitions import FunctionDefinition, WorkflowDefinition
from pikku_storage.workflows.dispatch import Message
from pikku_storage.workflows.flow import Flow
from pikku_storage.workflows.service import WorkflowService
from tests.conformance.recording import RecordingDispatcher
from tests.conformance.support import MINUTE, attempts_of, outcomes, step_of

pytestmark = pytest.mark.django_db(transaction=True)

Pack = FunctionDefinition[Any, Any]


@pytest.fixture
def called() -> list[Any]:
    """What the functions of a test were called with."""
    return []


@pytest.fixture
def pack(called: list[Any]) -> Pack:
    """A queued function."""

    @function(queued=True, retries=1, retry_delay=0)
    def pack(n: int) -> int:
        called.append(n)
        return n + 1

    return pack


@pytest.fixture
def order(pack: Pack) -> WorkflowDefinition[Any]:
    """A workflow whose one step is queued."""

    @workflow
    def order(flow: Flow, n: int) -> Any:
        return flow.do("pack", pack, {"n": n})

    return order


# -- what is queued ----------------------------------------------------------------------------------------------------


@pytest.mark.contract("EN-07")
def test_a_step_whose_function_is_not_queued_is_not_dispatched(outbox: RecordingDispatcher) -> None:
    @function
    def pack() -> int:
        return 1

    @workflow
    def order(flow: Flow) -> int:
        return flow.do("pack", pack) + flow.do("plain", lambda: 1)

    run = order.start()
    outbox.deliver()

    assert outbox.sent == [Message(run_id=run.id)]
    assert run.output == 2


@pytest.mark.contract("EN-08")
def test_a_step_whose_function_is_queued_is_dispatched(
    outbox: RecordingDispatcher, order: WorkflowDefinition[Any], called: list[Any]
) -> None:
    run = order.start({"n": 1})
    outbox.deliver_one()

    assert outbox.waiting == [Message(run_id=run.id, step_name="pack", queue="celery")]
    assert (run.status, called) == ("running", [])
    step = step_of(run.id, "pack")
    assert (step.status, step.rpc_name, step.data) == ("scheduled", "pack", {"n": 1})

    outbox.deliver()
    assert (run.status, run.output, called) == ("completed", 2, [1])


@pytest.mark.contract("EN-09")
def test_a_queued_function_without_a_broker_runs_in_place(
    no_broker: None, order: WorkflowDefinition[Any], called: list[Any]
) -> None:
    """The contract makes this an error; without a broker ours carries out everything in the caller's process."""
    run = order.start({"n": 1})

    assert (run.status, run.output, called) == ("completed", 2, [1])


def test_a_queued_function_runs_in_place_in_an_inline_run(
    outbox: RecordingDispatcher, order: WorkflowDefinition[Any], called: list[Any]
) -> None:
    assert order.run({"n": 1}).output == 2
    assert outbox.sent == []


def test_a_step_goes_to_the_queue_of_its_function(outbox: RecordingDispatcher, settings: Any) -> None:
    settings.PIKKU_STORAGE = {**settings.PIKKU_STORAGE, "QUEUE": "runs"}

    @function(queue="mail")
    def mail() -> None: ...

    @function(queued=True)
    def pack() -> None: ...

    @workflow
    def order(flow: Flow) -> None:
        flow.gather(("mail", mail, {}), ("pack", pack, {}))

    order.start()
    outbox.deliver()
    assert {message.step_name: message.queue for message in outbox.sent if message.step_name} == {
        "mail": "mail",
        "pack": "runs",
    }


@pytest.mark.contract("EN-12")
@pytest.mark.parametrize("queued", [True, False])
def test_a_step_is_running_while_its_function_runs(outbox: RecordingDispatcher, queued: bool) -> None:
    @function(queued=queued)
    def pack() -> list[Any]:
        where = current_step()
        step = step_of(where.run_id, where.step_name)
        (attempt,) = attempts_of(where.run_id, where.step_name)
        return [step.status, attempt.status, step.claimed_by, attempt.running_at is not None]

    @workflow
    def order(flow: Flow) -> Any:
        return flow.do("pack", pack)

    run = order.start()
    outbox.deliver(worker="worker-7")

    assert run.output == ["running", "running", "worker-7", True]
    step = step_of(run.id, "pack")
    assert (step.status, step.claim_token, step.due_at) == ("succeeded", None, None)
    assert [event.type for event in run.timeline()] == [
        "pending",
        *(["scheduled"] if queued else []),
        "running",
        "succeeded",
    ]


def test_a_worker_that_finished_a_step_goes_on_with_the_run(
    outbox: RecordingDispatcher, order: WorkflowDefinition[Any]
) -> None:
    run = order.start({"n": 1})
    outbox.deliver_one()
    outbox.deliver_one()

    assert run.status == "completed"
    assert outbox.waiting == []
    assert len(outbox.sent) == 2


# -- messages are hints ------------------------------------------------------------------------------------------------


@pytest.mark.contract("DP-01")
def test_a_message_carries_ids_only_and_the_function_gets_its_data_as_given(outbox: RecordingDispatcher) -> None:
    """The contract's messages carry the payload; ours carry ids, and the payload comes from the row, encoded once."""
    data = {"items": [{"sku": "CUP", "n": 0}], "note": '{"not": "parsed"}', "none": None}
    given: list[Any] = []

    @function(queued=True)
    def pack(**kwargs: Any) -> None:
        given.append(kwargs)

    @workflow
    def order(flow: Flow) -> None:
        flow.do("pack", pack, data)

    run = order.start()
    outbox.deliver()

    assert given == [data]
    assert outbox.sent[1] == Message(run_id=run.id, step_name="pack", queue="celery")
    assert "sku" not in repr(outbox.sent)


@pytest.mark.contract("DP-02")
def test_a_payload_that_cannot_be_serialised_is_refused_and_not_dropped(
    outbox: RecordingDispatcher, pack: Pack, called: list[Any]
) -> None:
    @workflow
    def order(flow: Flow) -> None:
        flow.do("pack", pack, {"n": {1, 2}})

    run = order.start()
    outbox.deliver()

    assert run.status == "failed"
    assert run.error is not None
    assert run.error["message"].startswith("$data.n: set is not JSON")
    assert (run.steps(), called) == ([], [])


def test_every_message_may_arrive_twice(
    outbox: RecordingDispatcher, order: WorkflowDefinition[Any], called: list[Any]
) -> None:
    run = order.start({"n": 1})
    outbox.duplicate_everything()
    outbox.deliver_one()
    outbox.duplicate_everything()
    outbox.deliver()
    history = attempts_of(run.id, "pack")
    service = WorkflowService()
    service.orchestrate_workflow(run.id)
    service.execute_workflow_step(run.id, "pack")

    assert (run.status, run.output, called) == ("completed", 2, [1])
    assert attempts_of(run.id, "pack") == history
    assert outcomes(run.id, "pack") == ["succeeded"]


@pytest.mark.parametrize("lost", range(2))
def test_losing_any_message_costs_time_only(
    outbox: RecordingDispatcher, service: WorkflowService, order: WorkflowDefinition[Any], called: list[Any], lost: int
) -> None:
    run = order.start({"n": 1})
    for _ in range(lost):
        outbox.deliver_one()
    assert outbox.lose_everything()

    with clock.travel(MINUTE):
        service.relay()
        outbox.deliver()

    assert (run.status, run.output, called) == ("completed", 2, [1])


def test_messages_about_what_is_gone_are_dropped(
    outbox: RecordingDispatcher, service: WorkflowService, order: WorkflowDefinition[Any], runs: Any
) -> None:
    run = order.start({"n": 1})
    outbox.deliver_one()
    runs.delete_run(run.id)

    assert outbox.deliver() == 1
    service.execute_workflow_step(run.id, "pack")
    service.execute_workflow_step("nothing", "pack")


def test_a_message_that_names_another_function_than_the_row_is_refused(
    outbox: RecordingDispatcher, service: WorkflowService, order: WorkflowDefinition[Any], called: list[Any]
) -> None:
    run = order.start({"n": 1})
    outbox.deliver_one()

    with pytest.raises(WorkflowStepFunctionMismatchError):
        service.execute_workflow_step(run.id, "pack", "refund")
    assert called == []
    assert step_of(run.id, "pack").status == "scheduled"
    service.execute_workflow_step(run.id, "pack", "pack")
    assert called == [1]


def test_a_message_about_a_step_in_place_changes_nothing(outbox: RecordingDispatcher, service: WorkflowService) -> None:
    @workflow
    def order(flow: Flow) -> None:
        flow.do("plain", lambda: 1)
        flow.sleep("wait", "1h")

    run = order.start()
    outbox.deliver()
    before = run.steps()

    service.execute_workflow_step(run.id, "plain")
    service.execute_workflow_step(run.id, "wait")

    assert run.steps() == before


# -- a broker that is down ---------------------------------------------------------------------------------------------


@pytest.mark.contract("DD-01")
def test_a_failed_enqueue_leaves_the_step_pending_and_the_next_replay_dispatches_it(
    outbox: RecordingDispatcher, service: WorkflowService, order: WorkflowDefinition[Any], called: list[Any]
) -> None:
    run = order.start({"n": 1})
    outbox.lose_everything()
    outbox.is_down = True
    with pytest.raises(WorkflowDispatchException):
        service.orchestrate_workflow(run.id)

    assert run.status == "running"
    assert step_of(run.id, "pack").status == "pending"

    outbox.is_down = False
    service.orchestrate_workflow(run.id)
    assert step_of(run.id, "pack").status == "scheduled"
    outbox.deliver()
    assert (run.status, called) == ("completed", [1])


@pytest.mark.contract("DD-02")
def test_a_dispatch_failure_during_orchestration_is_raised_without_failing_the_run(
    outbox: RecordingDispatcher, service: WorkflowService, order: WorkflowDefinition[Any], called: list[Any]
) -> None:
    run = order.start({"n": 1})
    outbox.is_down = True

    with pytest.raises(WorkflowDispatchException, match="The broker took no message") as caught:
        service.orchestrate_workflow(run.id)

    assert caught.value.http_status == 503
    assert (run.status, run.error) == ("running", None)
    outbox.is_down = False
    outbox.lose_everything()
    with clock.travel(MINUTE):
        service.relay()
        outbox.deliver()
    assert (run.status, called) == ("completed", [1])


@pytest.mark.contract("DD-03")
@pytest.mark.parametrize("queued", [True, False])
def test_a_real_error_of_a_step_still_fails_the_run(outbox: RecordingDispatcher, queued: bool) -> None:
    @function(queued=queued, retries=0)
    def pack() -> None:
        raise ValueError("no box")

    @workflow
    def order(flow: Flow) -> None:
        flow.do("pack", pack)

    run = order.start()
    outbox.deliver()

    assert run.status == "failed"
    assert run.error is not None
    assert (run.error["name"], run.error["message"]) == ("WorkflowStepFailedError", "no box")


def test_a_broker_that_is_down_after_a_step_keeps_its_result(
    outbox: RecordingDispatcher, service: WorkflowService, called: list[Any], pack: Pack
) -> None:
    @workflow
    def order(flow: Flow) -> Any:
        return flow.do("first", pack, {"n": 1}) + flow.do("second", pack, {"n": 2})

    run = order.start()
    outbox.deliver_one()
    outbox.is_down = True
    with pytest.raises(WorkflowDispatchException):
        outbox.deliver_one()
    assert step_of(run.id, "first").status == "succeeded"
    assert step_of(run.id, "second").status == "pending"

    outbox.is_down = False
    with clock.travel(MINUTE):
        service.relay()
        outbox.deliver()
    assert (run.output, called) == (5, [1, 2])


def test_resuming_sends_again_what_may_be_lost(
    outbox: RecordingDispatcher, order: WorkflowDefinition[Any], called: list[Any]
) -> None:
    run = order.start({"n": 1})
    outbox.deliver_one()
    outbox.lose_everything()

    assert run.resume()
    assert {message.step_name for message in outbox.waiting} == {None, "pack"}
    outbox.deliver()

    assert (run.output, called) == (2, [1])
    assert not run.resume()
