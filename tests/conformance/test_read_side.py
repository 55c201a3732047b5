"""The read side: lists, details, history, versions."""

from datetime import timedelta
from typing import Any

import pytest

from pikku_storage.workflows import function, workflow
from pikku_storage.workflows.flow import Flow
from pikku_storage.workflows.runs import WorkflowRunService
from pikku_storage.workflows.service import WorkflowService
from tests.conformance.conftest import Counter
from tests.conformance.support import connection, data_statements
from tests.factories import A_MONDAY, AttemptRowFactory, RunFactory, RunRowFactory, StepRowFactory, VersionRowFactory

pytestmark = pytest.mark.django_db


# -- lists -------------------------------------------------------------------------------------------------------------


@pytest.mark.contract("WR-01")
def test_a_list_without_options_has_the_newest_first(runs: WorkflowRunService) -> None:
    made = [RunRowFactory.create().id for _ in range(3)]

    assert [run.id for run in runs.list_runs()] == made[::-1]


def test_a_list_is_empty_where_there_is_nothing(runs: WorkflowRunService) -> None:
    assert runs.list_runs() == []
    assert runs.get_distinct_workflow_names() == []


@pytest.mark.contract("WR-02")
def test_a_list_may_be_of_one_workflow(runs: WorkflowRunService) -> None:
    RunRowFactory.create(workflow="parcels")
    wanted = RunRowFactory.create(workflow="orders")

    assert [run.id for run in runs.list_runs(workflow_name="orders")] == [wanted.id]
    assert runs.list_runs(workflow_name="order") == []


def test_filters_add_up(runs: WorkflowRunService) -> None:
    for workflow_name in ("orders", "parcels"):
        for status in ("running", "failed"):
            for owner in ("user-1", "user-2", None):
                RunRowFactory.create(workflow=workflow_name, status=status, owner_id=owner)

    assert len(runs.list_runs()) == 12
    assert len(runs.list_runs(status="failed")) == 6
    assert len(runs.list_runs(owner_id="user-1")) == 4
    (run,) = runs.list_runs(workflow_name="orders", status="failed", owner_id="user-1")
    assert (run.workflow, run.status, run.owner_id) == ("orders", "failed", "user-1")
    assert runs.list_runs(owner_id="user") == [], "an owner is matched whole"


def test_a_list_is_cut_at_fifty_unless_told_otherwise(runs: WorkflowRunService) -> None:
    RunRowFactory.create_batch(55)

    assert len(runs.list_runs()) == 50
    assert len(runs.list_runs(limit=3)) == 3
    assert [run.id for run in runs.list_runs(limit=3, offset=2)] == [run.id for run in runs.list_runs(limit=5)][2:]
    assert len(runs.list_runs(offset=50)) == 5


@pytest.mark.parametrize("same_time", [True, False], ids=["all at once", "one by one"])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 20])
def test_pages_by_key_show_every_run_once(runs: WorkflowRunService, size: int, same_time: bool) -> None:
    times = {"created_at": A_MONDAY} if same_time else {}
    made = {RunRowFactory.create(**times).id for _ in range(10)}
    made |= {RunRowFactory.create(created_at=A_MONDAY - timedelta(days=1)).id for _ in range(2)}

    seen: list[Any] = []
    page = runs.list_runs(limit=size)
    while page:
        seen += page
        page = runs.list_runs(limit=size, before=(page[-1].created_at, page[-1].id))

    assert len(seen) == 12
    assert {run.id for run in seen} == made
    assert [(run.created_at, run.id) for run in seen] == sorted(
        ((run.created_at, run.id) for run in seen), reverse=True
    )


def test_a_run_that_is_added_meanwhile_does_not_shift_the_pages(runs: WorkflowRunService) -> None:
    for _ in range(4):
        RunRowFactory.create()
    first = runs.list_runs(limit=2)
    RunRowFactory.create()
    second = runs.list_runs(limit=2, before=(first[-1].created_at, first[-1].id))

    assert not {run.id for run in first} & {run.id for run in second}


