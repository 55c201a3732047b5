"""What a step may become, what it costs, and who wins."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from pikku_storage.db import clock
from pikku_storage.exceptions import WorkflowStepFunctionMismatchError
from pikku_storage.workflows.models import WorkflowStep, WorkflowStepHistory
from pikku_storage.workflows.records import StepState
from pikku_storage.workflows.service import WorkflowService
from tests.conformance.conftest import Counter
from tests.conformance.support import (
    about_sql,
    attempts_of,
    connection,
    data_statements,
    outcomes,
    step_of,
    transactions,
)
from tests.factories import StepFactory

Operation = Callable[[WorkflowService, str], Any]

RUN: Operation = lambda service, step_id: service.set_step_running(step_id)  # noqa: E731
SUCCEED: Operation = lambda service, step_id: service.set_step_result(step_id, {"parcel": 7})  # noqa: E731
FAIL: Operation = lambda service, step_id: service.set_step_error(step_id, {"message": "no box"})  # noqa: E731
SCHEDULE: Operation = lambda service, step_id: service.set_step_scheduled(step_id)  # noqa: E731
OPERATIONS = {"running": RUN, "succeeded": SUCCEED, "failed": FAIL, "scheduled": SCHEDULE}


def _writes(statements: list[str]) -> list[str]:
    return [text for text in statements if "UPDATE" in text]


# -- cost --------------------------------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
@about_sql
@pytest.mark.contract("KW-07", "KW-08")
@pytest.mark.parametrize("operation", [RUN, SUCCEED, FAIL], ids=["running", "result", "error"])
def test_a_transition_is_two_writes_in_one_transaction_and_no_read(
    service: WorkflowService, statements: Counter, operation: Operation
) -> None:
    step = StepFactory.create()

    with statements() as seen:
        assert operation(service, step.step_id)

    texts = data_statements(seen)
    assert transactions(seen) == 1
    assert not [text for text in texts if text.lstrip().upper().startswith("SELECT")]
    assert sum(text.count("UPDATE ") for text in texts) == 2
    if connection.vendor == "postgresql":
        assert len(texts) == 1, "step and history travel as one statement"
    else:
        assert len(texts) == 2


@pytest.mark.django_db(transaction=True)
@pytest.mark.contract("KW-13")
def test_reading_a_step_does_not_touch_its_history(service: WorkflowService, statements: Counter) -> None:
    step = StepFactory.create()

    with statements() as seen:
        service.get_step_state(step.run_id, step.step_name)

    (text,) = data_statements(seen)
    assert "workflow_step_history" not in text


@pytest.mark.django_db(transaction=True)
@pytest.mark.contract("KW-14")
@pytest.mark.parametrize("count", [0, 1, 30])
def test_all_steps_of_a_run_are_one_read(service: WorkflowService, statements: Counter, count: int) -> None:
    run_id = service.create_run("orders")
    made = [StepFactory.create(run_id=run_id).step_name for _ in range(count)]

    with statements() as seen:
        states = service.list_step_states(run_id)

    assert [state.step_name for state in states] == made
    (text,) = data_statements(seen)
    assert "workflow_step_history" not in text


@pytest.mark.django_db(transaction=True)
@about_sql
def test_claiming_is_a_read_and_one_transaction(service: WorkflowService, statements: Counter) -> None:
    step = StepFactory.create()

    with statements() as seen:
        assert service.claim_step(step.run_id, step.step_name) is not None

    assert transactions(seen) == 2
    assert len(data_statements(seen)) == (2 if connection.vendor == "postgresql" else 3)


# -- step and history move together ------------------------------------------------------------------------------------


@pytest.mark.django_db
@pytest.mark.contract("KW-09")
def test_a_result_reaches_step_and_history_with_its_stamp(service: WorkflowService) -> None:
    step = StepFactory.create()
    RUN(service, step.step_id)
    SUCCEED(service, step.step_id)

    after = step_of(step.run_id, step.step_name)
    (attempt,) = attempts_of(step.run_id, step.step_name)
    assert (after.status, after.result) == (attempt.status, attempt.result) == ("succeeded", {"parcel": 7})
    assert attempt.succeeded_at == after.updated_at
    assert attempt.failed_at is None
    assert attempt.running_at is not None
    assert attempt.created_at <= attempt.running_at <= attempt.succeeded_at


@pytest.mark.django_db
@pytest.mark.contract("KW-10")
def test_an_error_reaches_both_with_its_stamp(service: WorkflowService) -> None:
    step = StepFactory.create()
    RUN(service, step.step_id)
    FAIL(service, step.step_id)

    after = step_of(step.run_id, step.step_name)
    (attempt,) = attempts_of(step.run_id, step.step_name)
    assert (after.status, after.error) == (attempt.status, attempt.error) == ("failed", {"message": "no box"})
    assert attempt.failed_at == after.updated_at
    assert attempt.succeeded_at is None


@pytest.mark.django_db
@pytest.mark.contract("KW-11")
def test_a_retry_in_the_same_millisecond_resolves_the_new_attempt(
    service: WorkflowService, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = StepFactory.create()
    at = service._runtime.now()
    monkeypatch.setattr("pikku_storage.db.base.Engine.now", lambda self: at)
    FAIL(service, step.step_id)
    service.create_retry_attempt(step.step_id, "running")
    SUCCEED(service, step.step_id)

    attempts = attempts_of(step.run_id, step.step_name)
    assert [(entry.status, entry.attempt_count) for entry in attempts] == [("failed", 1), ("succeeded", 2)]
    assert [entry.result for entry in attempts] == [None, {"parcel": 7}]


@pytest.mark.django_db
@pytest.mark.contract("KW-12")
def test_the_attempt_count_follows_each_retry(service: WorkflowService) -> None:
    step = StepFactory.create()
    counts = [step.attempt_count]
    for _ in range(2):
        FAIL(service, step.step_id)
        counts.append(service.create_retry_attempt(step.step_id).attempt_count)

    assert counts == [1, 2, 3]
    assert step_of(step.run_id, step.step_name).attempt_count == 3
    assert len(attempts_of(step.run_id, step.step_name)) == 3


def _lose_the_attempt(step: StepState) -> None:
    """As a row that another program wrote, which knows of no attempts."""
    WorkflowStep.objects.filter(pk=step.step_id).update(current_attempt=None)


@pytest.mark.django_db
@pytest.mark.contract("KW-21")
def test_with_the_attempt_lost_a_result_still_appears_in_the_history(service: WorkflowService) -> None:
    step = StepFactory.create()
    _lose_the_attempt(step)

    assert SUCCEED(service, step.step_id)

    assert [(entry.status, entry.result) for entry in attempts_of(step.run_id, step.step_name)] == [
        ("succeeded", {"parcel": 7})
    ]


@pytest.mark.django_db
@pytest.mark.contract("KW-22")
def test_with_the_attempt_lost_the_step_is_repaired_and_one_row_is_used(service: WorkflowService) -> None:
    step = StepFactory.create()
    _lose_the_attempt(step)

    assert RUN(service, step.step_id)
    assert WorkflowStep.objects.get(pk=step.step_id).current_attempt == 1
    assert SUCCEED(service, step.step_id)

    assert outcomes(step.run_id, step.step_name) == ["succeeded"]


@pytest.mark.django_db
@pytest.mark.parametrize("claimed", [True, False], ids=["claimed", "by hand"])
def test_a_history_that_lags_behind_is_mended_by_the_next_transition(service: WorkflowService, claimed: bool) -> None:
    step = StepFactory.create()
    WorkflowStepHistory.objects.all().delete()

    if claimed:
        taken = service.claim_step(step.run_id, step.step_name)
        assert taken is not None
    else:
        RUN(service, step.step_id)
    assert outcomes(step.run_id, step.step_name) == ["running"]
    SUCCEED(service, step.step_id)

    assert outcomes(step.run_id, step.step_name) == ["succeeded"]


# -- every status and every operation ----------------------------------------------------------------------------------


def _brought_to(service: WorkflowService, status: str) -> StepState:
    step = StepFactory.create(retries=0)
    if status != "pending":
        OPERATIONS[status](service, step.step_id)
    return step_of(step.run_id, step.step_name)


ALLOWED = {
    "pending": {"running", "succeeded", "failed", "scheduled"},
    "scheduled": {"running", "succeeded", "failed"},
    "running": {"succeeded", "failed"},
    "succeeded": set(),
    "failed": set(),
}


@pytest.mark.django_db
@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("status", ALLOWED)
def test_a_step_goes_only_where_the_table_lets_it(service: WorkflowService, status: str, operation: str) -> None:
    """The contract lets a step go anywhere; we do not."""
    before = _brought_to(service, status)
    history = attempts_of(before.run_id, before.step_name)

    won = OPERATIONS[operation](service, before.step_id)

    after = step_of(before.run_id, before.step_name)
    assert won == (operation in ALLOWED[status])
    if won:
        assert after.status == operation
        assert outcomes(before.run_id, before.step_name) == [operation]
    else:
        assert after == before
        assert attempts_of(before.run_id, before.step_name) == history


@pytest.mark.django_db
@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_unknown_step_is_changed_by_nobody(service: WorkflowService, operation: str) -> None:
    assert not OPERATIONS[operation](service, "nothing")
    assert not WorkflowStepHistory.objects.exists()


# -- claims ------------------------------------------------------------------------------------------------------------


@pytest.mark.django_db
@pytest.mark.contract("KW-23")
def test_of_two_claims_of_a_pending_step_one_wins(service: WorkflowService) -> None:
    step = StepFactory.create()

    first = WorkflowService(worker="a").claim_step(step.run_id, step.step_name)
    second = WorkflowService(worker="b").claim_step(step.run_id, step.step_name)

    assert second is None
    assert first is not None
    assert (first.status, first.claimed_by, first.attempt_count) == ("running", "a", 1)
    assert first.claim_token
    stored = step_of(step.run_id, step.step_name)
    assert stored == first
    (attempt,) = attempts_of(step.run_id, step.step_name)
    assert (attempt.status, attempt.worker) == ("running", "a")


@pytest.mark.django_db
@pytest.mark.contract("KW-24", "KW-27")
def test_of_two_claims_of_a_failed_step_one_begins_the_next_attempt(service: WorkflowService) -> None:
    step = StepFactory.create()
    FAIL(service, step.step_id)

    first = service.claim_step(step.run_id, step.step_name)
    second = service.claim_step(step.run_id, step.step_name)

    assert second is None
    assert first is not None
    assert (first.status, first.attempt_count, first.error, first.result) == ("running", 2, None, None)
    assert outcomes(step.run_id, step.step_name) == ["failed", "running"]


@pytest.mark.django_db
@pytest.mark.contract("KW-27")
def test_a_claim_that_failed_can_be_claimed_again(service: WorkflowService) -> None:
    step = StepFactory.create()
    first = service.claim_step(step.run_id, step.step_name)
    assert first is not None
    assert service.set_step_error(step.step_id, {"message": "no"}, attempt=1, claim_token=first.claim_token)

    again = service.claim_step(step.run_id, step.step_name)

    assert again is not None
    assert (again.status, again.attempt_count) == ("running", 2)
    assert again.claim_token != first.claim_token


@pytest.mark.django_db
@pytest.mark.contract("KW-25", "KW-26")
@pytest.mark.parametrize("status", ["running", "succeeded"])
def test_a_running_or_succeeded_step_cannot_be_claimed(service: WorkflowService, status: str) -> None:
    before = _brought_to(service, status)

    assert service.claim_step(before.run_id, before.step_name) is None
    assert step_of(before.run_id, before.step_name) == before


@pytest.mark.django_db
def test_a_failed_step_without_attempts_left_cannot_be_claimed(service: WorkflowService) -> None:
    before = _brought_to(service, "failed")

    assert service.claim_step(before.run_id, before.step_name) is None
    assert step_of(before.run_id, before.step_name) == before


@pytest.mark.django_db
@pytest.mark.contract("KW-28")
@pytest.mark.parametrize("name", ["orders.refund", ""])
def test_a_claim_for_another_function_is_refused_and_changes_nothing(service: WorkflowService, name: str) -> None:
    step = StepFactory.create(rpc_name="orders.pack")

    with pytest.raises(WorkflowStepFunctionMismatchError, match=r"belongs to function 'orders\.pack'") as caught:
        service.claim_step(step.run_id, step.step_name, name)

    assert caught.value.http_status == 409
    assert step_of(step.run_id, step.step_name) == step
    assert service.claim_step(step.run_id, step.step_name, "orders.pack") is not None


@pytest.mark.django_db
def test_a_step_without_a_function_belongs_to_no_function(service: WorkflowService) -> None:
    step = StepFactory.create(rpc_name=None)

    with pytest.raises(WorkflowStepFunctionMismatchError):
        service.claim_step(step.run_id, step.step_name, "orders.pack")


@pytest.mark.django_db
@pytest.mark.contract("KW-29")
def test_a_scheduled_step_can_be_claimed_once(service: WorkflowService) -> None:
    before = _brought_to(service, "scheduled")

    assert service.claim_step(before.run_id, before.step_name) is not None
    assert service.claim_step(before.run_id, before.step_name) is None


# -- late outcomes -----------------------------------------------------------------------------------------------------


@pytest.mark.django_db
@pytest.mark.parametrize("write", ["result", "error"])
@pytest.mark.parametrize(
    ("attempt", "token"),
    [(1, "mine"), (3, "mine"), (2, "of somebody else"), (2, None), (2, "")],
    ids=["earlier attempt", "later attempt", "another's token", "no token", "empty token"],
)
def test_the_outcome_of_another_claim_matches_nothing(
    service: WorkflowService, write: str, attempt: int, token: str | None
) -> None:
    step = StepFactory.create()
    FAIL(service, step.step_id)
    claim = service.claim_step(step.run_id, step.step_name)
    assert claim is not None
    assert claim.attempt_count == 2
    token = claim.claim_token if token == "mine" else token

    if write == "result":
        won = service.set_step_result(step.step_id, 1, attempt=attempt, claim_token=token)
    else:
        won = service.set_step_error(step.step_id, {"message": "late"}, attempt=attempt, claim_token=token)

    assert not won
    assert step_of(step.run_id, step.step_name) == claim
    assert outcomes(step.run_id, step.step_name) == ["failed", "running"]


@pytest.mark.django_db
def test_a_token_without_an_attempt_does_not_open_the_fence(service: WorkflowService) -> None:
    step = StepFactory.create()
    claim = service.claim_step(step.run_id, step.step_name)
    assert claim is not None

    service.set_step_result(step.step_id, 1, claim_token="of somebody else")

    assert step_of(step.run_id, step.step_name) == claim


@pytest.mark.django_db
def test_a_claim_is_for_one_lease(service: WorkflowService) -> None:
    step = StepFactory.create()
    claim = service.claim_step(step.run_id, step.step_name)

    assert claim is not None
    assert claim.due_at is not None
    assert claim.due_at - claim.updated_at == timedelta(seconds=60)
    with clock.travel(timedelta(seconds=30)):
        until = service._runtime.lease_end(service._runtime.now())
        assert claim.claim_token
        assert service._runtime.steps.renew(step.step_id, claim.claim_token, until=until)
        assert not service._runtime.steps.renew(step.step_id, "of somebody else", until=until)
    assert step_of(step.run_id, step.step_name).due_at == until
