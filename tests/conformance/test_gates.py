"""A run waits for a person: suspensions and approvals."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import transaction

from pikku_storage.db import clock
from pikku_storage.exceptions import (
    WorkflowApprovalResolvedError,
    WorkflowRunNotFoundError,
    WorkflowRunSuspendedError,
    WorkflowStepNameNotString,
)
from pikku_storage.workflows import workflow
from pikku_storage.workflows.definitions import WorkflowDefinition
from pikku_storage.workflows.engine.relay import relay_answers
from pikku_storage.workflows.flow import Flow
from pikku_storage.workflows.gates import APPROVAL_RPC, SUSPEND_RPC, state_key
from pikku_storage.workflows.handle import WorkflowRunHandle
from pikku_storage.workflows.invariants import find_violations
from pikku_storage.workflows.models import WorkflowAnswer
from pikku_storage.workflows.querysets import RunQuerySet
from pikku_storage.workflows.runs import WorkflowRunService
from pikku_storage.workflows.service import WorkflowService
from tests.conformance.recording import RecordingDispatcher
from tests.conformance.support import DATABASE, MINUTE, SECOND, needs_transactions, outcomes, step_names, step_of

pytestmark = pytest.mark.django_db(transaction=True)

HOUR = timedelta(hours=1)
GATE = "__workflow_approval:release"
SUSPENDED = {"message": "release", "code": "WORKFLOW_SUSPENDED"}


@pytest.fixture
def twice() -> WorkflowDefinition[Any]:
    """Stops at two places."""

    @workflow
    def twice(flow: Flow) -> str:
        flow.do("before", lambda: 1)
        flow.suspend("first look")
        flow.do("between", lambda: 1)
        flow.suspend("second look")
        return "seen"

    return twice


@pytest.fixture
def order() -> WorkflowDefinition[Any]:
    """Asks once, for an hour if it is told so, and answers with what it was told."""

    @workflow
    def order(flow: Flow, expiry: Any = None) -> Any:
        flow.do("before", lambda: 1)
        answer = flow.approval("release", expiry=expiry)
        flow.do("after", lambda: 2)
        return [answer.status, answer.data]

    return order


def _waiting(order: WorkflowDefinition[Any], outbox: RecordingDispatcher, **data: Any) -> WorkflowRunHandle:
    run = order.start(data)
    outbox.deliver()
    assert (run.status, run.error) == ("suspended", SUSPENDED)
    return run


# -- suspensions -------------------------------------------------------------------------------------------------------


@pytest.mark.contract("EN-13", "EN-14")
def test_a_suspended_run_goes_on_when_it_is_resumed(
    outbox: RecordingDispatcher, twice: WorkflowDefinition[Any]
) -> None:
    run = twice.start()
    outbox.deliver()
    assert (run.status, run.error) == ("suspended", {"message": "first look", "code": "WORKFLOW_SUSPENDED"})
    assert step_names(run.id) == ["before", "__workflow_suspend:first look"]
    with pytest.raises(WorkflowRunSuspendedError, match="first look"):
        run.result()

    assert run.resume()
    assert (run.status, run.error) == ("running", None), "a run that is resumed is running"
    outbox.deliver()
    assert (run.status, run.error) == ("suspended", {"message": "second look", "code": "WORKFLOW_SUSPENDED"})
    assert step_names(run.id)[2:] == ["between", "__workflow_suspend:second look"]

    assert run.resume()
    outbox.deliver()
    assert run.output == "seen"
    step = step_of(run.id, "__workflow_suspend:first look")
    assert (step.rpc_name, step.data, step.status) == (SUSPEND_RPC, {"reason": "first look"}, "succeeded")
    assert step.result == {"reason": "first look", "suspendedAt": step.created_at.isoformat()}
    assert list(find_violations()) == []


def test_nothing_but_resuming_passes_a_suspension(
    outbox: RecordingDispatcher, service: WorkflowService, twice: WorkflowDefinition[Any]
) -> None:
    """Messages may come twice, and the relay may look at any time."""
    run = twice.start()
    outbox.duplicate_everything()
    outbox.deliver()
    for _ in range(3):
        service.orchestrate_workflow(run.id)
        service.execute_workflow_step(run.id, "__workflow_suspend:first look")
    with clock.travel(24 * HOUR):
        assert service.relay() == []
    assert run.status == "suspended"
    assert step_names(run.id) == ["before", "__workflow_suspend:first look"]
    assert list(find_violations()) == []


def test_a_suspension_may_have_no_reason(outbox: RecordingDispatcher) -> None:
    @workflow
    def order(flow: Flow) -> None:
        flow.suspend("")

    run = order.start()
    outbox.deliver()
    assert run.error == {"message": "Workflow suspended", "code": "WORKFLOW_SUSPENDED"}
    run.resume()
    outbox.deliver()
    assert run.status == "completed"


@pytest.mark.parametrize("reason", [None, 3, "go\x00", "x" * 300], ids=repr)
def test_a_reason_must_be_a_text_that_can_be_a_name(reason: Any) -> None:
    seen: list[type[BaseException]] = []

    @workflow
    def order(flow: Flow) -> None:
        for ask in (flow.suspend, flow.approval):
            try:
                ask(reason)
            except WorkflowStepNameNotString as error:
                seen.append(type(error))

    assert order.run().status == "completed"
    assert seen == [WorkflowStepNameNotString] * 2


# -- approvals ---------------------------------------------------------------------------------------------------------


def test_an_approval_is_a_row_that_waits_for_a_person(
    outbox: RecordingDispatcher, service: WorkflowService, order: WorkflowDefinition[Any]
) -> None:
    run = _waiting(order, outbox)

    step = step_of(run.id, GATE)
    data = {"reason": "release", "expiry": None, "approvers": "any", "approverScope": None}
    assert (step.rpc_name, step.data, step.status) == (APPROVAL_RPC, data, "running")
    assert (step.is_open_gate, step.due_at, step.claim_token, step.from_step_name) == (True, None, None, "before")
    assert run.get().due_at is None
    assert run.state == {state_key(GATE): {"policy": {"approvers": "any", "approverScope": None}}}
    with clock.travel(24 * HOUR):
        assert service.relay() == [], "no lost worker, and nothing to do"
    assert run.status == "suspended"
    assert list(find_violations()) == []


@pytest.mark.contract("EN-16", "AP-01", "AP-07", "AP-11")
def test_a_decision_is_what_the_workflow_receives(
    outbox: RecordingDispatcher, order: WorkflowDefinition[Any], runs: WorkflowRunService
) -> None:
    run = _waiting(order, outbox)
    run.approve("release", {"go": True}, by="ada")
    assert run.status == "running", "whoever waits for it now waits for what the answer brings"
    outbox.deliver()

    assert run.output == ["decided", {"go": True}]
    step = step_of(run.id, GATE)
    (answer,) = runs.get_run_answers(run.id)
    decided = {"decidedBy": {"userId": "ada", "scopes": []}, "decidedAt": answer.created_at.isoformat()}
    assert step.result == {"status": "decided", "data": {"go": True}, **decided}
    assert datetime.fromisoformat(decided["decidedAt"]) >= step.created_at  # type: ignore[arg-type]
    assert run.state[state_key(GATE)] == {
        "policy": {"approvers": "any", "approverScope": None},
        "decision": {"go": True},
        **decided,
    }
    assert (answer.verdict, answer.ordinal, answer.judged_at is not None) == ("accepted", 0, True)
    assert outcomes(run.id, GATE) == ["succeeded"]
    assert step_names(run.id) == ["before", GATE, "after"]
    assert list(find_violations()) == []


@pytest.mark.parametrize("decision", [None, False, 0, "", [], {}], ids=repr)
def test_any_json_is_a_decision(outbox: RecordingDispatcher, order: WorkflowDefinition[Any], decision: Any) -> None:
    run = _waiting(order, outbox)
    run.approve("release", decision)
    outbox.deliver()
    assert run.output == ["decided", decision]
    assert "decidedBy" not in step_of(run.id, GATE).result


@pytest.mark.contract("EN-15")
def test_resuming_without_a_decision_asks_again(
    outbox: RecordingDispatcher, order: WorkflowDefinition[Any], runs: WorkflowRunService
) -> None:
    run = _waiting(order, outbox)
    opened = step_of(run.id, GATE)
    for _ in range(2):
        run.resume()
        outbox.deliver()
        assert (run.status, run.error) == ("suspended", SUSPENDED)
    assert step_of(run.id, GATE) == opened
    assert [approval.run_id for approval in runs.list_open_approvals()] == [run.id]


@pytest.mark.contract("EN-19")
def test_an_answer_to_what_is_settled_is_refused(outbox: RecordingDispatcher, order: WorkflowDefinition[Any]) -> None:
    run = _waiting(order, outbox)
    run.approve("release", 1)
    with pytest.raises(WorkflowApprovalResolvedError) as caught:
        run.approve("release", 2)
    assert (caught.value.reason, caught.value.status) == ("release", "answered"), "it is not judged yet"
    outbox.deliver()
    with pytest.raises(WorkflowApprovalResolvedError) as caught:
        run.approve("release", 2)
    assert (caught.value.status, caught.value.http_status) == ("decided", 409)
    assert run.output == ["decided", 1]
    assert WorkflowAnswer.objects.filter(run_id=run.id).count() == 1


def test_a_run_that_is_not_there_takes_no_answer(service: WorkflowService) -> None:
    with pytest.raises(WorkflowRunNotFoundError):
        service.approve_step("nobody", "release", True)


def test_a_second_approval_with_the_same_reason_can_be_answered(outbox: RecordingDispatcher) -> None:
    """Where we differ from the contract (architecture.md §4)."""

    @workflow
    def order(flow: Flow) -> Any:
        return [flow.approval("release").data for _ in range(3)]

    run = order.start()
    outbox.deliver()
    for number in range(3):
        run.approve("release", number)
        outbox.deliver()
    assert run.output == [0, 1, 2]
    assert step_names(run.id) == [GATE, f"{GATE}#1", f"{GATE}#2"]


def test_reasons_that_begin_alike_are_different_approvals(outbox: RecordingDispatcher) -> None:
    @workflow
    def order(flow: Flow) -> Any:
        return [flow.approval(reason).data for reason in ("go", "go_", "go%", "Go", "go#1", "go")]

    run = order.start()
    outbox.deliver()
    for number, reason in enumerate(("go", "go_", "go%", "Go", "go#1", "go")):
        run.approve(reason, number)
        outbox.deliver()
    assert run.output == [0, 1, 2, 3, 4, 5]


# -- early and late ----------------------------------------------------------------------------------------------------


def test_an_answer_may_come_before_the_approval(
    outbox: RecordingDispatcher, service: WorkflowService, order: WorkflowDefinition[Any]
) -> None:
    run = order.start()
    run.approve("release", "early", by="ada")
    with pytest.raises(WorkflowApprovalResolvedError, match="answered"):
        run.approve("release", "also early")
    outbox.deliver()
    assert run.output == ["decided", "early"]
    assert step_names(run.id) == ["before", GATE, "after"]
    assert list(find_violations()) == []


@pytest.mark.contract("EN-18", "AP-12")
def test_an_approval_expires_by_itself(
    outbox: RecordingDispatcher, service: WorkflowService, order: WorkflowDefinition[Any], runs: WorkflowRunService
) -> None:
    run = _waiting(order, outbox, expiry="1h")
    step = step_of(run.id, GATE)
    expires_at = step.created_at + HOUR
    assert run.get().due_at == expires_at
    assert run.state[state_key(GATE)]["expiresAt"] == expires_at.isoformat()
    outbox.lose_everything()
    with clock.travel(HOUR - MINUTE):
        assert service.relay() == []
    with clock.travel(HOUR + SECOND):
        assert service.relay() == [run.id]
        outbox.deliver()
    assert run.output == ["expired", None]
    assert step_of(run.id, GATE).result == {"status": "expired"}
    (entry,) = runs.get_run_answers(run.id)
    assert (entry.verdict, entry.decided_by, entry.is_expiry) == ("expired", None, True)
    with pytest.raises(WorkflowApprovalResolvedError, match="expired"):
        run.approve("release", True)
    assert list(find_violations()) == []


def test_a_short_expiry_is_a_message_with_a_countdown(
    outbox: RecordingDispatcher, order: WorkflowDefinition[Any]
) -> None:
    run = _waiting(order, outbox, expiry="10s")
    (posted,) = outbox.posted
    assert posted.message.run_id == run.id
    assert 9 < (posted.message.countdown or 0) <= 10
    with clock.travel(11 * SECOND):
        outbox.deliver()
    assert run.output == ["expired", None]


@pytest.mark.contract("EN-20")
def test_an_answer_in_time_wins_over_the_expiry_whenever_it_is_judged(
    outbox: RecordingDispatcher, service: WorkflowService, order: WorkflowDefinition[Any]
) -> None:
    run = _waiting(order, outbox, expiry="1h")
    with clock.travel(HOUR - SECOND):
        run.approve("release", "in time")
        outbox.lose_everything()
    with clock.travel(3 * HOUR):
        service.relay()
        outbox.deliver()
    assert run.output == ["decided", "in time"]


def test_an_answer_after_the_end_is_too_late_although_nobody_noted_the_end(
    outbox: RecordingDispatcher, order: WorkflowDefinition[Any]
) -> None:
    run = _waiting(order, outbox, expiry="1h")
    with clock.travel(HOUR + SECOND):
        with pytest.raises(WorkflowApprovalResolvedError, match="expired"):
            run.approve("release", True)
        run.resume()
        outbox.deliver()
    assert run.output == ["expired", None]


def test_an_answer_that_woke_nobody_is_brought_up_by_the_relay(
    outbox: RecordingDispatcher,
    service: WorkflowService,
    order: WorkflowDefinition[Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The process ended between the answer and the wake-up."""
    run = _waiting(order, outbox)
    with monkeypatch.context() as patch:
        patch.setattr(RunQuerySet, "resume", _interrupted)
        with pytest.raises(KeyboardInterrupt):
            run.approve("release", "go")
    assert run.status == "suspended"
    with pytest.raises(WorkflowApprovalResolvedError, match="answered"):
        run.approve("release", "again")
    with clock.travel(MINUTE):
        assert service.relay() == [run.id]
        outbox.deliver()
    assert run.output == ["decided", "go"]