def test_pages_keep_their_filters(runs: WorkflowRunService) -> None:
    wanted = [RunRowFactory.create(workflow=name).id for name in ("orders", "parcels") * 3][::2]
    first, second, third = wanted[::-1]

    page = runs.list_runs(workflow_name="orders", limit=1)
    assert [run.id for run in page] == [first]
    page = runs.list_runs(workflow_name="orders", limit=5, before=(page[0].created_at, page[0].id))
    assert [run.id for run in page] == [second, third]


@pytest.mark.django_db(transaction=True)
def test_a_list_is_one_statement(runs: WorkflowRunService, statements: Counter) -> None:
    RunRowFactory.create_batch(5)

    with statements() as seen:
        runs.list_runs()
    assert len(data_statements(seen)) == 1


@pytest.mark.contract("WR-03")
def test_names_of_workflows_are_distinct_and_sorted(runs: WorkflowRunService) -> None:
    for name in ("parcels", "orders", "parcels", "invoices"):
        RunRowFactory.create(workflow=name)

    assert runs.get_distinct_workflow_names() == ["invoices", "orders", "parcels"]


# -- one run -----------------------------------------------------------------------------------------------------------


def test_both_sides_read_the_same_run(runs: WorkflowRunService, service: WorkflowService) -> None:
    run = RunFactory.create(data={"n": 1})

    assert runs.get_run(run.id) == service.get_run(run.id) == run
    assert runs.get_run("nothing") is None


def test_columns_that_another_program_left_out_have_their_defaults(runs: WorkflowRunService) -> None:
    row = RunRowFactory.create(inline=None, deterministic=None, wire=None, state=None)

    run = runs.get_run(row.id)
    assert run is not None
    assert (run.inline, run.deterministic, run.wire) == (False, False, {"type": "unknown"})
    step = StepRowFactory.create(run=row, current_attempt=None)
    (detail,) = runs.get_run_steps(row.id)
    assert detail.step.attempt_count == 1
    assert detail.step.step_id == step.id


def test_steps_come_oldest_first_with_the_latest_stamps_of_their_attempts(runs: WorkflowRunService) -> None:
    def at(seconds: int) -> Any:
        return A_MONDAY + timedelta(seconds=seconds)

    run = RunRowFactory.create(created_at=at(0))
    late = StepRowFactory.create(run=run, step_name="late", created_at=at(20), status="pending")
    early = StepRowFactory.create(
        run=run, step_name="early", created_at=at(1), status="succeeded", current_attempt=2, rpc_name="work", retries=3
    )
    AttemptRowFactory.create(step=late, created_at=at(20))
    AttemptRowFactory.create(step=early, status="failed", created_at=at(1), running_at=at(2), failed_at=at(3))
    AttemptRowFactory.create(
        step=early, attempt=2, status="succeeded", created_at=at(5), running_at=at(6), succeeded_at=at(9)
    )

    first, second = runs.get_run_steps(run.id)

    assert (first.step.step_name, second.step.step_name) == ("early", "late")
    assert (first.running_at, first.failed_at, first.succeeded_at) == (at(6), at(3), at(9))
    assert (second.running_at, second.failed_at, second.succeeded_at) == (None, None, None)
    assert (first.step.attempt_count, first.step.retries, first.step.rpc_name) == (2, 3, "work")
    assert runs.get_run_steps("nothing") == []


