"""The rows of runs, steps and versions, through the write side."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError, transaction

from pikku_storage.db import clock
from pikku_storage.exceptions import PayloadError, StepNotFoundError, WorkflowError
from pikku_storage.workflows.models import WorkflowRun, WorkflowStep
from pikku_storage.workflows.service import WorkflowService
from tests.conformance.support import attempts_of, outcomes
from tests.factories import RunFactory, StepFactory

pytestmark = pytest.mark.django_db


# -- runs --------------------------------------------------------------------------------------------------------------


@pytest.mark.contract("WS-01")
def test_a_created_run_is_readable(service: WorkflowService) -> None:
    run_id = service.create_run("orders", {"order": 1}, False, "hash-1", {"type": "http"})

    run = service.get_run(run_id)
    assert run is not None
    assert (run.id, run.workflow, run.status, run.input, run.graph_hash) == (
        run_id,
        "orders",
        "running",
        {"order": 1},
        "hash-1",
    )
    assert (run.wire, run.inline, run.deterministic, run.planned_steps, run.output, run.error) == (
        {"type": "http"},
        False,
        False,
        None,
        None,
        None,
    )
    assert run.created_at == run.updated_at
    assert run.created_at.utcoffset() == timedelta()
    assert service.get_run_state(run_id) == {}


def test_a_created_run_keeps_what_else_it_is_given(service: WorkflowService) -> None:
    run_id = service.create_run(
        "orders",
        [1],
        True,
        "hash-1",
        {"type": "http", "pikkuUserId": "user-1"},
        deterministic=True,
        planned_steps=[{"name": "a"}],
    )

    run = service.get_run(run_id)
    assert run is not None
    assert (run.inline, run.deterministic, run.planned_steps, run.owner_id) == (True, True, [{"name": "a"}], "user-1")


def test_an_unknown_run_reads_as_none(service: WorkflowService) -> None:
    assert service.get_run("nothing") is None
    assert service.get_run_status("nothing") is None
    assert service.get_run_timeline("nothing") is None
    assert service.reconstruct_run_state_at("nothing") is None
    assert service.get_run_state("nothing") == {}
    assert service.list_step_states("nothing") == []
    assert service.get_step_instances("nothing") == []


@pytest.mark.contract("WS-02")
def test_a_completed_run_shows_its_output(service: WorkflowService) -> None:
    run_id = service.create_run("orders")

    with clock.travel(timedelta(seconds=3)):
        assert service.update_run_status(run_id, "completed", {"total": 3})

    run = service.get_run(run_id)
    assert run is not None
    assert (run.status, run.output) == ("completed", {"total": 3})
    assert run.updated_at - run.created_at >= timedelta(seconds=3)
    assert run.completed_at == run.updated_at
    assert run.due_at is None


@pytest.mark.parametrize("output", [0, False, "", [], {}, None], ids=repr)
def test_a_falsy_output_survives(service: WorkflowService, output: Any) -> None:
    """The contract stores no falsy output; we do."""
    run_id = service.create_run("orders")
    service.update_run_status(run_id, "completed", output)

    run, report = service.get_run(run_id), service.get_run_status(run_id)
    assert run is not None
    assert report is not None
    assert run.output == report.output == output
    assert type(run.output) is type(output)


def test_an_error_is_stored_from_an_exception_or_as_it_is_given(service: WorkflowService) -> None:
    first, second = service.create_run("orders"), service.create_run("orders")
    service.update_run_status(first, "failed", error=ValueError("no stock"))
    service.update_run_status(second, "failed", error={"message": "no stock", "code": "STOCK"})

    for run_id in (first, second):
        run, report = service.get_run(run_id), service.get_run_status(run_id)
        assert run is not None
        assert run.error is not None
        assert run.error["message"] == "no stock"
        assert report is not None
        assert report.error == {"message": "no stock"}, "a caller learns no more than the message"


def test_an_error_without_a_message_is_told_as_unknown(service: WorkflowService) -> None:
    run_id = service.create_run("orders")
    service.update_run_status(run_id, "failed", error={"code": "STOCK"})

    report = service.get_run_status(run_id)
    assert report is not None
    assert report.error == {"message": "Unknown error"}


def test_an_unknown_run_takes_no_status_and_no_state(service: WorkflowService) -> None:
    assert not service.update_run_status("nothing", "completed")
    assert not service.update_run_state("nothing", "key", 1)
    assert not WorkflowRun.objects.exists()


def test_a_status_that_does_not_exist_is_refused(service: WorkflowService) -> None:
    run_id = service.create_run("orders")

    with pytest.raises(ValueError, match="done"):
        service.update_run_status(run_id, "done")


def test_what_cannot_be_stored_is_refused_by_every_write(service: WorkflowService) -> None:
    step = StepFactory.create()
    bad = {"x": float("nan")}

    for write, path in (
        (lambda: service.create_run("orders", bad), r"\$input\.x"),
        (lambda: service.create_run("orders", wire=bad), r"\$wire\.x"),
        (lambda: service.create_run("orders", planned_steps=[bad]), r"\$planned_steps\[0\]\.x"),
        (lambda: service.update_run_status(step.run_id, "completed", bad), r"\$output\.x"),
        (lambda: service.update_run_status(step.run_id, "failed", error=bad), r"\$error\.x"),
        (lambda: service.update_run_state(step.run_id, "k", bad), r"\$state\.k\.x"),
        (lambda: service.update_run_state(step.run_id, "k\x00", 1), r"\$state \(a key\)"),
        (lambda: service.insert_step_state(step.run_id, "new", None, bad), r"\$data\.x"),
        (lambda: service.set_step_result(step.step_id, bad), r"\$result\.x"),
        (lambda: service.set_step_error(step.step_id, bad), r"\$error\.x"),
        (lambda: service.upsert_workflow_version("orders", "h", bad, "complex"), r"\$graph\.x"),
    ):
        with pytest.raises(PayloadError, match=f"^{path}: "):
            write()

    run = service.get_run(step.run_id)
    assert run is not None
    assert run.status == "running"
    assert service.get_run_state(step.run_id) == {}
    assert WorkflowRun.objects.count() == 1
    assert [state.status for state in service.list_step_states(step.run_id)] == ["pending"]


# -- steps -------------------------------------------------------------------------------------------------------------


@pytest.mark.contract("WS-03")
def test_an_inserted_step_is_pending_and_reads_back(service: WorkflowService) -> None:
    run = RunFactory.create()

    step = service.insert_step_state(
        run.id, "pack", "orders.pack", {"n": 1}, retries=3, retry_delay="1000ms", from_step_name="reserve"
    )

    assert (step.status, step.attempt_count, step.retries, step.retry_delay) == ("pending", 1, 3, "1000ms")
    assert (step.rpc_name, step.data, step.from_step_name, step.max_attempts) == ("orders.pack", {"n": 1}, "reserve", 4)
    assert (step.result, step.error, step.child_run_id, step.branch_taken) == (None, None, None, None)
    assert service.get_step_state(run.id, "pack") == step
    assert outcomes(run.id, "pack") == ["pending"]


@pytest.mark.contract("WS-03")
def test_a_numeric_retry_delay_reads_as_text(service: WorkflowService) -> None:
    step = StepFactory.create(retries=3, retry_delay=1000)

    assert (step.retries, step.retry_delay) == (3, "1000")
    assert service.get_step_state(step.run_id, step.step_name).step_id == step.step_id


def test_a_retry_delay_of_digits_is_milliseconds(service: WorkflowService) -> None:
    assert StepFactory.create(retries=3, retry_delay="1000").retry_delay == "1000"


def test_a_second_step_of_the_same_name_is_refused(service: WorkflowService) -> None:
    step = StepFactory.create(data={"first": True})

    with pytest.raises(IntegrityError), transaction.atomic():
        service.insert_step_state(step.run_id, step.step_name, "work", {"first": False})

    assert service.get_step_state(step.run_id, step.step_name) == step
    assert outcomes(step.run_id, step.step_name) == ["pending"]


@pytest.mark.django_db(transaction=True)
def test_a_step_of_an_unknown_run_is_refused(service: WorkflowService) -> None:
    with pytest.raises(IntegrityError):
        service.insert_step_state("nothing", "pack", "orders.pack")

    assert not WorkflowStep.objects.exists()


def test_a_missing_step_is_named(service: WorkflowService) -> None:
    run = RunFactory.create()

    with pytest.raises(
        StepNotFoundError, match=f"Step not found: runId={run.id}, stepName=pack. Use insert_step_state"
    ):
        service.get_step_state(run.id, "pack")
    with pytest.raises(StepNotFoundError):
        service.claim_step(run.id, "pack")


@pytest.mark.contract("WS-04")
def test_a_step_runs_and_then_has_its_result(service: WorkflowService) -> None:
    step = StepFactory.create()

    assert service.set_step_running(step.step_id)
    assert service.get_step_state(step.run_id, step.step_name).status == "running"
    assert service.set_step_result(step.step_id, {"parcel": 7})

    after = service.get_step_state(step.run_id, step.step_name)
    assert (after.status, after.result, after.error, after.due_at) == ("succeeded", {"parcel": 7}, None, None)


@pytest.mark.contract("WS-05")
def test_a_step_runs_and_then_has_its_error(service: WorkflowService) -> None:
    step = StepFactory.create()

    service.set_step_running(step.step_id)
    assert service.set_step_error(step.step_id, ValueError("no box"))

    after = service.get_step_state(step.run_id, step.step_name)
    assert after.status == "failed"
    assert after.result is None
    assert after.error is not None
    assert (after.error["message"], after.error["name"]) == ("no box", "ValueError")


@pytest.mark.parametrize("result", [0, False, "", [], {}, None], ids=repr)
def test_a_falsy_result_survives_in_step_and_history(service: WorkflowService, result: Any) -> None:
    step = StepFactory.create()
    service.set_step_result(step.step_id, result)

    state = service.get_step_state(step.run_id, step.step_name)
    (attempt,) = attempts_of(step.run_id, step.step_name)
    for stored in (
        state.result,
        attempt.result,
        service.get_node_results(step.run_id, [step.step_name])[step.step_name],
    ):
        assert stored == result
        assert type(stored) is type(result)


@pytest.mark.contract("WS-06")
def test_a_retry_is_pending_with_neither_error_nor_result(service: WorkflowService) -> None:
    step = StepFactory.create()
    service.set_step_running(step.step_id)
    service.set_step_error(step.step_id, ValueError("no box"))

    retry = service.create_retry_attempt(step.step_id)

    assert (retry.step_id, retry.status, retry.attempt_count) == (step.step_id, "pending", 2)
    assert (retry.error, retry.result) == (None, None)
    assert service.get_step_state(step.run_id, step.step_name) == retry
    assert outcomes(step.run_id, step.step_name) == ["failed", "pending"]


def test_a_retry_may_begin_running(service: WorkflowService) -> None:
    step = StepFactory.create()
    service.set_step_error(step.step_id, ValueError("no box"))

    retry = service.create_retry_attempt(step.step_id, "running")

    assert (retry.status, retry.attempt_count) == ("running", 2)
    assert attempts_of(step.run_id, step.step_name)[1].running_at is not None
    assert service.set_step_result(step.step_id, 1, attempt=2, claim_token=retry.claim_token)


@pytest.mark.parametrize("status", ["pending", "running", "succeeded"])
def test_only_a_failed_step_gets_another_attempt(service: WorkflowService, status: str) -> None:
    step = StepFactory.create()
    if status != "pending":
        service.set_step_running(step.step_id)
    if status == "succeeded":
        service.set_step_result(step.step_id, 1)

    with pytest.raises(WorkflowError, match=f"is {status} after attempt 1 of 6: no further attempt can begin"):
        service.create_retry_attempt(step.step_id)
    assert outcomes(step.run_id, step.step_name) == [status]


def test_the_budget_of_attempts_is_never_exceeded(service: WorkflowService) -> None:
    step = StepFactory.create(retries=2)
    for _ in range(2):
        service.set_step_error(step.step_id, ValueError("no box"))
        service.create_retry_attempt(step.step_id)
    service.set_step_error(step.step_id, ValueError("no box"))

    with pytest.raises(WorkflowError, match="is failed after attempt 3 of 3"):
        service.create_retry_attempt(step.step_id)
    assert service.claim_step(step.run_id, step.step_name) is None
    assert outcomes(step.run_id, step.step_name) == ["failed"] * 3


def test_a_retry_of_an_unknown_step_is_an_error(service: WorkflowService) -> None:
    with pytest.raises(WorkflowError, match="Step not found: nothing"):
        service.create_retry_attempt("nothing")


def test_scheduling_reaches_the_history(service: WorkflowService) -> None:
    """The contract's history does not know that a step was scheduled; ours does."""
    step = StepFactory.create()

    assert service.set_step_scheduled(step.step_id)
    assert not service.set_step_scheduled(step.step_id)

    (attempt,) = attempts_of(step.run_id, step.step_name)
    assert attempt.status == "scheduled"
    assert attempt.scheduled_at is not None
    assert attempt.scheduled_at >= attempt.created_at
    timeline = service.get_run_timeline(step.run_id)
    assert timeline is not None
    assert [event.type for event in timeline] == ["pending", "scheduled"]
    report = service.get_run_status(step.run_id)
    assert report is not None
    assert [summary.status for summary in report.steps] == ["scheduled"]


