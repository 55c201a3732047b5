"""Fork, rerun, and what is done to many runs at once; also as commands."""

import json
from collections.abc import Callable
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from pikku_storage.auditing import AuditEvent
from pikku_storage.exceptions import (
    StepNotFoundError,
    WorkflowError,
    WorkflowInputError,
    WorkflowNotFoundError,
    WorkflowRunNotFoundError,
    WorkflowStepFailedError,
)
from pikku_storage.workflows import function, workflow
from pikku_storage.workflows.bulk import BATCH, RunFilter
from pikku_storage.workflows.definitions import WorkflowDefinition
from pikku_storage.workflows.flow import Flow
from pikku_storage.workflows.handle import WorkflowRunHandle
from pikku_storage.workflows.invariants import find_violations
from pikku_storage.workflows.models import WorkflowRun
from pikku_storage.workflows.registry import registry
from pikku_storage.workflows.service import WorkflowService
from tests.conformance.conftest import Counter
from tests.conformance.recording import RecordingDispatcher
from tests.conformance.support import about_sql, data_statements, outcomes, step_names, step_of
from tests.factories import A_MONDAY, RunRowFactory

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def log() -> list[str]:
    """What the steps did."""
    return []


@pytest.fixture
def order(log: list[str]) -> WorkflowDefinition[Any]:
    """A step, one whose failure the body goes on after, a fan-out, and a last step."""

    @function(retries=0)
    def work(name: str) -> str:
        log.append(name)
        if name == "coupon":
            raise ValueError("expired")
        return name.upper()

    @workflow
    def order(flow: Flow, sku: str) -> list[Any]:
        flow.set_state("sku", sku)
        results: list[Any] = [flow.do("reserve", work, {"name": f"reserve {sku}"})]
        try:
            flow.do("coupon", work, {"name": "coupon"})
        except WorkflowStepFailedError:
            results.append("no coupon")
        results += flow.map("pack", work, ["box", "bag"])
        results.append(flow.do("send", work, {"name": "send"}))
        return results

    return order


@pytest.fixture
def done(
    order: WorkflowDefinition[Any], outbox: RecordingDispatcher, log: list[str], ticking: None
) -> WorkflowRunHandle:
    """An order that is completed."""
    run = order.start({"sku": "tea"}, owner="user-1", trigger="http", idempotency_key="A1")
    outbox.deliver()
    assert run.status == "completed"
    log.clear()
    return run


# -- fork --------------------------------------------------------------------------------------------------------------


def test_a_fork_takes_over_what_came_before_the_step(
    done: WorkflowRunHandle, outbox: RecordingDispatcher, log: list[str]
) -> None:
    before = done.get()

    run = done.fork("send", reason="lost in the mail", by="user-7")
    assert run.created
    assert run != done
    outbox.deliver()

    assert log == ["send"]
    assert (run.status, run.output) == ("completed", ["RESERVE TEA", "no coupon", "BOX", "BAG", "SEND"])
    assert outcomes(run.id, "coupon") == ["failed"]
    assert step_of(run.id, "coupon").error == step_of(done.id, "coupon").error
    assert done.get() == before
    new = run.get()
    assert (new.input, new.owner_id, new.idempotency_key, new.origin_run_id) == (
        {"sku": "tea"},
        "user-1",
        None,
        done.id,
    )
    assert new.wire == {
        "type": "http",
        "pikkuUserId": "user-1",
        "forkOf": done.id,
        "forkFrom": "send",
        "reason": "lost in the mail",
        "by": "user-7",
    }
    assert run.state == {"sku": "tea"}
    assert list(find_violations(run_ids=[run.id])) == []


@pytest.mark.parametrize(
    ("from_step", "again"),
    [
        ("reserve", ["reserve tea", "coupon", "box", "bag", "send"]),
        ("coupon", ["coupon", "box", "bag", "send"]),
        ("pack[1]", ["bag", "send"]),
    ],
)
def test_everything_from_that_step_on_happens_again(
    done: WorkflowRunHandle, outbox: RecordingDispatcher, log: list[str], from_step: str, again: list[str]
) -> None:
    """Of a fan-out, the other items are taken over."""
    preview = WorkflowService().preview_fork(done.id, from_step)
    run = done.fork(from_step)
    outbox.deliver()

    assert log == again
    assert run.output == done.output
    assert len(preview.again) == len(again)
    assert set(preview.kept) | set(preview.again) == set(step_names(done.id))
    assert (preview.workflow, preview.input, preview.is_same_version) == ("order", {"sku": "tea"}, True)


