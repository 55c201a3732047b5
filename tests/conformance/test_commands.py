"""`manage.py relay`, `check_storage`, `approve_run`, `list_schedules` and `backfill_schedule`."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.core.management import CommandError, call_command
from django.db import OperationalError

from pikku_storage.db import clock, engine
from pikku_storage.workflows import Limits, current_step, workflow
from pikku_storage.workflows.flow import Flow
from pikku_storage.workflows.gates import APPROVAL_RPC, GATE_RPCS
from pikku_storage.workflows.handle import WorkflowRunHandle
from pikku_storage.workflows.invariants import BATCH, find_violations
from pikku_storage.workflows.models import WorkflowRun, WorkflowStep, WorkflowStepHistory
from pikku_storage.workflows.registry import registry
from pikku_storage.workflows.runs import WorkflowRunService
from pikku_storage.workflows.schedules.service import ScheduleService
from pikku_storage.workflows.service import WorkflowService
from tests.conformance.recording import RecordingDispatcher
from tests.conformance.support import DATABASE, MINUTE
from tests.factories import AnswerRowFactory, RunFactory, StepFactory

ROOT = Path(__file__).parents[2]
LONG_AGO = timedelta(days=2)


def _called(name: str, *args: str) -> tuple[int, str, str]:
    """Exit code, output and errors of a command."""
    out, err = StringIO(), StringIO()
    try:
        call_command(name, *args, stdout=out, stderr=err)
    except SystemExit as ended:
        return int(ended.code or 0), out.getvalue(), err.getvalue()
    return 0, out.getvalue(), err.getvalue()


# -- relay -------------------------------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_one_round_of_the_relay(outbox: RecordingDispatcher) -> None:
    runs = [RunFactory.create() for _ in range(3)]

    assert _called("relay", "--once") == (0, "0 runs driven on\n", "")
    with clock.travel(10 * MINUTE):
        assert _called("relay", "--once") == (0, "3 runs driven on\n", "")
    assert {message.run_id for message in outbox.sent} == {run.id for run in runs}


@pytest.mark.parametrize("interval", ["soon", "-1", "5 parsecs"])
def test_an_interval_that_is_none_is_refused(interval: str) -> None:
    with pytest.raises(CommandError):
        call_command("relay", f"--interval={interval}")


@pytest.mark.django_db
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_the_relay_goes_on_until_it_is_told_to_stop(
    monkeypatch: pytest.MonkeyPatch, number: signal.Signals, kept_signals: None
) -> None:
    """Its round is finished first, and one that the database fails is no reason to end."""
    rounds: list[int] = []

    def relay(self: WorkflowService, *, limit: int = 100) -> list[str]:
        rounds.append(1)
        if len(rounds) == 2:
            raise OperationalError("the database is restarting")
        if len(rounds) == 3:
            signal.raise_signal(number)
        return ["a run"]

    monkeypatch.setattr(WorkflowService, "relay", relay)
    code, out, err = _called("relay", "--interval=1ms")

    assert (code, len(rounds)) == (0, 3)
    assert out.splitlines() == ["Looking every 1 ms. Stop with Ctrl-C.", *["1 runs driven on"] * 2]
    assert err == "This round failed: the database is restarting\n"


@pytest.fixture
def kept_signals() -> Any:
    """The test's process has its handlers back afterwards."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.django_db(transaction=True)
def test_a_relay_process_works_and_ends_cleanly(process_env: dict[str, str]) -> None:
    with clock.travel(-LONG_AGO):
        run = RunFactory.create()
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "manage.py"), "relay", "--interval=50ms"],
        env={**process_env, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=ROOT,
    )
    try:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and not _is_driven(run.id):
            time.sleep(0.05)
        assert _is_driven(run.id)
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=30)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()

    assert process.returncode == 0, out
    assert "1 runs driven on" in out
    assert "Traceback" not in out