def test_a_child_run_is_noted(service: WorkflowService) -> None:
    step = StepFactory.create()

    assert service.set_step_child_run_id(step.step_id, "run-2")
    assert service.get_step_state(step.run_id, step.step_name).child_run_id == "run-2"
    assert not service.set_step_child_run_id("nothing", "run-2")


# -- status reports ----------------------------------------------------------------------------------------------------


@pytest.mark.contract("WS-07")
def test_the_report_of_a_step_that_succeeded_has_its_duration(service: WorkflowService) -> None:
    step = StepFactory.create()
    service.set_step_running(step.step_id)
    with clock.travel(timedelta(milliseconds=250)):
        service.set_step_result(step.step_id, 1)

    report = service.get_run_status(step.run_id)
    assert report is not None
    (summary,) = report.steps
    assert (summary.name, summary.status, summary.attempts) == (step.step_name, "succeeded", 1)
    assert summary.duration is not None
    assert 250 <= summary.duration < 60_000


@pytest.mark.contract("WS-08")
def test_the_report_of_a_step_that_was_retried_has_one_entry(service: WorkflowService) -> None:
    step = StepFactory.create()
    service.set_step_running(step.step_id)
    service.set_step_error(step.step_id, ValueError("no box"))
    with clock.travel(timedelta(milliseconds=5)):
        service.create_retry_attempt(step.step_id)
        service.set_step_running(step.step_id)
        service.set_step_result(step.step_id, 1)

    report = service.get_run_status(step.run_id)
    assert report is not None
    assert [(summary.name, summary.status, summary.attempts) for summary in report.steps] == [
        (step.step_name, "succeeded", 2)
    ]