def test_a_fork_may_have_another_input(done: WorkflowRunHandle, outbox: RecordingDispatcher, log: list[str]) -> None:
    run = done.fork("coupon", {"sku": "soap"})
    outbox.deliver()

    assert run.get().input == {"sku": "soap"}
    assert run.output == ["RESERVE TEA", "no coupon", "BOX", "BAG", "SEND"], "what was taken over is as it was"


def test_each_fork_is_a_run_of_its_own(done: WorkflowRunHandle) -> None:
    assert done.fork("send") != done.fork("send")


def test_a_live_run_may_be_forked(outbox: RecordingDispatcher) -> None:
    done_by: list[str] = []

    @workflow
    def nap(flow: Flow) -> str:
        flow.do("lie down", lambda: done_by.append(flow.run_id))
        flow.sleep("sleep", "1h")
        flow.do("get up", lambda: done_by.append(flow.run_id))
        return "awake"

    run = nap.start()
    outbox.deliver()
    fork = run.fork("sleep")
    outbox.deliver()

    assert done_by == [run.id]
    assert (run.status, fork.status) == ("running", "running")
    assert step_names(fork.id) == ["lie down", "sleep"]


def test_a_fork_of_what_is_not_there(done: WorkflowRunHandle, service: WorkflowService) -> None:
    count = WorkflowRun.objects.count()

    with pytest.raises(StepNotFoundError):
        done.fork("sned")
    with pytest.raises(WorkflowRunNotFoundError):
        service.fork_run("nothing", "send")
    with pytest.raises(WorkflowRunNotFoundError):
        service.preview_fork("nothing", "send")
    with pytest.raises(WorkflowInputError):
        done.fork("send", {"colour": "red"})
    assert WorkflowRun.objects.count() == count


def test_a_preview_says_that_the_code_is_another_one(done: WorkflowRunHandle, service: WorkflowService) -> None:
    WorkflowRun.objects.filter(pk=done.id).update(graph_hash="older")
    assert service.preview_fork(done.id, "send").is_same_version is False

    del registry.workflows["order"]
    assert service.preview_fork(done.id, "send").is_same_version is None
    with pytest.raises(WorkflowNotFoundError):
        done.fork("send", {"sku": "soap"})


# -- rerun -------------------------------------------------------------------------------------------------------------


def test_a_rerun_begins_at_the_beginning(
    done: WorkflowRunHandle, service: WorkflowService, outbox: RecordingDispatcher, log: list[str]
) -> None:
    run = service.rerun_run(done.id, by="user-7")
    outbox.deliver()

    assert log == ["reserve tea", "coupon", "box", "bag", "send"]
    assert run.output == done.output
    new = run.get()
    assert (new.owner_id, new.idempotency_key, new.origin_run_id) == ("user-1", None, done.id)
    assert new.wire == {"type": "http", "pikkuUserId": "user-1", "rerunOf": done.id, "by": "user-7"}


def test_a_rerun_may_have_another_input(
    done: WorkflowRunHandle, service: WorkflowService, outbox: RecordingDispatcher, log: list[str]
) -> None:
    service.rerun_run(done.id, {"sku": "soap"})
    outbox.deliver()

    assert log[0] == "reserve soap"
    with pytest.raises(WorkflowInputError):
        service.rerun_run(done.id, {})
    with pytest.raises(WorkflowRunNotFoundError):
        service.rerun_run("nothing")


def test_links_to_other_runs_are_not_copied(done: WorkflowRunHandle, service: WorkflowService) -> None:
    fork = done.fork("send")
    again = service.rerun_run(fork.id)

    assert "forkOf" not in again.get().wire
    assert again.get().wire["rerunOf"] == fork.id


