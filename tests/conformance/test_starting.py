"""Starting runs: inline, queued, owned, once per key."""

import logging
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.db import transaction

from pikku_storage.db import clock
from pikku_storage.exceptions import (
    WorkflowError,
    WorkflowInputError,
    WorkflowRunCancelledError,
    WorkflowRunFailedError,
    WorkflowRunNotFoundError,
    WorkflowRunSuspendedError,
)
from pikku_storage.workflows import current_step, function, workflow
from pikku_storage.workflows.dispatch import Message
from pikku_storage.workflows.flow import Flow
from pikku_storage.workflows.models import WorkflowRun
from pikku_storage.workflows.runs import WorkflowRunService
from pikku_storage.workflows.service import WorkflowService
from tests.conformance.conftest import Counter
from tests.conformance.recording import RecordingDispatcher
from tests.conformance.support import MINUTE, data_statements, needs_transactions, nothing_is_stored

pytestmark = pytest.mark.django_db(transaction=True)


# -- inline ------------------------------------------------------------------------------------------------------------


@pytest.mark.contract("EN-05")
def test_without_a_broker_a_started_workflow_runs_at_once_and_is_marked_inline(no_broker: None) -> None:
    @workflow
    def order(flow: Flow, order_id: str) -> str:
        return f"done {order_id}"

    run = order.start({"order_id": "A1"})

    assert (run.status, run.output) == ("completed", "done A1")
    assert run.get().inline


def test_a_workflow_can_be_run_in_this_process_although_there_is_a_broker(outbox: RecordingDispatcher) -> None:
    @workflow
    def order(flow: Flow) -> str:
        return "done"

    run = order.run()

    assert (run.status, run.output, run.created) == ("completed", "done", True)
    assert run.get().inline
    assert outbox.sent == []


@pytest.mark.contract("EN-21")
def test_the_caller_learns_the_id_of_an_inline_run_that_fails(service: WorkflowService) -> None:
    @workflow
    def order(flow: Flow) -> None:
        raise ValueError("no stock")

    with pytest.raises(WorkflowRunFailedError, match="no stock") as caught:
        service.start_workflow("order", inline=True)
    run = service.get_run(caught.value.run_id)
    assert run is not None
    assert run.status == "failed"

    handle = order.run()
    assert handle.status == "failed"
    with pytest.raises(WorkflowRunFailedError, match="no stock"):
        handle.result()


def test_running_to_completion_answers_with_the_output_or_raises(service: WorkflowService) -> None:
    @workflow
    def order(flow: Flow, good: bool) -> int:
        if not good:
            raise ValueError("no stock")
        return 0

    assert service.run_to_completion("order", {"good": True}) == 0
    with pytest.raises(WorkflowRunFailedError, match="no stock"):
        service.run_to_completion("order", {"good": False})


def test_a_run_that_is_cancelled_inside_is_an_error_to_who_runs_it(service: WorkflowService) -> None:
    def cancel() -> None:
        service.cancel_workflow(current_step().run_id, "changed my mind")

    @workflow
    def order(flow: Flow) -> None:
        flow.do("cancel", cancel)
        flow.do("never", lambda: None)

    with pytest.raises(WorkflowRunCancelledError):
        service.run_to_completion("order")
    run = WorkflowRun.objects.get()
    assert run.error == {"message": "changed my mind", "code": "WORKFLOW_CANCELLED"}


# -- queued ------------------------------------------------------------------------------------------------------------


@pytest.mark.contract("EN-06")
def test_with_a_broker_a_started_workflow_is_put_on_the_queue(outbox: RecordingDispatcher) -> None:
    bodies: list[str] = []

    @workflow
    def order(flow: Flow, order_id: str) -> str:
        bodies.append(order_id)
        return order_id

    run = order.start({"order_id": "A1"})

    assert (run.status, run.output, bodies) == ("running", None, [])
    assert not run.get().inline
    assert outbox.waiting == [Message(run_id=run.id)]
    outbox.deliver()
    assert (run.status, run.output, bodies) == ("completed", "A1", ["A1"])


@needs_transactions
def test_a_run_is_sent_only_when_its_transaction_is_committed(outbox: RecordingDispatcher) -> None:
    @workflow
    def order(flow: Flow) -> None: ...

    with transaction.atomic():
        order.start()
        assert outbox.sent == []
    assert len(outbox.sent) == 1