@pytest.mark.parametrize("status", ["running", "suspended", "completed", "failed", "cancelled"])
def test_a_report_tells_the_end_only_of_a_run_that_ended(service: WorkflowService, status: str) -> None:
    run = RunFactory.create()
    service.update_run_status(run.id, status, {"n": 1})

    report = service.get_run_status(run.id)
    assert report is not None
    assert (report.id, report.status, report.started_at) == (run.id, status, run.created_at)
    assert (report.completed_at is None) == (status in {"running", "suspended"})
    assert report.output == ({"n": 1} if status == "completed" else None)


# -- results, branches, instances --------------------------------------------------------------------------------------


@pytest.mark.contract("WS-09")
def test_results_of_named_steps_come_keyed_by_name(service: WorkflowService) -> None:
    run = RunFactory.create()
    for name, result in (("a", {"n": 1}), ("b", 0), ("c", None)):
        service.set_step_result(StepFactory.create(run_id=run.id, step_name=name).step_id, result)
    StepFactory.create(run_id=run.id, step_name="d")
    service.set_step_error(StepFactory.create(run_id=run.id, step_name="e").step_id, ValueError("no"))

    assert service.get_node_results(run.id, ["a", "b", "c", "d", "e", "unknown"]) == {"a": {"n": 1}, "b": 0, "c": None}
    assert service.get_node_results(run.id, ["b"]) == {"b": 0}
    assert service.get_node_results(run.id, []) == {}