# -- many at once ------------------------------------------------------------------------------------------------------


def _ids(*rows: WorkflowRun) -> list[str]:
    return [row.pk for row in rows]


def test_many_are_cancelled(service: WorkflowService) -> None:
    first, second = RunRowFactory.create_batch(2, workflow="billing")
    over = RunRowFactory.create(workflow="billing", status="completed")
    other = RunRowFactory.create(workflow="orders")

    report = service.cancel_runs(RunFilter(workflow="billing"), reason="wrong prices", by="user-7")

    assert (report.done, report.skipped, report.failed) == (_ids(first, second), [], {})
    assert first.status == "running"
    first.refresh_from_db()
    assert first.status == "cancelled"
    assert first.error == {"message": "wrong prices", "code": "WORKFLOW_CANCELLED", "by": "user-7"}
    for untouched, status in ((over, "completed"), (other, "running")):
        untouched.refresh_from_db()
        assert untouched.status == status
    assert service.cancel_runs(RunFilter(workflow="billing"), reason="again").done == []


def test_many_are_retried_once(
    service: WorkflowService, outbox: RecordingDispatcher, order: WorkflowDefinition[Any], log: list[str]
) -> None:
    @workflow
    def broken(flow: Flow) -> None:
        flow.do("fail", lambda: 1 / 0, retries=0)

    runs = [broken.start() for _ in range(2)]
    fine = order.start({"sku": "tea"})
    outbox.deliver()

    report = service.retry_runs(RunFilter(statuses=["failed"]), reason="mended")
    assert sorted(report.done) == sorted(run.id for run in runs)
    again = service.retry_runs(RunFilter(run_ids=[*(run.id for run in runs), fine.id]))

    assert (again.done, sorted(again.skipped)) == ([], sorted(run.id for run in runs))
    new = WorkflowRun.objects.filter(origin_run_id=runs[0].id).get()
    assert new.wire["reason"] == "mended"