@needs_transactions
def test_a_run_whose_transaction_is_rolled_back_was_never_started(outbox: RecordingDispatcher) -> None:
    @workflow
    def order(flow: Flow) -> None: ...

    with transaction.atomic():
        order.start()
        transaction.set_rollback(True)

    assert outbox.sent == []
    assert not WorkflowRun.objects.exists()


def test_a_broker_that_is_down_loses_nothing(
    outbox: RecordingDispatcher, service: WorkflowService, caplog: pytest.LogCaptureFixture
) -> None:
    @workflow
    def order(flow: Flow) -> str:
        return "done"

    outbox.is_down = True
    with caplog.at_level(logging.WARNING):
        run = order.start()
    assert run.status == "running"
    assert f"Run {run.id} is kept and dispatched later by the relay" in caplog.text

    outbox.is_down = False
    assert service.relay() == [], "the relay is patient: the message may just be slow"
    with clock.travel(MINUTE):
        assert service.relay() == [run.id]
        outbox.deliver()
    assert (run.status, run.output) == ("completed", "done")


def test_a_broker_that_stays_down_is_tried_less_and_less_often(
    outbox: RecordingDispatcher, service: WorkflowService
) -> None:
    @workflow
    def order(flow: Flow) -> None: ...

    outbox.is_down = True
    run = order.start()
    pauses = []
    with clock.travel(MINUTE * 0):
        for _ in range(4):
            due_at = run.get().due_at
            assert due_at is not None
            ahead = due_at - service._runtime.now()
            with clock.travel(ahead):
                service.relay()
                next_due = run.get().due_at
                assert next_due is not None
                pauses.append(round((next_due - due_at).total_seconds()))
    assert pauses == [30, 60, 120, 240]


def test_a_body_is_given_its_data_as_keyword_arguments() -> None:
    @workflow
    def order(flow: Flow, order_id: str, items: list[dict[str, Any]], *, express: bool = False) -> Any:
        return [order_id, items, express, flow.run_id, flow.owner_id]

    run = order.run({"order_id": "A1", "items": [{"sku": "CUP", "n": 0}]}, owner="user-1")

    assert run.output == ["A1", [{"sku": "CUP", "n": 0}], False, run.id, "user-1"]
    assert run.get().input == {"order_id": "A1", "items": [{"sku": "CUP", "n": 0}]}


@pytest.mark.parametrize("output", [0, False, "", [], {}, None], ids=repr)
def test_a_falsy_output_of_a_body_survives(output: Any) -> None:
    @workflow
    def order(flow: Flow) -> Any:
        return output

    run = order.run()
    assert run.status == "completed"
    assert run.output == output
    assert type(run.output) is type(output)


def test_a_body_that_raises_fails_its_run_with_the_exception_as_text() -> None:
    class NoStock(Exception):
        code = "NO_STOCK"

    @workflow
    def order(flow: Flow) -> None:
        raise NoStock("no cups left\x00")

    run = order.run()

    assert run.status == "failed"
    assert run.error is not None
    assert (run.error["name"], run.error["message"], run.error["code"]) == ("NoStock", "no cups left�", "NO_STOCK")
    assert "in order" in run.error["stack"]
    assert run.output is None


@pytest.mark.parametrize("error", [SystemExit(1), GeneratorExit(), BaseException("odd")], ids=repr)
def test_a_body_that_raises_something_odd_fails_its_run(error: BaseException) -> None:
    @workflow
    def order(flow: Flow) -> None:
        raise error

    assert order.run().status == "failed"


def test_a_body_that_is_interrupted_leaves_its_run_to_others() -> None:
    @workflow
    def order(flow: Flow) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        order.run()
    run = WorkflowRun.objects.get()
    assert run.status == "running"
    assert run.due_at is not None


def test_an_output_that_cannot_be_stored_fails_the_run_with_its_path() -> None:
    @workflow
    def order(flow: Flow) -> Any:
        return {"items": [{"price": float("nan")}]}

    run = order.run()

    assert run.status == "failed"
    assert run.error is not None
    assert run.error["code"] == "NOT_SERIALIZABLE"
    assert run.error["message"] == "$output.items[0].price: nan is not a JSON number"


# -- owner and trigger -------------------------------------------------------------------------------------------------


