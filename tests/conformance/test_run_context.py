"""What a process keeps of a run, which is nothing beyond a pass; and who a run belongs to."""

from __future__ import annotations

import gc
import logging
import re
import weakref
from typing import Any

import pytest

from pikku_storage.access.ownership import assert_run_owner
from pikku_storage.db import clock
from pikku_storage.exceptions import WorkflowError, WorkflowRunForbiddenError, WorkflowStepFunctionMismatchError
from pikku_storage.workflows import current_step, function, tasks, workflow
from pikku_storage.workflows.definitions import WorkflowDefinition
from pikku_storage.workflows.flow import Flow
from pikku_storage.workflows.runs import WorkflowRunService
from pikku_storage.workflows.service import WorkflowService
from tests.conformance.conftest import Counter
from tests.conformance.recording import RecordingDispatcher
from tests.conformance.support import MINUTE, nothing_is_stored, outcomes, step_names, step_of

pytestmark = pytest.mark.django_db(transaction=True)


# -- nothing is left in the process ------------------------------------------------------------------------------------


class Traces:
    """The flows of all passes so far, as long as somebody holds them."""

    def __init__(self) -> None:
        self.flows: list[weakref.ref[Flow]] = []

    def note(self, flow: Flow) -> None:
        """Called by a body, once per pass."""
        self.flows.append(weakref.ref(flow))

    @property
    def left(self) -> int:
        """How many are still held by anybody."""
        gc.collect()
        return sum(flow() is not None for flow in self.flows)


@pytest.fixture
def traces() -> Traces:
    """What passes leave behind."""
    return Traces()


@pytest.fixture
def order(traces: Traces) -> WorkflowDefinition[Any]:
    """Two passes: the same names before a queued step and after it."""

    @function(queued=True, retries=0)
    def ship(fails: bool) -> str:
        if fails:
            raise ValueError("no van")
        return "shipped"

    @workflow
    def order(flow: Flow, fails: bool = False) -> Any:
        traces.note(flow)
        flow.do("pack", lambda: None)
        flow.do("pack", lambda: None)
        shipped = flow.do("ship", ship, {"fails": fails})
        flow.do("pack", lambda: None)
        return shipped

    return order


@pytest.mark.contract("RC-01", "IA-05")
def test_a_completed_run_leaves_nothing_in_the_process(
    order: WorkflowDefinition[Any], traces: Traces, outbox: RecordingDispatcher
) -> None:
    run = order.start()
    outbox.deliver_one()
    assert (run.status, len(traces.flows), traces.left) == ("running", 1, 0), "nor does a pass that waits"
    outbox.deliver()
    assert (run.status, len(traces.flows), traces.left) == ("completed", 2, 0)


@pytest.mark.contract("IA-06")
def test_a_failed_run_leaves_nothing_in_the_process(
    order: WorkflowDefinition[Any], traces: Traces, outbox: RecordingDispatcher, caplog: pytest.LogCaptureFixture
) -> None:
    # A record of the log keeps the exception, and with it the frames it came through.
    caplog.set_level(logging.CRITICAL, "pikku_storage")
    run = order.start({"fails": True})
    outbox.deliver()
    assert (run.status, traces.left) == ("failed", 0)


@pytest.mark.contract("IA-04")
def test_an_inline_run_leaves_nothing_in_the_process(order: WorkflowDefinition[Any], traces: Traces) -> None:
    run = order.run()
    assert (run.status, traces.left) == ("completed", 0)
    assert step_names(order.run().id) == ["pack", "pack#1", "ship", "pack#2"], "the next one counts from the beginning"


@pytest.mark.contract("RC-02")
def test_where_a_replay_came_to_is_not_where_the_next_one_begins(
    order: WorkflowDefinition[Any], outbox: RecordingDispatcher
) -> None:
    run = order.start()
    outbox.deliver()
    origins = {step.step_name: step.from_step_name for step in run.steps()}
    assert origins == {"pack": None, "pack#1": "pack", "ship": "pack#1", "pack#2": "ship"}