def test_a_run_that_cannot_be_retried_keeps_no_other_from_it(
    service: WorkflowService, outbox: RecordingDispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = RunRowFactory.create_batch(3, status="failed")
    retry = WorkflowService.retry_run

    def sometimes(self: WorkflowService, run_id: str, **options: Any) -> WorkflowRunHandle:
        if run_id == rows[1].pk:
            raise WorkflowError("not this one")
        return retry(self, run_id, **options)

    monkeypatch.setattr(WorkflowService, "retry_run", sometimes)
    report = service.retry_runs(RunFilter(workflow="orders"))

    assert (report.done, report.failed) == (_ids(rows[0], rows[2]), {rows[1].pk: "not this one"})


def test_many_are_resumed(service: WorkflowService, outbox: RecordingDispatcher) -> None:
    waiting = RunRowFactory.create_batch(2, status="suspended")
    RunRowFactory.create(status="failed")

    assert service.resume_runs(RunFilter(owner_id="nobody")).done == []
    assert service.resume_runs(RunFilter(workflow="orders")).done == _ids(*waiting)
    assert [message.run_id for message in outbox.sent] == _ids(*waiting)


FILTERS: dict[str, tuple[Callable[[list[str]], RunFilter], list[int]]] = {
    "ids": (lambda ids: RunFilter(run_ids=[ids[3], ids[1], "nothing"]), [1, 3]),
    "workflow": (lambda ids: RunFilter(workflow="w1"), [1, 3]),
    "status": (lambda ids: RunFilter(statuses=["failed", "suspended"]), [2, 3]),
    "owner": (lambda ids: RunFilter(owner_id="o0"), [0, 1]),
    "from a time": (lambda ids: RunFilter(started_after=A_MONDAY + timedelta(days=2)), [2, 3]),
    "to a time": (lambda ids: RunFilter(started_before=A_MONDAY + timedelta(days=2)), [0, 1]),
    "both": (lambda ids: RunFilter(workflow="w1", owner_id="o0"), [1]),
    "nothing is empty": (lambda ids: RunFilter(run_ids=[]), []),
}


@pytest.mark.parametrize("name", FILTERS)
def test_which_runs(service: WorkflowService, name: str) -> None:
    statuses = ["running", "completed", "suspended", "failed"]
    rows = [
        RunRowFactory.create(
            workflow=f"w{number % 2}",
            owner_id=f"o{number // 2}",
            status=status,
            created_at=A_MONDAY + timedelta(days=number),
        )
        for number, status in enumerate(statuses)
    ]
    make, expected = FILTERS[name]

    assert service.find_runs(make(_ids(*rows))) == [rows[number].pk for number in expected]


def test_a_filter_says_something() -> None:
    with pytest.raises(WorkflowInputError, match="Say which runs"):
        RunFilter()
    with pytest.raises(WorkflowInputError, match="No such status: sleeping"):
        RunFilter(statuses=["sleeping"])


@about_sql
def test_runs_are_found_in_batches(service: WorkflowService, statements: Counter) -> None:
    RunRowFactory.create_batch(BATCH + 1, created_at=A_MONDAY)

    with statements() as seen:
        found = service.find_runs(RunFilter(workflow="orders"))
    with statements() as few:
        assert service.find_runs(RunFilter(workflow="orders"), limit=3) == found[:3]

    assert (len(found), len(set(found)), found) == (BATCH + 1, BATCH + 1, sorted(found))
    assert (len(data_statements(seen)), len(data_statements(few))) == (2, 1)


# -- the audit trail ---------------------------------------------------------------------------------------------------


def test_what_operators_do_is_audited_once(
    service: WorkflowService, outbox: RecordingDispatcher, audited: list[AuditEvent], done: WorkflowRunHandle
) -> None:
    live, failed = RunRowFactory.create(), RunRowFactory.create(status="failed")
    why: dict[str, Any] = {"reason": "because", "by": "user-7"}
    fork, again, retried = (
        done.fork("send", **why),
        service.rerun_run(done.id, **why),
        service.retry_run(failed.pk, **why),
    )
    service.retry_run(failed.pk, **why)
    service.retry_run(live.pk, **why)
    service.resume_workflow(live.pk, **why)
    assert service.cancel_workflow(live.pk, "because", by="user-7")
    assert not service.cancel_workflow(live.pk, "because", by="user-7")
    assert not service.resume_workflow(live.pk, **why)

    assert {(event.outcome, event.actor.user_id, event.metadata["reason"]) for event in audited} == {
        ("success", "user-7", "because")
    }
    assert [(event.type.removeprefix("workflow.run."), event.metadata["runId"]) for event in audited] == [
        ("forked", done.id),
        ("rerun", done.id),
        ("retried", failed.pk),
        ("retried", live.pk),
        ("resumed", live.pk),
        ("cancelled", live.pk),
    ]
    assert [event.metadata.get("newRunId") for event in audited[:3]] == [fork.id, again.id, retried.id]


# -- commands ----------------------------------------------------------------------------------------------------------


def _called(*args: str) -> str:
    out = StringIO()
    call_command(*args, stdout=out, stderr=StringIO())
    return out.getvalue()


def test_cancelling_by_command(service: WorkflowService) -> None:
    first, second = RunRowFactory.create_batch(2)
    options = ("cancel_runs", "--workflow", "orders", "--reason", "closed", "--by", "ops")

    assert _called(*options, "--dry-run") == f"{first.pk}\n{second.pk}\n2 runs would be cancelled\n"
    assert _called(*options, "--limit", "1") == "1 runs cancelled, 0 left as they are\n"
    first.refresh_from_db()
    second.refresh_from_db()
    assert (first.status, second.status) == ("cancelled", "running")
    assert first.error["by"] == "ops"


def test_cancelling_and_undoing_by_command(outbox: RecordingDispatcher) -> None:
    [row] = RunRowFactory.create_batch(1)

    _called("cancel_runs", row.pk, "--reason", "closed", "--compensate")

    row.refresh_from_db()
    assert (row.status, row.cancel_request["message"]) == ("running", "closed")


def test_resuming_and_retrying_by_command(outbox: RecordingDispatcher) -> None:
    waiting, failed = RunRowFactory.create(status="suspended"), RunRowFactory.create(status="failed")

    assert _called("resume_runs", "--status", "suspended") == "1 runs resumed, 0 left as they are\n"
    assert _called("retry_runs", failed.pk) == "1 runs retried, 0 left as they are\n"
    assert _called("retry_runs", failed.pk) == "0 runs retried, 1 left as they are\n"
    assert outbox.sent[0].run_id == waiting.pk


def test_a_command_whose_runs_fail_ends_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    row = RunRowFactory.create(status="failed")

    def no(self: WorkflowService, run_id: str, **options: Any) -> WorkflowRunHandle:
        raise WorkflowError("not this one")

    monkeypatch.setattr(WorkflowService, "retry_run", no)
    err = StringIO()
    with pytest.raises(SystemExit) as ended:
        call_command("retry_runs", row.pk, stdout=StringIO(), stderr=err)

    assert ended.value.code == 1
    assert err.getvalue() == f"{row.pk}: not this one\n"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("cancel_runs", "--reason", "x"), "Say which runs"),
        (("cancel_runs", "--workflow", "orders"), "Say why"),
        (("cancel_runs", "--workflow", "orders", "--reason", "x", "--limit", "0"), "at least 1"),
        (("retry_runs", "--started-after", "yesterday"), "neither a date nor a time"),
        (("retry_runs", "--started-before", "2026-13-01"), "--started-before"),
        (("resume_runs", "--workflow", "orders", "--database", "nowhere"), "no database 'nowhere'"),
        (("fork_run", "nothing", "--from-step", "send"), "Workflow run not found: nothing"),
        (("rerun_run", "nothing"), "Workflow run not found: nothing"),
        (("rerun_run", "nothing", "--input", "{"), "no JSON"),
        (("rerun_run", "nothing", "--input", "[]"), "JSON object"),
        (("rerun_run", "nothing", "--database", "nowhere"), "no database 'nowhere'"),
    ],
)
def test_bad_arguments_change_nothing(args: tuple[str, ...], message: str) -> None:
    row = RunRowFactory.create()

    with pytest.raises(CommandError, match=message):
        _called(*args)

    row.refresh_from_db()
    assert row.status == "running"
    assert WorkflowRun.objects.count() == 1