def test_a_run_belongs_to_the_user_it_was_started_for() -> None:
    user = get_user_model().objects.create_user("aino")

    @workflow
    def order(flow: Flow) -> Any:
        return [flow.owner_id, flow.do("who", lambda: current_step().owner_id)]

    run = order.run(owner=user)

    assert run.get().owner_id == str(user.pk)
    assert run.get().wire == {"type": "code", "pikkuUserId": str(user.pk)}
    assert run.output == [str(user.pk), str(user.pk)]
    assert [found.id for found in WorkflowRunService().list_runs(owner_id=str(user.pk))] == [run.id]


@pytest.mark.parametrize(("owner", "stored"), [("user-1", "user-1"), (7, "7"), (None, None), ("", None)])
def test_an_owner_may_be_any_id(owner: Any, stored: str | None) -> None:
    @workflow
    def order(flow: Flow) -> None: ...

    run = order.run(owner=owner)
    assert run.get().owner_id == stored
    assert run.get().wire.get("pikkuUserId") == stored


def test_a_user_that_is_not_saved_cannot_own_a_run() -> None:
    @workflow
    def order(flow: Flow) -> None: ...

    with pytest.raises(WorkflowInputError, match="has no primary key: save the user first"):
        order.start(owner=get_user_model()(username="ghost"))
    assert nothing_is_stored()


def test_a_run_remembers_what_triggered_it(service: WorkflowService) -> None:
    @workflow
    def order(flow: Flow) -> None: ...

    assert order.run(trigger="schedule").get().wire == {"type": "schedule"}
    handle = service.start_workflow("order", wire={"type": "http", "path": "/orders"})
    assert handle.get().wire == {"type": "http", "path": "/orders"}


# -- idempotency keys --------------------------------------------------------------------------------------------------


def test_the_same_key_is_the_same_run(outbox: RecordingDispatcher) -> None:
    bodies: list[int] = []

    @workflow
    def order(flow: Flow, n: int) -> int:
        bodies.append(n)
        return n

    first = order.start({"n": 1}, idempotency_key="order-1")
    second = order.start({"n": 1}, idempotency_key="order-1")
    outbox.deliver()
    third = order.run({"n": 1}, idempotency_key="order-1")

    assert first == second == third
    assert [handle.created for handle in (first, second, third)] == [True, False, False]
    assert bodies == [1]
    assert len(outbox.sent) == 1
    assert third.output == 1
    assert first.get().idempotency_key == "order-1"


def test_other_keys_and_other_workflows_are_other_runs() -> None:
    @workflow
    def order(flow: Flow) -> None: ...

    @workflow
    def parcel(flow: Flow) -> None: ...

    handles = {
        order.start(idempotency_key="1"),
        order.start(idempotency_key="2"),
        parcel.start(idempotency_key="1"),
        order.start(),
        order.start(),
    }
    assert len(handles) == 5


def test_the_same_key_with_other_data_keeps_the_first_run_and_warns(caplog: pytest.LogCaptureFixture) -> None:
    @workflow
    def order(flow: Flow, n: int) -> None: ...

    first = order.start({"n": 1}, idempotency_key="order-1")
    with caplog.at_level(logging.WARNING):
        assert order.start({"n": 1}, idempotency_key="order-1") == first
        assert caplog.text == ""
        second = order.start({"n": 2}, idempotency_key="order-1")

    assert second == first
    assert second.get().input == {"n": 1}
    assert (
        f"'order-1' of workflow order was used before with other data; the first run {first.id} stands" in caplog.text
    )


@pytest.mark.parametrize("key", ["", "x" * 256, "a\x00", "\ud800"], ids=["empty", "too long", "nul", "surrogate"])
def test_what_is_no_key_is_refused(key: str) -> None:
    @workflow
    def order(flow: Flow) -> None: ...

    with pytest.raises(ValueError, match="idempotency"):
        order.start(idempotency_key=key)
    assert not WorkflowRun.objects.exists()


def test_a_key_works_inside_a_transaction() -> None:
    @workflow
    def order(flow: Flow) -> None: ...

    with transaction.atomic():
        first = order.start(idempotency_key="order-1")
        assert order.start(idempotency_key="order-1") == first
    assert WorkflowRun.objects.count() == 1


# -- versions ----------------------------------------------------------------------------------------------------------


def test_starting_stores_the_version_of_the_body(runs: WorkflowRunService) -> None:
    @workflow
    def order(flow: Flow, n: int) -> int:
        return n + 1

    run = order.run({"n": 1})

    graph_hash = run.get().graph_hash
    assert graph_hash == order.graph_hash
    version = runs.get_workflow_version("order", graph_hash)
    assert version is not None
    assert version.source == "complex"
    assert "return n + 1" in version.graph["source"]


