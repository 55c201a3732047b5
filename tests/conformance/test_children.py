"""A workflow as a step: its run is a child of the run that called it, and what becomes of either reaches the other."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from pikku_storage.db import clock
from pikku_storage.exceptions import FinalError, WorkflowStepFailedError
from pikku_storage.ids import child_run_id
from pikku_storage.workflows import function, workflow
from pikku_storage.workflows.definitions import WorkflowDefinition
from pikku_storage.workflows.dispatch import dispatcher
from pikku_storage.workflows.engine import children
from pikku_storage.workflows.flow import Flow
from pikku_storage.workflows.handle import WorkflowRunHandle
from pikku_storage.workflows.invariants import find_violations
from pikku_storage.workflows.models import WorkflowRun, WorkflowStep
from pikku_storage.workflows.querysets import RunQuerySet, StepQuerySet
from pikku_storage.workflows.runs import WorkflowRunService
from pikku_storage.workflows.service import WorkflowService
from pikku_storage.workflows.statuses import RunStatus
from tests.conformance.recording import RecordingDispatcher
from tests.conformance.support import MINUTE, attempts_of, noting, outcomes, step_names, step_of, undeployed

pytestmark = pytest.mark.django_db(transaction=True)

HOUR = timedelta(hours=1)


@pytest.fixture(autouse=True)
def _sound(service: WorkflowService) -> Iterator[None]:
    """Whatever a test does to them, the runs stay sound."""
    yield
    assert list(find_violations()) == []


@pytest.fixture
def ship() -> WorkflowDefinition[Any]:
    """The sub-workflow: two steps, and it fails if told so."""

    @function(retries=0)
    def book(parcel: int) -> str:
        if parcel < 0:
            raise FinalError("the courier knows no such parcel")
        return f"booked {parcel}"

    @workflow
    def ship(flow: Flow, parcel: int) -> Any:
        return [flow.do("book", book, {"parcel": parcel}), flow.do("label", lambda: flow.run_id)]

    return ship


@pytest.fixture
def order(ship: WorkflowDefinition[Any]) -> WorkflowDefinition[Any]:
    """The parent."""

    @workflow
    def order(flow: Flow, parcel: int) -> Any:
        flow.do("pack", lambda: None)
        shipped = flow.do("ship", ship, {"parcel": parcel})
        return [shipped, flow.do("thank", lambda: "thanks")]

    return order


@pytest.fixture
def rest() -> WorkflowDefinition[Any]:
    """A sub-workflow that waits an hour."""

    @workflow
    def rest(flow: Flow) -> str:
        flow.sleep("rest", "1h")
        return "rested"

    return rest


@pytest.fixture
def patient(rest: WorkflowDefinition[Any]) -> WorkflowDefinition[Any]:
    """The parent of a run that waits an hour."""

    @workflow
    def patient(flow: Flow) -> Any:
        return flow.do("rest", rest)

    return patient


@pytest.fixture(params=["inline", "worker", "no broker"])
def carried(request: pytest.FixtureRequest, outbox: RecordingDispatcher) -> Any:
    """Starts a run and carries it as far as it goes: in this process, or by a worker."""
    if request.param == "no broker":
        request.getfixturevalue("no_broker")

    def carried(definition: WorkflowDefinition[Any], data: dict[str, Any] | None = None, **options: Any) -> Any:
        if request.param == "inline":
            return definition.run(data, **options)
        run = definition.start(data, **options)
        outbox.deliver()
        return run

    return carried


def _child(run: WorkflowRunHandle, step_name: str = "ship") -> WorkflowRunHandle:
    child_id = step_of(run.id, step_name).child_run_id
    assert child_id is not None
    return WorkflowService().get_handle(child_id)


def _failure(run: WorkflowRunHandle) -> dict[str, Any]:
    assert run.status == "failed"
    assert run.error is not None
    return run.error


# -- both ways ---------------------------------------------------------------------------------------------------------


@pytest.mark.contract("CS-03")
def test_a_workflow_is_a_step_and_its_run_a_child(carried: Any, order: WorkflowDefinition[Any]) -> None:
    run = carried(order, {"parcel": 7})

    child = _child(run)
    assert run.output == [["booked 7", child.id], "thanks"]
    assert step_names(run.id) == ["pack", "ship", "thank"]
    assert outcomes(run.id, "ship") == ["succeeded"]
    step = step_of(run.id, "ship")
    assert (step.rpc_name, step.data, step.result) == ("ship", {"parcel": 7}, ["booked 7", child.id])
    stored = child.get()
    assert (stored.workflow, stored.status, stored.input) == ("ship", "completed", {"parcel": 7})
    assert stored.parent_run_id == run.id
    assert stored.wire == {
        "type": "workflow",
        "id": "ship",
        "parentRunId": run.id,
        "parentStepId": step.step_id,
        "depth": 1,
    }
    assert stored.graph_hash == WorkflowService().get_handle(child.id).get().graph_hash
    assert WorkflowRunService().get_workflow_version("ship", stored.graph_hash or "") is not None


def test_each_knows_the_other(order: WorkflowDefinition[Any], runs: WorkflowRunService) -> None:
    run = order.run({"parcel": 7})
    child = _child(run)

    assert run.children() == [child]
    assert run.parent is None
    assert child.parent == run
    assert child.children() == []
    assert [found.id for found in runs.list_runs(parent_run_id=run.id)] == [child.id]


def test_the_childs_id_follows_from_its_step_and_attempt(order: WorkflowDefinition[Any]) -> None:
    run = order.run({"parcel": 7})
    step = step_of(run.id, "ship")
    assert step.child_run_id == child_run_id(step.step_id, 1)


def test_an_inline_parent_has_an_inline_child(order: WorkflowDefinition[Any], outbox: RecordingDispatcher) -> None:
    run = order.run({"parcel": 7})
    assert _child(run).get().inline
    assert outbox.sent == []


def test_a_worker_carries_a_single_child_on_itself(order: WorkflowDefinition[Any], outbox: RecordingDispatcher) -> None:
    """One message for both runs."""
    run = order.start({"parcel": 7})
    assert outbox.deliver() == 1
    assert run.status == "completed"
    assert not _child(run).get().inline


def test_a_workflow_may_be_called_by_its_name(carried: Any, ship: WorkflowDefinition[Any]) -> None:
    @workflow
    def order(flow: Flow) -> Any:
        return flow.do("ship", "ship", {"parcel": 7})

    assert carried(order).output[0] == "booked 7"


def test_names_repeat_as_with_any_step(carried: Any, ship: WorkflowDefinition[Any]) -> None:
    @workflow
    def order(flow: Flow) -> Any:
        return [flow.do("ship", ship, {"parcel": parcel})[0] for parcel in (1, 2)]

    run = carried(order)
    assert run.output == ["booked 1", "booked 2"]
    assert step_names(run.id) == ["ship", "ship#1"]


def test_many_children_one_after_the_other_do_not_pile_up(carried: Any) -> None:
    """Neither on the stack nor in messages."""

    @workflow
    def count(flow: Flow, number: int) -> int:
        return number

    @workflow
    def order(flow: Flow) -> Any:
        return sum(flow.do("count", count, {"number": number}) for number in range(40))

    assert carried(order).output == sum(range(40))


@pytest.mark.contract("CS-01")
def test_a_child_has_its_parents_owner(carried: Any, order: WorkflowDefinition[Any]) -> None:
    run = carried(order, {"parcel": 7}, owner="user-1")
    child = _child(run).get()
    assert child.owner_id == "user-1"
    assert child.wire["pikkuUserId"] == "user-1"


@pytest.mark.contract("CS-02")
def test_no_owner_is_invented(carried: Any, order: WorkflowDefinition[Any]) -> None:
    child = _child(carried(order, {"parcel": 7})).get()
    assert child.owner_id is None
    assert "pikkuUserId" not in child.wire


# -- side by side ------------------------------------------------------------------------------------------------------


def test_children_of_a_fan_out_keep_the_order_of_the_items(carried: Any, ship: WorkflowDefinition[Any]) -> None:
    @workflow
    def order(flow: Flow) -> Any:
        results: list[Any] = flow.map("ship", ship, [3, {"parcel": 1}, 2])
        return [result[0] for result in results]

    run = carried(order)
    assert run.output == ["booked 3", "booked 1", "booked 2"]
    assert step_names(run.id) == ["ship[0]", "ship[1]", "ship[2]"]
    assert len(run.children()) == 3


def test_children_of_a_fan_out_spread_over_the_workers(
    ship: WorkflowDefinition[Any], outbox: RecordingDispatcher, service: WorkflowService
) -> None:
    @workflow
    def order(flow: Flow) -> Any:
        return len(flow.map("ship", ship, [1, 2, 3]))

    run = order.start()
    outbox.deliver_one()
    assert sorted(message.run_id for message in outbox.waiting) == sorted(child.id for child in run.children())
    for _ in range(2):
        outbox.deliver_one()
    assert run.status == "running"
    outbox.deliver_one()
    assert run.output == 3, "the worker of the last one carries on with the parent"
    assert outbox.waiting == []


def test_workflows_and_functions_side_by_side(carried: Any, ship: WorkflowDefinition[Any]) -> None:
    @function
    def bill() -> str:
        return "billed"

    @workflow
    def order(flow: Flow) -> Any:
        shipped, billed = flow.gather(("ship", ship, {"parcel": 7}), ("bill", bill, {}))
        return [shipped[0], billed]

    assert carried(order).output == ["booked 7", "billed"]


def test_all_children_are_carried_to_their_end_before_a_failure_is_raised(
    carried: Any, ship: WorkflowDefinition[Any]
) -> None:
    @workflow
    def order(flow: Flow) -> Any:
        return flow.map("ship", ship, [1, -1, 3])

    run = carried(order)
    assert _failure(run)["message"] == "the courier knows no such parcel"
    assert sorted(child.status for child in run.children()) == ["completed", "completed", "failed"]


# -- waiting -----------------------------------------------------------------------------------------------------------


def test_nobody_is_held_while_a_child_waits(
    patient: WorkflowDefinition[Any], outbox: RecordingDispatcher, service: WorkflowService
) -> None:
    run = patient.start()
    outbox.deliver()

    stored = WorkflowRun.objects.get(pk=run.id)
    assert (stored.status, stored.pass_token) == ("running", None)
    step = step_of(run.id, "rest")
    assert (step.status, step.claim_token, step.claimed_by) == ("running", None, None)
    assert step.due_at is not None

    with clock.travel(HOUR + MINUTE):
        service.relay()
        outbox.deliver()
    assert run.output == "rested"


def test_the_relay_takes_no_waiting_step_for_a_lost_worker(
    patient: WorkflowDefinition[Any], outbox: RecordingDispatcher, service: WorkflowService
) -> None:
    run = patient.start()
    outbox.deliver()
    for minutes in range(1, 60, 7):
        with clock.travel(minutes * MINUTE):
            assert service.relay() == [], "nor does it drive on what only waits"
            outbox.deliver()
    assert outcomes(run.id, "rest") == ["running"]
    with clock.travel(HOUR + MINUTE):
        assert service.relay() == [_child(run, "rest").id]
        outbox.deliver()
        assert run.output == "rested"


def test_an_inline_parent_waits_for_a_child_that_sleeps(carried: Any) -> None:
    @workflow
    def nap(flow: Flow) -> str:
        flow.sleep("nap", 20)
        return "fresh"

    @workflow
    def order(flow: Flow) -> Any:
        return flow.do("nap", nap)

    run = order.run()
    assert run.output == "fresh"


@pytest.fixture
def stuck() -> WorkflowDefinition[Any]:
    """The parent of a run that waits for a function nobody has."""

    @workflow
    def hopeful(flow: Flow) -> Any:
        return flow.do("book", "book later")

    @workflow
    def stuck(flow: Flow) -> Any:
        return flow.do("ship", hopeful)

    return stuck


def test_a_suspended_child_leaves_its_parent_waiting(
    carried: Any, stuck: WorkflowDefinition[Any], outbox: RecordingDispatcher
) -> None:
    """Also an inline parent answers at once, since no waiting here would help."""
    run = carried(stuck)
    child = _child(run)
    assert child.status == "suspended"
    assert run.status == "running"
    assert step_of(run.id, "ship").status == "running"

    @function(name="book later")
    def book() -> str:
        return "booked"

    assert child.resume()
    outbox.deliver()
    assert child.output == "booked"
    assert run.output == "booked"


def test_a_child_of_a_workflow_that_nobody_has_suspends_its_parent(
    order: WorkflowDefinition[Any], outbox: RecordingDispatcher
) -> None:
    run = order.start({"parcel": 7})
    with undeployed("ship"):
        outbox.deliver()
    assert run.status == "suspended"
    assert run.error == {
        "message": "RPC 'ship' not found. Deploy the missing function and resume.",
        "code": "RPC_NOT_FOUND",
    }
    assert step_names(run.id) == ["pack"]
    run.resume()
    outbox.deliver()
    assert run.status == "completed"


# -- failure travels up ------------------------------------------------------------------------------------------------


def test_a_failed_child_fails_its_step_with_its_message(carried: Any, order: WorkflowDefinition[Any]) -> None:
    run = carried(order, {"parcel": -1})

    child = _child(run)
    assert child.status == "failed"
    step = step_of(run.id, "ship")
    assert step.status == "failed"
    assert step.error == {"message": "the courier knows no such parcel", "name": "WorkflowStepFailedError"}
    assert outcomes(run.id, "ship") == ["failed"], "a workflow is not tried again unless it is said so"
    assert _failure(run)["message"] == "the courier knows no such parcel"
    assert _failure(run)["step"] == "ship"
    assert step_names(run.id) == ["pack", "ship"]


def test_a_body_may_catch_the_failure_of_a_child(carried: Any, ship: WorkflowDefinition[Any]) -> None:
    class NoFunds(FinalError):
        code = "NO_FUNDS"

    @workflow
    def charge(flow: Flow) -> None:
        def pay() -> None:
            raise NoFunds("the card is empty")

        flow.do("pay", pay)

    @workflow
    def order(flow: Flow) -> Any:
        try:
            flow.do("charge", charge)
        except WorkflowStepFailedError as failure:
            return [failure.step_name, failure.code, str(failure)]

    assert carried(order).output == ["charge", "NO_FUNDS", "the card is empty"]


def test_a_child_that_fails_without_a_word() -> None:
    """As a run does that another program ended."""

    @workflow
    def ship(flow: Flow) -> None:
        flow.do("wait", lambda: WorkflowService().update_run_status(flow.run_id, "failed"))
        flow.do("more", lambda: None)

    @workflow
    def order(flow: Flow) -> None:
        flow.do("ship", ship)

    assert _failure(order.run())["message"] == "Sub-workflow failed"


def test_a_failed_child_is_compensated(carried: Any, ship: WorkflowDefinition[Any]) -> None:
    told: list[Any] = []

    @function
    def undo(error: Any, input: Any, invocation_id: str) -> None:
        told.append([error["message"], input])

    @workflow
    def order(flow: Flow) -> None:
        flow.do("ship", ship, {"parcel": -1}, on_error=undo)

    run = carried(order)
    assert told == [["the courier knows no such parcel", {"parcel": -1}]]
    assert step_names(run.id) == ["ship", "ship:onError"]


def test_each_attempt_is_a_child_of_its_own(carried: Any) -> None:
    tries: list[str] = []

    @workflow
    def ship(flow: Flow) -> int:
        tries.append(flow.run_id)
        if len(tries) < 3:
            raise ValueError("no van")
        return len(tries)

    @workflow
    def order(flow: Flow) -> Any:
        return flow.do("ship", ship, retries=2, retry_delay=0)

    run = carried(order)
    assert run.output == 3
    assert outcomes(run.id, "ship") == ["failed", "failed", "succeeded"]
    assert [child.status for child in run.children()] == ["failed", "failed", "completed"]
    assert [child.id for child in run.children()] == tries
    step = step_of(run.id, "ship")
    assert tries == [child_run_id(step.step_id, attempt) for attempt in (1, 2, 3)]
    assert (attempts_of(run.id, "ship")[0].error or {})["message"] == "no van"


def test_a_fan_outs_items_are_tried_again_each_by_itself(carried: Any) -> None:
    tries: list[int] = []

    @workflow
    def ship(flow: Flow, parcel: int) -> int:
        tries.append(parcel)
        if parcel == 2 and tries.count(2) == 1:
            raise ValueError("no van")
        return parcel

    @workflow
    def order(flow: Flow) -> Any:
        return flow.map("ship", ship, [1, 2, 3], retries=1, retry_delay=0)

    run = carried(order)
    assert run.output == [1, 2, 3]
    assert sorted(tries) == [1, 2, 2, 3]
    assert outcomes(run.id, "ship[1]") == ["failed", "succeeded"]


def test_a_retry_waits_for_its_time(outbox: RecordingDispatcher, service: WorkflowService) -> None:
    tries: list[str] = []

    @workflow
    def ship(flow: Flow) -> int:
        tries.append(flow.run_id)
        if len(tries) == 1:
            raise ValueError("no van")
        return len(tries)

    @workflow
    def order(flow: Flow) -> Any:
        return flow.do("ship", ship, retries=1, retry_delay="10min")

    run = order.start()
    outbox.deliver()
    with clock.travel(9 * MINUTE):
        service.relay()
        outbox.deliver()
    assert len(tries) == 1
    with clock.travel(11 * MINUTE):
        service.relay()
        outbox.deliver()
    assert run.output == 2


# -- cancellation ------------------------------------------------------------------------------------------------------


@pytest.fixture
def dynasty(patient: WorkflowDefinition[Any]) -> WorkflowDefinition[Any]:
    """Grandchildren, side by side."""

    @workflow
    def dynasty(flow: Flow) -> Any:
        return flow.map("line", patient, [{}, {}])

    return dynasty


def _family(run: WorkflowRunHandle) -> list[WorkflowRunHandle]:
    found = [run]
    for member in found:
        found.extend(member.children())
    return found


def test_cancelling_a_run_cancels_all_that_descends_from_it(
    dynasty: WorkflowDefinition[Any], outbox: RecordingDispatcher
) -> None:
    run = dynasty.start()
    outbox.deliver()
    family = _family(run)
    assert [member.status for member in family] == ["running"] * 5

    assert run.cancel("the customer changed her mind")

    assert [member.status for member in family] == ["cancelled"] * 5
    reasons = [(member.error or {})["message"] for member in family]
    assert reasons[0] == "the customer changed her mind"
    assert reasons[1] == f"The parent run {run.id} was cancelled: the customer changed her mind"
    assert all("the customer changed her mind" in reason for reason in reasons)
    assert (step_of(run.id, "line[0]").error or {})["message"] == "Sub-workflow was cancelled"
    assert WorkflowRun.objects.filter(due_at__isnull=False).count() == 0
    outbox.deliver()
    assert [member.status for member in family] == ["cancelled"] * 5


def test_a_cancelled_child_fails_its_step(patient: WorkflowDefinition[Any], outbox: RecordingDispatcher) -> None:
    run = patient.start()
    outbox.deliver()

    assert _child(run, "rest").cancel("not today")
    outbox.deliver()

    assert _failure(run)["message"] == "Sub-workflow was cancelled"
    assert _failure(run)["code"] == "WORKFLOW_CANCELLED"


def test_a_cancelled_child_is_not_begun_again(rest: WorkflowDefinition[Any], outbox: RecordingDispatcher) -> None:
    """Whoever cancels it does not want another one."""

    @workflow
    def order(flow: Flow) -> Any:
        return flow.do("rest", rest, retries=5, retry_delay=0)

    run = order.start()
    outbox.deliver()
    _child(run, "rest").cancel()
    outbox.deliver()

    assert run.status == "failed"
    assert outcomes(run.id, "rest") == ["failed"]


def test_cancelling_a_parent_whose_child_is_being_worked_on(
    outbox: RecordingDispatcher, service: WorkflowService
) -> None:
    """From inside of it: the step that runs may end, none begins after it, in either run."""
    reached: list[str] = []

    @workflow
    def ship(flow: Flow) -> None:
        parent = flow._replay.run.parent_run_id
        flow.do("book", lambda: service.cancel_workflow(str(parent), "stop"))
        reached.append("child")
        flow.do("more", lambda: reached.append("child's step"))

    @workflow
    def order(flow: Flow) -> None:
        flow.do("ship", ship)
        reached.append("parent")

    run = order.start()
    outbox.deliver()

    assert reached == ["child"]
    assert [member.status for member in _family(run)] == ["cancelled"] * 2
    assert step_of(_child(run).id, "book").status == "succeeded", "as any step that runs when its run is cancelled"


def test_a_cancelled_parent_is_not_told(patient: WorkflowDefinition[Any], outbox: RecordingDispatcher) -> None:
    run = patient.start()
    outbox.deliver()
    run.cancel()
    assert not _child(run, "rest").cancel()
    assert outbox.waiting == []


def test_of_a_cancelled_run_a_child_that_ended_keeps_its_end(
    rest: WorkflowDefinition[Any], ship: WorkflowDefinition[Any], outbox: RecordingDispatcher
) -> None:
    @workflow
    def order(flow: Flow) -> Any:
        flow.do("ship", ship, {"parcel": 7})
        flow.do("rest", rest)

    run = order.start()
    outbox.deliver()
    run.cancel()
    assert [child.status for child in run.children()] == ["completed", "cancelled"]


def test_a_child_that_is_not_there_yet_is_cancelled_as_well(
    order: WorkflowDefinition[Any], outbox: RecordingDispatcher, monkeypatch: pytest.MonkeyPatch, no_goodbye: None
) -> None:
    """Its maker was cut off, or is slow: the id is taken, so it comes too late."""
    made: list[Any] = []

    def cut_off(*args: Any, **options: Any) -> None:
        made.append((args, options))
        raise KeyboardInterrupt

    monkeypatch.setattr(children, "start", cut_off)
    run = order.start({"parcel": 7})
    with pytest.raises(KeyboardInterrupt):
        outbox.deliver()
    assert run.children() == []

    run.cancel("too late")
    monkeypatch.undo()
    assert [child.status for child in run.children()] == ["cancelled"]
    args, options = made[0]
    children.start(*args, **options)

    (child,) = run.children()
    assert child.status == "cancelled"
    assert child.get().input == {"parcel": 7}


def test_a_cascade_that_was_cut_short_is_finished_by_the_relay(
    dynasty: WorkflowDefinition[Any], outbox: RecordingDispatcher, service: WorkflowService
) -> None:
    """At each of its steps."""
    run = dynasty.start()
    outbox.deliver()
    family = _family(run)
    engine = service._runtime
    at = engine.now()
    # Only the first write of the cancellation came through.
    cancelled = {"code": "WORKFLOW_CANCELLED", "message": "enough"}
    assert engine.runs.set_status(run.id, RunStatus.CANCELLED, at=at, output=None, error=cancelled, due_at=None)

    with clock.travel(10 * MINUTE):
        service.relay()
    with clock.travel(20 * MINUTE):
        service.relay()
        assert list(find_violations()) == []
    assert [member.status for member in family] == ["cancelled"] * 5
    assert not WorkflowRun.objects.filter(due_at__isnull=False).exists()
    assert not WorkflowStep.objects.filter(due_at__isnull=False).exists()


def test_a_parent_that_ended_in_another_way_takes_its_children_along(
    patient: WorkflowDefinition[Any], outbox: RecordingDispatcher, service: WorkflowService
) -> None:
    run = patient.start()
    outbox.deliver()
    assert service.update_run_status(run.id, "failed", error={"message": "another program said so"})
    with clock.travel(10 * MINUTE):
        service.relay()
    child = _child(run, "rest")
    assert child.status == "cancelled"
    assert (child.error or {})["message"] == f"The parent run {run.id} has ended: it is failed"


# -- crashes -----------------------------------------------------------------------------------------------------------

KILLS = {
    "before the step is there": (StepQuerySet, "add_awaiting", "before"),
    "before the child is there": (RunQuerySet, "create_runs", "before"),
    "before anybody is told of the child": (RunQuerySet, "create_runs", "after"),
    "before the child has ended": (RunQuerySet, "settle", "before"),
    "before the parent hears of it": (RunQuerySet, "settle", "after"),
    "before the parent's step is settled": (children, "outcome_of", "before"),
    "before the parent goes on": (children, "report", "after"),
}


@pytest.mark.parametrize("spread", [False, True], ids=["one", "side by side"])
@pytest.mark.parametrize("kill", KILLS)
def test_a_worker_that_is_killed_costs_time_only(
    kill: str,
    spread: bool,
    outbox: RecordingDispatcher,
    service: WorkflowService,
    monkeypatch: pytest.MonkeyPatch,
    no_goodbye: None,
) -> None:
    """At each point between the two runs; its message dies with it."""
    booked: list[int] = []

    @workflow
    def ship(flow: Flow, parcel: int) -> int:
        return flow.do("book", lambda: noting(booked, parcel, parcel))

    @workflow
    def order(flow: Flow) -> Any:
        return (
            flow.map("ship", ship, [1, 2])
            if spread
            else [flow.do("ship", ship, {"parcel": parcel}) for parcel in (1, 2)]
        )

    run = order.start()
    owner, name, when = KILLS[kill]
    with monkeypatch.context() as patch:
        _kill(patch, owner, name, when)
        with pytest.raises(KeyboardInterrupt):
            outbox.deliver()
    outbox.lose_everything()

    for minutes in range(2, 20, 2):
        with clock.travel(minutes * MINUTE):
            service.relay()
            outbox.deliver()
    assert run.output == [1, 2]
    assert sorted(booked) == [1, 2], "nothing that was recorded is done again"
    assert len(run.children()) == 2


def _kill(patch: pytest.MonkeyPatch, owner: Any, name: str, when: str) -> None:
    """The process ends as it calls that function, or as that is done."""
    work = getattr(owner, name)

    def killed(*args: Any, **options: Any) -> Any:
        if when == "after":
            work(*args, **options)
        raise KeyboardInterrupt

    patch.setattr(owner, name, killed)


def test_a_message_that_comes_again_tells_the_parent(
    order: WorkflowDefinition[Any], outbox: RecordingDispatcher, monkeypatch: pytest.MonkeyPatch, no_goodbye: None
) -> None:
    """Of the child: its worker died when it had ended it. The broker gives the message to another one."""

    @workflow
    def orders(flow: Flow) -> Any:
        return len(flow.map("order", order, [{"parcel": 1}, {"parcel": 2}]))

    run = orders.start()
    outbox.deliver_one()
    message = outbox.waiting[0]
    with monkeypatch.context() as patch:
        _kill(patch, children, "outcome_of", "before")
        with pytest.raises(KeyboardInterrupt):
            outbox.deliver_one()
    outbox.send([message])
    outbox.deliver()
    # The grandchild ended, and its parent is still held by the one that died.
    with clock.travel(2 * MINUTE):
        WorkflowService().relay()
        outbox.deliver()
    assert run.output == 2


def test_a_second_look_mends_what_was_cut_off(
    patient: WorkflowDefinition[Any], outbox: RecordingDispatcher, service: WorkflowService
) -> None:
    """The child ended, and nobody said so: whoever looks at the parent next hears of it."""
    run = patient.start()
    outbox.deliver()
    assert service.update_run_status(_child(run, "rest").id, "completed", "told by hand")
    assert run.status == "running"

    assert run.resume()
    outbox.deliver()
    assert run.output == "told by hand"


def test_the_relay_hears_of_a_child_that_nobody_told_of(
    patient: WorkflowDefinition[Any], outbox: RecordingDispatcher, service: WorkflowService
) -> None:
    run = patient.start()
    outbox.deliver()
    service.update_run_status(_child(run, "rest").id, "failed", error={"message": "by hand"})
    with clock.travel(MINUTE):
        assert service.relay() == [run.id]
        outbox.deliver()
    assert _failure(run)["message"] == "by hand"


def test_messages_that_come_twice_change_nothing(ship: WorkflowDefinition[Any], outbox: RecordingDispatcher) -> None:
    @workflow
    def order(flow: Flow) -> Any:
        return [flow.do("ship", ship, {"parcel": 1})[0], len(flow.map("ships", ship, [2, 3]))]

    run = order.start()
    while outbox.posted:
        outbox.duplicate_everything()
        outbox.deliver_one()
        if len(outbox.posted) > 50:
            break
    outbox.deliver()
    assert run.output == ["booked 1", 2]
    assert len(run.children()) == 3
    assert all(outcomes(child.id, "book") == ["succeeded"] for child in run.children())


# -- limits ------------------------------------------------------------------------------------------------------------


def test_a_workflow_that_starts_itself_for_ever_ends(carried: Any) -> None:
    @workflow
    def forever(flow: Flow) -> Any:
        return flow.do("again", "forever")

    run = carried(forever)
    assert _failure(run)["code"] == "WORKFLOW_TOO_DEEP"
    assert "'forever' would be sub-workflow number 33" in _failure(run)["message"]
    assert WorkflowRun.objects.count() == children.DEEPEST + 1
    assert not WorkflowRun.objects.exclude(status="failed").exists()


def test_as_deep_as_is_allowed(carried: Any) -> None:
    @workflow
    def dig(flow: Flow, depth: int) -> Any:
        return 1 + flow.do("dig", "dig", {"depth": depth - 1}) if depth else 0

    assert carried(dig, {"depth": children.DEEPEST}).output == children.DEEPEST


def test_data_that_does_not_fit_is_the_bodys_mistake(ship: WorkflowDefinition[Any]) -> None:
    @workflow
    def order(flow: Flow) -> Any:
        return flow.do("ship", ship, {"box": 7})

    run = order.run()
    assert _failure(run)["name"] == "WorkflowInputError"
    assert step_names(run.id) == []


def test_a_workflow_takes_no_timeout(ship: WorkflowDefinition[Any]) -> None:
    @workflow
    def order(flow: Flow) -> Any:
        return flow.do("ship", ship, {"parcel": 7}, timeout="1s")

    assert "'ship' is a workflow; only a function's step has a timeout" in _failure(order.run())["message"]


# -- trying again ------------------------------------------------------------------------------------------------------


def test_retrying_a_parent_begins_a_new_child(carried: Any) -> None:
    vans: list[str] = []

    @workflow
    def ship(flow: Flow) -> str:
        if not vans:
            raise ValueError("no van")
        return vans[0]

    @workflow
    def order(flow: Flow) -> Any:
        flow.do("pack", lambda: None)
        return flow.do("ship", ship)

    run = carried(order)
    assert run.status == "failed"
    vans.append("a van")

    again = run.retry()
    _broker_delivers()
    assert again.output == "a van"
    assert again.id != run.id
    assert _child(again) != _child(run)
    assert [child.status for child in (*run.children(), *again.children())] == ["failed", "completed"]
    assert run.status == "failed"


def test_retrying_a_parent_keeps_the_children_that_completed(ship: WorkflowDefinition[Any], carried: Any) -> None:
    open_: list[bool] = []

    def bill() -> str:
        if not open_:
            raise FinalError("closed")
        return "billed"

    @workflow
    def order(flow: Flow) -> Any:
        return [flow.do("ship", ship, {"parcel": 7})[0], flow.do("bill", bill)]

    run = carried(order)
    open_.append(True)
    again = run.retry()
    _broker_delivers()
    assert again.output == ["booked 7", "billed"]
    assert _child(again) == _child(run), "it shows whose work it was"
    assert again.children() == []


def test_retrying_a_child_makes_a_run_of_nobody(carried: Any, order: WorkflowDefinition[Any]) -> None:
    """Its old parent has had its answer."""
    run = carried(order, {"parcel": -1}, owner="user-1")
    again = _child(run).retry()
    _broker_delivers()
    stored = again.get()
    assert stored.wire == {"type": "workflow", "id": "ship", "pikkuUserId": "user-1", "retryOf": _child(run).id}
    assert (stored.parent_run_id, stored.status) == (None, "failed")
    assert again.parent is None
    assert run.status == "failed"


def test_retrying_a_live_parent_hurries_the_next_child(outbox: RecordingDispatcher) -> None:
    tries: list[str] = []

    @workflow
    def ship(flow: Flow) -> int:
        tries.append(flow.run_id)
        if len(tries) == 1:
            raise ValueError("no van")
        return len(tries)

    @workflow
    def order(flow: Flow) -> Any:
        return flow.do("ship", ship, retries=1, retry_delay="1d")

    run = order.start()
    outbox.deliver()
    assert run.retry() == run
    outbox.deliver()
    assert run.output == 2


def _broker_delivers() -> None:
    made = dispatcher()
    if isinstance(made, RecordingDispatcher):
        made.deliver()


# -- steps that another program made -----------------------------------------------------------------------------------


def _stored(service: WorkflowService, data: dict[str, Any], **options: Any) -> str:
    run_id = service.create_run("graph", {}, wire={"type": "code", "pikkuUserId": "user-1"})
    service.insert_step_state(run_id, "node", "ship", data, **options)
    return run_id


def test_a_queued_step_whose_function_is_a_workflow_begins_a_child(
    ship: WorkflowDefinition[Any], service: WorkflowService, outbox: RecordingDispatcher
) -> None:
    @workflow
    def graph(flow: Flow) -> Any:
        return flow.do("node", ship, {"parcel": 7})

    run_id = _stored(service, {"parcel": 7}, retries=0)
    service.execute_workflow_step(run_id, "node", "ship")

    run = service.get_handle(run_id)
    child = _child(run, "node").get()
    assert (child.status, child.owner_id, child.parent_run_id) == ("completed", "user-1", run_id)
    assert run.output == ["booked 7", child.id]
    service.execute_workflow_step(run_id, "node", "ship")
    assert len(run.children()) == 1


def test_its_data_is_checked_before_there_is_a_child(
    ship: WorkflowDefinition[Any], service: WorkflowService, outbox: RecordingDispatcher
) -> None:
    workflow(name="graph")(lambda flow: None)
    run_id = _stored(service, {"box": 7})
    service.execute_workflow_step(run_id, "node")

    step = step_of(run_id, "node")
    assert step.status == "failed"
    assert (step.error or {})["name"] == "WorkflowInputError"
    assert step.due_at is None, "trying again would not help"
    assert service.get_handle(run_id).children() == []


def test_a_workflow_that_nobody_has_suspends_the_run(
    ship: WorkflowDefinition[Any], service: WorkflowService, outbox: RecordingDispatcher
) -> None:
    workflow(name="graph")(lambda flow: "done")
    run_id = _stored(service, {"parcel": 7})
    with undeployed("ship"):
        service.execute_workflow_step(run_id, "node")
    assert service.get_handle(run_id).status == "suspended"
    assert step_of(run_id, "node").status == "pending"


# -- what is checked ---------------------------------------------------------------------------------------------------


def _rules() -> list[str]:
    return [violation.rule for violation in find_violations()]


def test_the_check_finds_a_child_that_nobody_awaits(
    patient: WorkflowDefinition[Any], outbox: RecordingDispatcher, service: WorkflowService
) -> None:
    run = patient.start()
    outbox.deliver()
    WorkflowStep.objects.filter(run_id=run.id).update(child_run_id="another")
    assert _rules() == ["orphan-child"]
    WorkflowStep.objects.filter(run_id=run.id).update(run_id=service.create_run("other"))
    assert "child-link" in _rules()
    for run_id in list(WorkflowRun.objects.values_list("id", flat=True)):
        WorkflowRunService().delete_run(run_id)


def test_the_check_finds_a_parent_that_has_not_heard(
    patient: WorkflowDefinition[Any], outbox: RecordingDispatcher, service: WorkflowService
) -> None:
    run = patient.start()
    outbox.deliver()
    service.update_run_status(_child(run, "rest").id, "completed")
    assert _rules() == []
    with clock.travel(5 * MINUTE):
        assert _rules() == ["unheard-child"]


# -- reading -----------------------------------------------------------------------------------------------------------


def test_the_timeline_names_the_run_of_each_attempt(carried: Any, runs: WorkflowRunService) -> None:
    tries: list[str] = []

    @workflow
    def ship(flow: Flow) -> int:
        tries.append(flow.run_id)
        if len(tries) == 1:
            raise ValueError("no van")
        return 1

    @workflow
    def order(flow: Flow) -> Any:
        flow.do("pack", lambda: None)
        return flow.do("ship", ship, retries=1, retry_delay=0)

    run = carried(order)
    events = [(event.step_name, event.type, event.child_run_id) for event in run.timeline() if event.type == "running"]
    assert events == [("pack", "running", None), ("ship", "running", tries[0]), ("ship", "running", tries[1])]
    assert {event.child_run_id for event in run.timeline() if event.type != "running"} == {None}
    assert [entry.child_run_id for entry in runs.get_run_history(run.id)] == [None, *tries]