def test_an_early_answer_waits_for_its_approval_without_waking_the_run_again_and_again(
    outbox: RecordingDispatcher, service: WorkflowService
) -> None:
    @workflow
    def order(flow: Flow) -> Any:
        flow.sleep("rest", "10h")
        return flow.approval("release").data

    run = order.start()
    outbox.deliver()
    run.approve("release", "early")
    outbox.deliver()
    with clock.travel(HOUR):
        service.relay()
        outbox.lose_everything()
    with clock.travel(2 * HOUR):
        relay_answers(service._runtime)
        assert outbox.waiting == []
    with clock.travel(11 * HOUR):
        service.relay()
        outbox.deliver()
    assert run.output == "early"
    assert list(find_violations()) == []


def _interrupted(*args: Any, **options: Any) -> None:
    raise KeyboardInterrupt


# -- inline ------------------------------------------------------------------------------------------------------------


def test_an_inline_run_stops_at_an_approval_and_workers_go_on(
    outbox: RecordingDispatcher, order: WorkflowDefinition[Any]
) -> None:
    run = order.run()
    assert (run.status, run.error) == ("suspended", SUSPENDED)
    run.approve("release", "go")
    outbox.deliver()
    assert run.output == ["decided", "go"]


@pytest.mark.usefixtures("no_broker")
def test_without_workers_the_answer_carries_the_run_on(
    order: WorkflowDefinition[Any], twice: WorkflowDefinition[Any]
) -> None:
    run = order.run()
    run.approve("release", "go")
    assert run.output == ["decided", "go"]
    run = twice.run()
    run.resume()
    run.resume()
    assert run.output == "seen"