def test_the_history_counts_attempts_anew_for_each_step(runs: WorkflowRunService) -> None:
    run = RunRowFactory.create()
    first = StepRowFactory.create(run=run, step_name="a")
    second = StepRowFactory.create(
        run=run, step_name="b", from_step_name="a", retries=1, retry_delay="2s", rpc_name="work"
    )
    for seconds, (step, attempt) in enumerate([(first, 1), (second, 1), (first, 2), (second, 2)]):
        AttemptRowFactory.create(
            step=step,
            attempt=attempt,
            created_at=A_MONDAY + timedelta(seconds=seconds),
            status="failed",
            error={"message": f"{step.step_name} {attempt}"},
            worker=f"worker-{attempt}",
        )

    history = runs.get_run_history(run.id)

    assert [(entry.step_name, entry.attempt_count) for entry in history] == [("a", 1), ("b", 1), ("a", 2), ("b", 2)]
    assert [entry.error["message"] for entry in history if entry.error] == ["a 1", "b 1", "a 2", "b 2"]
    assert history[1].from_step_name == "a"
    assert (history[1].retries, history[1].retry_delay, history[1].rpc_name) == (1, "2s", "work")
    assert [entry.worker for entry in history] == ["worker-1", "worker-1", "worker-2", "worker-2"]
    assert all(entry.updated_at == entry.created_at for entry in history)


def test_attempts_of_the_same_millisecond_come_in_their_order(runs: WorkflowRunService) -> None:
    step = StepRowFactory.create()
    for attempt in (3, 1, 2):
        AttemptRowFactory.create(step=step, attempt=attempt, created_at=A_MONDAY, result=attempt)

    assert [entry.result for entry in runs.get_run_history(step.run_id)] == [1, 2, 3]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("count", [1, 10])
def test_reading_a_run_costs_the_same_however_many_steps_it_has(
    runs: WorkflowRunService, statements: Counter, count: int
) -> None:
    run = RunRowFactory.create()
    for _ in range(count):
        AttemptRowFactory.create(step=StepRowFactory.create(run=run))

    # MongoDB is told the steps whose attempts are asked for, instead of joining.
    more = 1 if connection.vendor == "mongodb" else 0
    for read, expected in ((runs.get_run_steps, 2), (runs.get_run_history, 1), (runs.get_run_timeline, 1)):
        with statements() as seen:
            assert read(run.id)
        assert len(data_statements(seen)) == expected + more


def test_the_timeline_of_an_unknown_run_is_none_and_of_a_fresh_one_empty(runs: WorkflowRunService) -> None:
    assert runs.get_run_timeline("nothing") is None
    assert runs.get_run_timeline(RunRowFactory.create().id) == []


@pytest.mark.django_db(transaction=True)
def test_a_run_can_be_seen_as_it_was(ticking: None, service: WorkflowService) -> None:
    @function(retries=1, retry_delay=0)
    def pack() -> int:
        raise ValueError("no box")

    @workflow
    def order(flow: Flow) -> None:
        flow.do("first", lambda: 0)
        flow.do("pack", pack)

    run = order.run()

    timeline = run.timeline()
    assert [(event.seq, event.step_name, event.type, event.attempt_count) for event in timeline] == [
        (0, "first", "pending", 1),
        (1, "first", "running", 1),
        (2, "first", "succeeded", 1),
        (3, "pack", "pending", 1),
        (4, "pack", "running", 1),
        (5, "pack", "failed", 1),
        (6, "pack", "pending", 2),
        (7, "pack", "running", 2),
        (8, "pack", "failed", 2),
    ]
    assert timeline[3].from_step_name == "first"
    state = service.reconstruct_run_state_at(run.id, 2)
    assert state is not None
    assert (state.path, state.results, state.phase) == (("first",), {"first": 0}, "idle")
    final = service.reconstruct_run_state_at(run.id)
    assert final is not None
    assert (final.seq, final.phase) == (8, "failed")
    assert service.reconstruct_run_state_at(run.id, timeline[-1].at) == final


# -- versions ----------------------------------------------------------------------------------------------------------


def test_a_version_reads_back(runs: WorkflowRunService) -> None:
    row = VersionRowFactory.create(graph={"nodes": []}, source="graph")

    version = runs.get_workflow_version("orders", row.graph_hash)
    assert version is not None
    assert (version.graph, version.source) == ({"nodes": []}, "graph")
    assert runs.get_workflow_version("orders", "unknown") is None