def _is_driven(run_id: str) -> bool:
    return bool(WorkflowRun.objects.get(pk=run_id).redrives)


# -- check_storage -----------------------------------------------------------------------------------------------------


@pytest.fixture
def story(db: None) -> WorkflowRunHandle:
    """A completed run whose step succeeded in its second attempt."""

    @workflow
    def order(flow: Flow) -> Any:
        return flow.do("pack", lambda: 1 // (current_step().attempt - 1), retries=1, retry_delay=0)

    run = order.run()
    assert (run.status, run.output) == ("completed", 1)
    return run


def test_a_sound_database_has_no_violations(story: WorkflowRunHandle) -> None:
    StepFactory.create()

    assert _called("check_storage") == (0, "All invariants hold.\n", "")
    assert _called("check_storage", "--json") == (0, "", "")


@pytest.mark.usefixtures("db")
def test_an_empty_database_has_no_violations() -> None:
    assert _called("check_storage") == (0, "All invariants hold.\n", "")


Harm = Callable[[WorkflowRunHandle], Any]


def _run(**values: Any) -> Harm:
    return lambda run: WorkflowRun.objects.filter(pk=run.id).update(**values)


def _step(**values: Any) -> Harm:
    return lambda run: WorkflowStep.objects.filter(run_id=run.id).update(**values)


def _attempt(number: int, **values: Any) -> Harm:
    return lambda run: _attempts(run).filter(attempt=number).update(**values)


def _attempts(run: WorkflowRunHandle) -> Any:
    steps = list(WorkflowStep.objects.filter(run_id=run.id).values_list("pk", flat=True))
    return WorkflowStepHistory._default_manager.filter(step_id__in=steps)


def _answer(number: int, **values: Any) -> Harm:
    return lambda run: AnswerRowFactory.create(run_id=run.id, ordinal=number, **values)


def _both(*harms: Harm) -> Harm:
    return lambda run: [harm(run) for harm in harms]


def _now() -> Any:
    return engine(DATABASE).now()


def _long_ago() -> Any:
    return _now() - LONG_AGO


HARMS: dict[str, tuple[Harm, set[str]]] = {
    "a pass without a lease": (
        lambda run: _run(status="running", due_at=_now(), pass_token="t")(run),
        {"pass-lease"},
    ),
    "a lease without a pass": (
        lambda run: _run(status="running", due_at=_now(), pass_until=_now())(run),
        {"pass-lease"},
    ),
    "inside of what ended": (lambda run: _run(pass_token="t", pass_until=_now())(run), {"terminal-run-entered"}),
    "never due": (_run(status="running"), {"stuck-run"}),
    "due although it ended": (lambda run: _run(due_at=_now())(run), {"terminal-run-due"}),
    "a step left running": (
        lambda run: _both(_step(status="running", due_at=_long_ago()), _attempt(2, status="running"))(run),
        {"abandoned-step"},
    ),
    "succeeded twice": (_attempt(1, status="succeeded"), {"succeeded-once", "retried-only-failed"}),
    "failed after it succeeded": (
        _both(_attempt(1, status="succeeded"), _attempt(2, status="failed"), _step(status="failed")),
        {"succeeded-once", "retried-only-failed"},
    ),
    "an attempt of another status": (_attempt(2, status="failed"), {"history-agrees"}),
    "no attempts at all": (
        lambda run: _attempts(run).delete(),
        {"history-agrees", "attempts-counted"},
    ),
    "a lost attempt": (
        lambda run: _attempts(run).filter(attempt=1).delete(),
        {"attempts-counted"},
    ),
    "more attempts than counted": (_step(current_attempt=1), {"attempts-counted"}),
    "over the budget": (_step(max_attempts=1), {"budget-kept"}),
    "an attempt left open": (_attempt(1, status="running"), {"retried-only-failed"}),
    "claimed for ever": (_step(claim_token="t", claimed_by="worker-1"), {"claim-over"}),
    "asks although it ended": (lambda run: _run(gate_opened_at=_now())(run), {"gate-over"}),
    "an approval of what ended": (
        _both(_step(status="running", rpc_name=APPROVAL_RPC, due_at=None), _attempt(2, status="running")),
        {"open-gate"},
    ),
    "an approval that never ends": (
        _both(
            _run(status="suspended"),
            _step(status="running", rpc_name=APPROVAL_RPC, due_at=None, data={"expiry": 10}),
            _attempt(2, status="running"),
        ),
        {"stuck-run"},
    ),
    "a trail with a gap": (_answer(1, verdict="accepted"), {"answers-counted"}),
    "two outcomes": (_both(_answer(0, verdict="accepted"), _answer(1, verdict="expired")), {"one-outcome"}),
    "an answer that nobody looks at": (
        lambda run: _both(_run(status="running", due_at=_now()), _answer(0, verdict=None))(run),
        {"forgotten-answer"},
    ),
    "time that runs backwards": (lambda run: _attempt(2, running_at=_long_ago())(run), {"time-order"}),
}


@pytest.mark.parametrize("kind", HARMS)
def test_each_violation_is_found_and_named(story: WorkflowRunHandle, kind: str) -> None:
    harm, rules = HARMS[kind]
    harm(story)

    violations = list(find_violations())
    assert {violation.rule for violation in violations} == rules
    assert {violation.run_id for violation in violations} == {story.id}

    code, out, _ = _called("check_storage")
    assert code == 1
    *lines, summary = out.splitlines()
    assert lines == [str(violation) for violation in violations]
    assert summary == f"{len(lines)} violations"
    assert all(f"run {story.id}" in line for line in lines)

    code, out, _ = _called("check_storage", "--json")
    assert code == 1
    found = [json.loads(line) for line in out.splitlines()]
    assert [(entry["rule"], entry["run_id"], entry["step_name"], entry["detail"]) for entry in found] == [
        (violation.rule, violation.run_id, violation.step_name, violation.detail) for violation in violations
    ]


def test_a_violation_reads_like_a_sentence(story: WorkflowRunHandle) -> None:
    _step(max_attempts=1)(story)
    assert _called("check_storage")[1].splitlines()[0] == f"budget-kept: run {story.id}, step 'pack': attempt 2 of 1"


@pytest.mark.parametrize("rpc_name", GATE_RPCS)
def test_a_suspended_run_may_wait_for_a_person_for_ever(story: WorkflowRunHandle, rpc_name: str) -> None:
    _both(_step(status="running", rpc_name=rpc_name, due_at=None), _attempt(2, status="running"))(story)
    _run(status="suspended", due_at=None)(story)
    assert list(find_violations()) == []


def test_a_running_step_of_an_ended_run_has_its_lease(story: WorkflowRunHandle) -> None:
    """The one that ran when its run was cancelled may end."""
    _both(_step(status="running", due_at=_now()), _attempt(2, status="running", succeeded_at=None))(story)
    assert list(find_violations()) == []


def test_only_the_runs_that_are_named_are_checked(story: WorkflowRunHandle) -> None:
    other = RunFactory.create()
    _run(due_at=_now())(story)

    assert _called("check_storage", other.id)[0] == 0
    assert _called("check_storage", other.id, story.id)[0] == 1
    assert list(find_violations(run_ids=[])) == []


def test_more_runs_than_one_batch_are_checked(db: None) -> None:
    for _ in range(BATCH + 5):
        RunFactory.create()
    WorkflowRun.objects.update(due_at=None)

    assert len(list(find_violations())) == BATCH + 5


# -- control_workflow --------------------------------------------------------------------------------------------------


@pytest.fixture
def controlled() -> str:
    """The name of a workflow with a limit."""

    @workflow(name="controlled", limits=Limits(concurrency=7))
    def controlled(flow: Flow) -> None: ...

    return "controlled"


@pytest.mark.django_db(transaction=True)
def test_a_workflow_is_paused_and_goes_on(controlled: str, service: WorkflowService) -> None:
    shown = "concurrency: 7\nconcurrency per key: none\nrate limit: none\n"
    assert _called("control_workflow", controlled) == (0, shown, "")
    assert _called("control_workflow", controlled, "--pause", "--reason", "a fire", "--by", "ada") == (
        0,
        f"controlled is paused by ada: a fire\n{shown}",
        "",
    )
    assert _called("control_workflow", controlled, "--pause")[1].startswith("controlled was paused already.\n")
    assert _called("control_workflow", controlled, "--unpause") == (0, shown, "")
    assert _called("control_workflow", controlled, "--unpause") == (0, f"controlled was not paused.\n{shown}", "")


@pytest.mark.django_db(transaction=True)
def test_limits_are_changed_and_put_back(controlled: str) -> None:
    changed = _called("control_workflow", controlled, "--concurrency", "2", "--rate-limit", "5/1m")
    assert changed == (0, "concurrency: 2\nconcurrency per key: none\nrate limit: 5/1m\n", "")
    assert _called("control_workflow", controlled, "--concurrency", "code")[1].startswith("concurrency: 7\n")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "options",
    [
        ["--concurrency", "many"],
        ["--concurrency", "0"],
        ["--rate-limit", "often"],
        ["--reason", "none"],
        ["--database", "nowhere"],
    ],
    ids=" ".join,
)
def test_what_cannot_be_set_is_refused(controlled: str, options: list[str]) -> None:
    with pytest.raises(CommandError):
        _called("control_workflow", controlled, *options)