@needs_transactions
def test_an_answer_that_is_rolled_back_was_none(
    outbox: RecordingDispatcher, order: WorkflowDefinition[Any], audited: list[Any]
) -> None:
    run = _waiting(order, outbox)
    with transaction.atomic(using=DATABASE):
        run.approve("release", 1)
        transaction.set_rollback(True, using=DATABASE)
    assert audited == []
    run.approve("release", 2)
    outbox.deliver()
    assert run.output == ["decided", 2]


# -- the end of a run --------------------------------------------------------------------------------------------------


def test_cancelling_closes_an_open_approval(
    outbox: RecordingDispatcher, service: WorkflowService, order: WorkflowDefinition[Any], runs: WorkflowRunService
) -> None:
    run = _waiting(order, outbox, expiry="1h")
    assert run.cancel()
    step = step_of(run.id, GATE)
    assert (step.status, step.error) == ("failed", {"message": "The run has ended", "code": "WORKFLOW_CANCELLED"})
    assert outcomes(run.id, GATE) == ["failed"]
    assert runs.list_open_approvals() == []
    with pytest.raises(WorkflowApprovalResolvedError, match="cancelled"):
        run.approve("release", True)
    assert list(find_violations()) == []


def test_an_approval_whose_run_ended_otherwise_is_closed_by_the_relay(
    outbox: RecordingDispatcher, service: WorkflowService, order: WorkflowDefinition[Any]
) -> None:
    """Whoever ended it may have died before the approval was closed."""
    run = _waiting(order, outbox)
    assert service.update_run_status(run.id, "failed", error={"message": "by hand"})
    assert step_of(run.id, GATE).status == "running"
    service.relay()
    assert step_of(run.id, GATE).status == "failed"
    assert list(find_violations()) == []