@pytest.mark.contract("IA-07")
def test_a_queued_step_leaves_no_context_behind(outbox: RecordingDispatcher) -> None:
    seen: list[str] = []

    @function(queued=True)
    def ship() -> None:
        seen.append(current_step().step_name)

    @workflow
    def order(flow: Flow) -> None:
        flow.do("ship", ship)

    order.start()
    outbox.deliver()
    assert seen == ["ship"]
    with pytest.raises(WorkflowError, match="outside of a step function"):
        current_step()


# -- what is read ------------------------------------------------------------------------------------------------------


def _reads_of_runs(texts: list[str]) -> int:
    """How many of the statements answer with a run; on MongoDB the reads are aggregations, or plain ones."""
    about_runs = [text for text in texts if "workflow_runs" in text]
    reads = re.compile(r"SELECT|.*RETURNING|\S+\.(aggregate|find)\(", re.DOTALL)
    return sum(reads.match(text) is not None for text in about_runs)


@pytest.fixture
def asking() -> WorkflowDefinition[Any]:
    """A body that asks for its run's facts again and again."""

    @workflow
    def asking(flow: Flow, times: int) -> Any:
        return [[flow.run_id, flow.owner_id] for _ in range(times)][-1]

    return asking


@pytest.mark.contract("RC-07")
def test_a_pass_reads_its_run_once_however_often_the_body_asks(
    asking: WorkflowDefinition[Any], service: WorkflowService, statements: Counter
) -> None:
    asking.run({"times": 1})
    counts = []
    for times in (1, 50):
        run = asking.start({"times": times}, owner="user-1")
        with statements() as seen:
            service.orchestrate_workflow(run.id)
        assert run.output == [run.id, "user-1"]
        texts = [query["sql"] for query in seen.captured_queries]
        assert _reads_of_runs(texts) == 1, texts
        counts.append(len(texts))
    assert counts[0] == counts[1]


@pytest.mark.contract("RC-08")
def test_the_next_pass_reads_it_again(outbox: RecordingDispatcher, service: WorkflowService) -> None:
    @function(queued=True)
    def ship() -> None: ...

    owners: list[str | None] = []

    @workflow
    def order(flow: Flow) -> None:
        owners.append(flow.owner_id)
        flow.do("ship", ship)

    run = order.start(owner="user-1")
    outbox.deliver_one()
    service._runtime.runs.filter(pk=run.id).update(owner_id="user-2")
    outbox.deliver()
    assert owners == ["user-1", "user-2"]


@pytest.mark.contract("RC-09")
def test_outside_of_a_pass_a_run_is_read_each_time(
    asking: WorkflowDefinition[Any], service: WorkflowService, statements: Counter
) -> None:
    run = asking.run({"times": 1})
    with statements() as seen:
        assert [run.status, run.status, service.get_run(run.id) is not None] == ["completed", "completed", True]
    assert len(seen.captured_queries) == 3


# -- inline or queued, by the record -----------------------------------------------------------------------------------


@pytest.mark.contract("IA-01", "IA-02")
@pytest.mark.parametrize("inline", [True, False])
def test_any_process_knows_from_the_record_whether_a_run_is_inline(inline: bool, service: WorkflowService) -> None:
    run_id = service.create_run("flow", {}, inline)
    for other in (WorkflowService(worker="elsewhere"), WorkflowRunService()):
        found = other.get_run(run_id)
        assert found is not None
        assert found.inline is inline


@pytest.mark.contract("IA-03")
def test_asking_for_an_unknown_run_makes_none(service: WorkflowService, runs: WorkflowRunService) -> None:
    assert service.get_run("no such run") is None
    assert runs.get_run("no such run") is None
    assert service.get_run_state("no such run") == {}
    assert service.get_run_timeline("no such run") is None
    assert nothing_is_stored()


@pytest.mark.contract("RC-04")
def test_a_replay_of_an_inline_run_leaves_it_inline(
    order: WorkflowDefinition[Any], outbox: RecordingDispatcher, service: WorkflowService
) -> None:
    """Also by a worker that takes it over."""
    run_id = service.create_run("order", {}, True)
    service.orchestrate_workflow(run_id)
    assert service.get_handle(run_id).get().inline
    outbox.deliver()
    assert service.get_handle(run_id).get().inline