def test_a_day_begins_in_the_projects_time_zone(service: WorkflowService) -> None:
    RunRowFactory.create(status="failed", created_at=A_MONDAY)

    assert _called("retry_runs", "--started-before", "2026-03-02", "--dry-run") == "0 runs would be retried\n"
    assert _called("retry_runs", "--started-after", "2026-03-02", "--dry-run").endswith("1 runs would be retried\n")


def test_forking_and_rerunning_by_command(done: WorkflowRunHandle, outbox: RecordingDispatcher, log: list[str]) -> None:
    preview = _called("fork_run", done.id, "--from-step", "send", "--preview")
    assert preview == "taken over: reserve, coupon, pack[0], pack[1]\ncarried out again: send\n"
    assert outbox.posted == []

    forked = _called("fork_run", done.id, "--from-step", "send").strip()
    again = _called("rerun_run", done.id, "--input", json.dumps({"sku": "soap"}), "--reason", "try").strip()
    outbox.deliver()

    assert log == ["send", "reserve soap", "coupon", "box", "bag", "send"]
    assert WorkflowRun.objects.get(pk=forked).origin_run_id == done.id
    assert WorkflowRun.objects.get(pk=again).wire["reason"] == "try"


def test_what_operators_set_for_workflows_is_audited_once(
    service: WorkflowService, order: WorkflowDefinition[Any], audited: list[AuditEvent]
) -> None:
    for _ in range(2):
        service.pause_workflow("order", reason="a fire", by="user-7")
    service.set_limits("order", concurrency=3, by="user-7")
    for _ in range(2):
        service.unpause_workflow("order", by="user-7")

    assert [(event.type, event.actor.user_id, dict(event.metadata)) for event in audited] == [
        ("workflow.paused", "user-7", {"workflow": "order", "reason": "a fire"}),
        ("workflow.limited", "user-7", {"workflow": "order", "limits": {"concurrency": 3}}),
        ("workflow.unpaused", "user-7", {"workflow": "order"}),
    ]