@pytest.mark.django_db(transaction=True)
def test_a_workflow_that_nobody_knows_is_no_workflow() -> None:
    with pytest.raises(CommandError, match="Workflow not found: nobody"):
        _called("control_workflow", "nobody", "--pause")


# -- approve_run -------------------------------------------------------------------------------------------------------


@pytest.fixture
def asked(outbox: RecordingDispatcher, transactional_db: None) -> WorkflowRunHandle:
    """A run that asks for a release by somebody who did not start it."""

    @workflow
    def order(flow: Flow) -> Any:
        return flow.approval("release", approvers="not-initiator").data

    run = order.start()
    outbox.deliver()
    return run


def test_an_approval_is_answered_from_the_command_line(
    asked: WorkflowRunHandle, outbox: RecordingDispatcher, runs: WorkflowRunService
) -> None:
    user = get_user_model()._default_manager.create(username="ada")
    decision = ["--reason", "release", "--decision", '{"go": true}']

    code, out, _ = _called("approve_run", asked.id, *decision, "--by", "ada")
    assert (code, out) == (0, f"Answered; run {asked.id} goes on if the answer counts.\n")
    outbox.deliver()
    assert asked.output == {"go": True}
    (answer,) = runs.get_run_answers(asked.id)
    assert answer.decided_by == {"userId": str(user.pk), "scopes": []}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--decision", "yes"], "The decision is no JSON"),
        (["--by", "nobody"], "There is no user 'nobody'"),
        (["--database", "nowhere"], "There is no database 'nowhere'"),
        ([], "requires a signed-in user"),
    ],
)
def test_a_command_that_cannot_answer_says_why(asked: WorkflowRunHandle, options: list[str], message: str) -> None:
    with pytest.raises(CommandError, match=message):
        _called("approve_run", asked.id, "--reason", "release", "--decision", "true", *options)
    assert asked.status == "suspended"