def test_a_version_is_stored_also_after_a_start_that_was_rolled_back(runs: WorkflowRunService) -> None:
    @workflow
    def order(flow: Flow) -> None: ...

    with transaction.atomic():
        order.start()
        transaction.set_rollback(True)
    run = order.start()

    graph_hash = run.get().graph_hash
    assert graph_hash is not None
    assert runs.get_workflow_version("order", graph_hash) is not None


# -- the handle --------------------------------------------------------------------------------------------------------


def test_a_handle_tells_what_the_database_tells() -> None:
    @function
    def pack(n: int) -> int:
        return n + 1

    @workflow
    def order(flow: Flow, n: int) -> int:
        flow.set_state("courier", "dhl")
        return flow.do("pack", pack, {"n": n})

    run = order.run({"n": 1})

    assert repr(run) == f"<WorkflowRunHandle {run.id}>"
    assert (run.status, run.output, run.error, run.state) == ("completed", 2, None, {"courier": "dhl"})
    assert [step.step_name for step in run.steps()] == ["pack"]
    assert [event.type for event in run.timeline()] == ["pending", "running", "succeeded"]
    assert run.wait(timeout=0) is run
    assert run.result() == 2
    assert {run, run} == {run}
    assert run != run.id


def test_a_handle_can_be_had_again_by_the_runs_id(service: WorkflowService, statements: Counter) -> None:
    """Without a look at the database, until it is asked."""

    @workflow
    def order(flow: Flow) -> str:
        return flow.do("pack", lambda: "packed")

    run = order.run()
    with statements() as seen:
        handle = service.get_handle(run.id)
    assert data_statements(seen) == []
    assert handle == run
    assert hash(handle) == hash(run)
    assert run.created
    assert not handle.created
    assert (handle.status, handle.output, handle.get()) == ("completed", "packed", run.get())
    assert handle.result() == "packed"


def test_a_handle_of_an_unknown_run_says_so_when_it_is_asked(service: WorkflowService) -> None:
    handle = service.get_handle("nothing")

    for ask in (handle.get, handle.wait, handle.result, handle.retry):
        with pytest.raises(WorkflowRunNotFoundError, match="Workflow run not found: nothing"):
            ask()
    assert (handle.cancel(), handle.resume(), handle.steps(), handle.timeline()) == (False, False, [], [])


def test_the_result_of_a_run_tells_how_it_ended(service: WorkflowService, outbox: RecordingDispatcher) -> None:
    @workflow
    def order(flow: Flow, fails: bool = False) -> str:
        if fails:
            raise ValueError("no stock")
        return flow.do("pack", lambda: "packed")

    with pytest.raises(WorkflowRunFailedError, match="no stock") as caught:
        order.run({"fails": True}).result()
    assert caught.value.error["name"] == "ValueError"

    cancelled = order.start()
    cancelled.cancel()
    with pytest.raises(WorkflowRunCancelledError):
        cancelled.result(timeout=0)

    suspended = order.start()
    service.update_run_status(suspended.id, "suspended", error={"message": "waits"})
    with pytest.raises(WorkflowRunSuspendedError, match="waits"):
        suspended.result(timeout=0)
    assert suspended.wait(timeout=0) is suspended

    running = order.start()
    with pytest.raises(TimeoutError, match="still running after 0 s"):
        running.result(timeout=0)


def test_a_handle_of_a_run_that_is_gone_says_so(runs: WorkflowRunService) -> None:
    @workflow
    def order(flow: Flow) -> None: ...

    run = order.run()
    assert runs.delete_run(run.id)

    with pytest.raises(WorkflowRunNotFoundError, match=run.id):
        _ = run.status
    with pytest.raises(WorkflowRunNotFoundError):
        run.wait(timeout=0)
    assert run.timeline() == []
    assert run.steps() == []
    assert not run.cancel()
    assert not run.resume()
    with pytest.raises(WorkflowRunNotFoundError):
        run.retry()


def test_waiting_for_a_run_that_goes_on_ends_with_its_timeout() -> None:
    @workflow
    def order(flow: Flow) -> None: ...

    with pytest.raises(TimeoutError, match="is still running after 0 s"):
        order.start().wait(timeout=0)


def test_current_step_is_no_part_of_a_body() -> None:
    @workflow
    def order(flow: Flow) -> None:
        with pytest.raises(WorkflowError, match="outside of a step function"):
            current_step()

    assert order.run().status == "completed"