@pytest.mark.contract("WS-10")
def test_a_branch_taken_is_among_the_branches_of_completed_steps(service: WorkflowService) -> None:
    run = RunFactory.create()
    taken, other, failed = (StepFactory.create(run_id=run.id, step_name=name, retries=0) for name in "abc")
    assert service.set_branch_taken(taken.step_id, "express")
    service.set_branch_taken(other.step_id, "slow")
    service.set_step_result(taken.step_id, 1)
    service.set_step_error(failed.step_id, ValueError("no"))

    state = service.get_completed_graph_state(run.id)

    assert state.completed_node_ids == ("a",)
    assert state.branch_keys == {"a": "express"}
    assert state.failed_node_ids == ("c",)


def test_a_failed_step_with_attempts_left_is_not_failed_for_good(service: WorkflowService) -> None:
    step = StepFactory.create(retries=1)
    service.set_step_error(step.step_id, ValueError("no"))

    assert service.get_completed_graph_state(step.run_id).failed_node_ids == ()


def test_step_instances_tell_where_each_was_reached_from(service: WorkflowService) -> None:
    run = RunFactory.create()
    StepFactory.create(run_id=run.id, step_name="a")
    StepFactory.create(run_id=run.id, step_name="b", from_step_name="a")

    assert [
        (instance.step_name, instance.status, instance.from_step_name)
        for instance in service.get_step_instances(run.id)
    ] == [
        ("a", "pending", None),
        ("b", "pending", "a"),
    ]