def test_an_unknown_run_cannot_be_answered(db: None) -> None:
    with pytest.raises(CommandError, match="Workflow run not found"):
        _called("approve_run", "nobody", "--reason", "release", "--decision", "true")


# -- schedules ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def nightly(db: None, monkeypatch: pytest.MonkeyPatch) -> ScheduleService:
    """A schedule that an operator made, and no other."""
    monkeypatch.setattr(registry, "workflows", {})

    @workflow
    def report(flow: Flow, region: str) -> None: ...

    service = ScheduleService()
    service.create("nightly", "report", "0 3 * * *", timezone="Asia/Tokyo", data={"region": "south"})
    return service


def test_schedules_are_listed_with_their_next_fires(nightly: ScheduleService, outbox: RecordingDispatcher) -> None:
    code, out, _ = _called("list_schedules")
    first, *fires = out.splitlines()
    assert code == 0
    assert first == ("nightly: report at '0 3 * * *' in Asia/Tokyo (missed: latest, overlap: allow, made by operator)")
    assert len(fires) == 5
    assert all(line.startswith("  next  ") and line.endswith(" 03:00 JST") for line in fires)

    with clock.travel(timedelta(days=1)):
        WorkflowService().relay()
    lines = _called("list_schedules")[1].splitlines()
    assert lines[1].startswith("  last  ")
    assert lines[1].endswith(f", run {WorkflowRun.objects.get().pk}")