# -- messages ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def booking() -> WorkflowDefinition[Any]:
    """A queued step that says what it was given, and whose it is."""

    @function(queued=True, retries=0)
    def book(parcel: int) -> Any:
        step = current_step()
        return [step.run_id, step.step_name, parcel, step.owner_id]

    @workflow
    def booking(flow: Flow) -> Any:
        return flow.do("book", book, {"parcel": 7})

    return booking


@pytest.mark.contract("QW-01", "QW-03")
def test_the_tasks_drive_the_run_and_execute_the_step(
    booking: WorkflowDefinition[Any], outbox: RecordingDispatcher
) -> None:
    """Run and step are in the message, function and data in the row."""
    run = booking.start()
    tasks.orchestrate.apply(args=(run.id,), throw=True)
    assert step_of(run.id, "book").status == "scheduled"
    tasks.execute_step.apply(args=(run.id, "book"), throw=True)
    assert run.output == [run.id, "book", 7, None]


@pytest.mark.contract("QW-05")
def test_a_sleep_is_completed_by_the_relay(outbox: RecordingDispatcher) -> None:
    @workflow
    def nap(flow: Flow) -> str:
        flow.sleep("nap", "1h")
        return "rested"

    run = nap.start()
    tasks.orchestrate.apply(args=(run.id,), throw=True)
    outbox.lose_everything()
    with clock.travel(61 * MINUTE):
        tasks.relay.apply(throw=True)
        assert outcomes(run.id, "nap") == ["succeeded"]
        outbox.deliver()
    assert run.output == "rested"


@pytest.mark.contract("RA-03")
def test_a_message_that_names_another_function_is_refused(
    booking: WorkflowDefinition[Any], outbox: RecordingDispatcher, service: WorkflowService
) -> None:
    run = booking.start()
    outbox.deliver_one()
    with pytest.raises(WorkflowStepFunctionMismatchError):
        service.execute_workflow_step(run.id, "book", "transfer_money")
    assert step_of(run.id, "book").status == "scheduled"


@pytest.mark.contract("RA-04")
def test_a_message_that_names_the_steps_function_is_carried_out(
    booking: WorkflowDefinition[Any], outbox: RecordingDispatcher, service: WorkflowService
) -> None:
    run = booking.start()
    outbox.deliver_one()
    service.execute_workflow_step(run.id, "book", "book")
    assert step_of(run.id, "book").status == "succeeded"


# -- whose run it is ---------------------------------------------------------------------------------------------------


@pytest.mark.contract("SX-01")
def test_a_queued_step_is_told_the_runs_owner(booking: WorkflowDefinition[Any], outbox: RecordingDispatcher) -> None:
    run = booking.start(owner="user-1")
    outbox.deliver()
    assert run.output[-1] == "user-1"


@pytest.mark.contract("SX-02")
def test_a_queued_step_is_told_of_no_owner_that_there_is_not(
    booking: WorkflowDefinition[Any], outbox: RecordingDispatcher
) -> None:
    run = booking.start()
    outbox.deliver()
    assert run.output[-1] is None
    assert "pikkuUserId" not in run.get().wire


@pytest.mark.contract("RA-05")
def test_a_run_with_an_owner_is_for_its_owner_only(booking: WorkflowDefinition[Any]) -> None:
    run = booking.start(owner="user-1").get()
    assert_run_owner(run, "user-1")
    for other in ("user-2", "USER-1", "user-1 ", "", None):
        with pytest.raises(WorkflowRunForbiddenError, match=r"^Not authorized to access this workflow run$") as refused:
            assert_run_owner(run, other)
        assert refused.value.http_status == 403


@pytest.mark.contract("RA-06")
@pytest.mark.parametrize("user_id", ["user-1", "", None])
def test_a_run_without_an_owner_has_no_rule(booking: WorkflowDefinition[Any], user_id: str | None) -> None:
    assert_run_owner(booking.start().get(), user_id)