# -- state -------------------------------------------------------------------------------------------------------------


@pytest.mark.contract("WS-11")
def test_two_state_keys_keep_their_values_and_types(service: WorkflowService) -> None:
    run = RunFactory.create()

    assert service.update_run_state(run.id, "courier", "dhl")
    assert service.update_run_state(run.id, "parcels", 3)

    assert service.get_run_state(run.id) == {"courier": "dhl", "parcels": 3}


# -- versions ----------------------------------------------------------------------------------------------------------


@pytest.mark.contract("WS-12")
def test_a_stored_version_reads_back(service: WorkflowService) -> None:
    assert service.upsert_workflow_version("orders", "hash-1", {"nodes": ["a"]}, "complex")

    version = service.get_workflow_version("orders", "hash-1")
    assert version is not None
    assert (version.graph, version.source) == ({"nodes": ["a"]}, "complex")


@pytest.mark.contract("WS-13")
def test_storing_a_version_again_leaves_the_first_in_place(service: WorkflowService) -> None:
    service.upsert_workflow_version("orders", "hash-1", {"nodes": ["a"]}, "complex")

    assert not service.upsert_workflow_version("orders", "hash-1", {"nodes": ["b"]}, "graph", "draft")

    version = service.get_workflow_version("orders", "hash-1")
    assert version is not None
    assert (version.graph, version.source) == ({"nodes": ["a"]}, "complex")


@pytest.mark.contract("WS-14")
def test_an_unknown_version_reads_as_none(service: WorkflowService) -> None:
    service.upsert_workflow_version("orders", "hash-1", {}, "complex")

    assert service.get_workflow_version("orders", "hash-2") is None
    assert service.get_workflow_version("parcels", "hash-1") is None


def test_the_status_of_a_version_can_change(service: WorkflowService) -> None:
    service.upsert_workflow_version("orders", "hash-1", {}, "complex")

    assert service.update_workflow_version_status("orders", "hash-1", "declined")
    assert not service.update_workflow_version_status("orders", "hash-2", "declined")
    with pytest.raises(ValueError, match="retired"):
        service.update_workflow_version_status("orders", "hash-1", "retired")