def test_schedules_are_listed_as_json(nightly: ScheduleService) -> None:
    nightly.pause("nightly")
    (line,) = _called("list_schedules", "--json")[1].splitlines()
    assert json.loads(line) == {
        "name": "nightly",
        "state": "paused",
        "workflow": "report",
        "cron": "0 3 * * *",
        "timezone": "Asia/Tokyo",
        "catch_up": "latest",
        "overlap": "allow",
        "source": "operator",
        "owner_id": None,
        "input": {"region": "south"},
        "last_fire_at": None,
        "last_run_id": None,
        "next_fires": [],
    }
    assert _called("list_schedules")[1].startswith("nightly [paused]: report")


def test_a_list_shows_what_the_code_declares_before_any_relay_has_run(nightly: ScheduleService) -> None:
    nightly.delete("nightly")
    assert _called("list_schedules") == (0, "There are no schedules.\n", "")

    @workflow(schedule="@hourly")
    def tidy_up(flow: Flow) -> None: ...

    assert _called("list_schedules")[1].startswith("tidy_up: tidy_up at '@hourly' in UTC")


def test_a_backfill_says_what_it_starts(nightly: ScheduleService) -> None:
    span = ["--from=2026-03-01", "--to=2026-03-02T03:00"]
    dry = _called("backfill_schedule", "nightly", *span, "--dry-run")[1].splitlines()
    assert [line[:33] for line in dry[:-1]] == [f"2026-03-0{day} 03:00 JST  would start" for day in (1, 2)]
    assert dry[-1] == "2 of 2 fires would start"
    assert not WorkflowRun.objects.exists()

    assert _called("backfill_schedule", "nightly", *span)[1].splitlines()[-1] == "2 of 2 fires started"
    more = _called("backfill_schedule", "nightly", span[0], "--to=2026-03-02T18:00Z")[1].splitlines()
    assert [line.split("  ")[1].rpartition(" ")[0] for line in more[:-1]] == [*["has run already:"] * 2, "started"]
    assert more[-1] == "1 of 3 fires started"
    assert WorkflowRun.objects.count() == 3


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nothing", "--from=2026-03-01", "--to=2026-03-02"], "no schedule 'nothing'"),
        (["nightly", "--from=yesterday", "--to=2026-03-02"], "'yesterday' is no time"),
        (["nightly", "--from=2026-03-02", "--to=2026-03-01"], "to a later one"),
        (["nightly", "--from=2026-03-02", "--to=2999-03-01"], "not into the future"),
        (["nightly", "--from=2026-03-02", "--to=2026-03-02", "--database=moon"], "no database 'moon'"),
    ],
)
def test_a_backfill_that_makes_no_sense_is_refused(nightly: ScheduleService, arguments: list[str], says: str) -> None:
    with pytest.raises(CommandError, match=says):
        call_command("backfill_schedule", *arguments)