def test_an_approval_that_the_code_has_no_more_ends_with_the_run(
    outbox: RecordingDispatcher,
    service: WorkflowService,
    order: WorkflowDefinition[Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = _waiting(order, outbox)

    def changed(flow: Flow, **data: Any) -> str:
        return "no questions"

    monkeypatch.setattr(order, "func", changed)
    run.resume()
    outbox.deliver()
    assert run.output == "no questions"
    service.relay()
    assert step_of(run.id, GATE).status == "failed"
    assert list(find_violations()) == []


def test_an_approval_that_becomes_another_step_does_not_fit(
    outbox: RecordingDispatcher, order: WorkflowDefinition[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def changed(flow: Flow, **data: Any) -> None:
        flow.do(GATE, lambda: 1)

    run = _waiting(order, outbox)
    monkeypatch.setattr(order, "func", changed)
    run.resume()
    outbox.deliver()
    assert run.error is not None
    assert run.error["code"] == "VERSION_CONFLICT"


def test_a_retry_of_a_cancelled_run_asks_again_and_keeps_what_was_decided(outbox: RecordingDispatcher) -> None:
    @workflow
    def order(flow: Flow) -> Any:
        flow.suspend("look")
        return [flow.approval("first").data, flow.approval("second").data]

    run = order.start()
    outbox.deliver()
    run.resume()
    outbox.deliver()
    run.approve("first", 1)
    outbox.deliver()
    run.cancel()
    again = run.retry()
    outbox.deliver()
    assert again.error == {"message": "second", "code": "WORKFLOW_SUSPENDED"}
    again.approve("second", 2)
    outbox.deliver()
    assert again.output == [1, 2]
    assert list(find_violations()) == []


def test_deleting_a_run_deletes_its_answers(
    outbox: RecordingDispatcher, order: WorkflowDefinition[Any], runs: WorkflowRunService
) -> None:
    run = _waiting(order, outbox)
    run.approve("release", 1)
    assert runs.delete_run(run.id)
    assert not WorkflowAnswer.objects.exists()
