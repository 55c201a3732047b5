"""Flow control: concurrency, rates, priorities, and what a run says that waits for its turn."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from pikku_storage.db import clock
from pikku_storage.exceptions import WorkflowInputError, WorkflowNotFoundError
from pikku_storage.workflows import Limits, current_step, function, workflow
from pikku_storage.workflows.engine import admission, rules
from pikku_storage.workflows.engine.runtime import Runtime
from pikku_storage.workflows.flow import Flow
from pikku_storage.workflows.handle import WorkflowRunHandle
from pikku_storage.workflows.invariants import find_violations
from pikku_storage.workflows.models import WorkflowRun, WorkflowSlot
from pikku_storage.workflows.querysets import RunQuerySet, SlotQuerySet
from pikku_storage.workflows.runs import WorkflowRunService
from pikku_storage.workflows.service import WorkflowService
from tests.conformance.recording import RecordingDispatcher
from tests.conformance.support import MINUTE, SECOND, undeployed

pytestmark = pytest.mark.django_db(transaction=True)


def noted(log: list[Any]) -> Any:
    """A queued function that notes what it is given, so that its run is inside until the message is delivered."""

    @function(name="note", queued=True, retries=0)
    def note(entry: Any) -> None:
        log.append(entry)

    return note


@pytest.fixture
def log() -> list[Any]:
    """What the steps noted."""
    return []


@pytest.fixture
def order(log: list[Any]) -> Callable[..., Any]:
    """Makes a workflow with these options, whose only step is queued."""
    note = noted(log)

    def made(**options: Any) -> Any:
        @workflow(name="order", **options)
        def order(flow: Flow, number: int = 0, tenant: str = "x") -> int:
            flow.do("note", note, {"entry": number})
            return number

        return order

    return made


def enter(*runs: WorkflowRunHandle) -> None:
    """A worker takes the runs' first messages."""
    for run in runs:
        WorkflowService(worker="worker-1").orchestrate_workflow(run.id)


def inside(*runs: WorkflowRunHandle) -> list[WorkflowRunHandle]:
    """Those of the runs that hold a slot."""
    holders = set(WorkflowSlot.objects.values_list("run_id", flat=True))
    return [run for run in runs if run.id in holders]


def finish(run: WorkflowRunHandle) -> None:
    """A worker carries out the run's step, and with it the run."""
    WorkflowService(worker="worker-2").execute_workflow_step(run.id, "note")


def called(outbox: RecordingDispatcher) -> list[str]:
    """The runs that were sent messages since the last look."""
    return [message.run_id for message in outbox.lose_everything() if message.step_name is None]


# -- concurrency -------------------------------------------------------------------------------------------------------


def test_no_more_runs_are_inside_than_the_limit_says(order: Any, outbox: RecordingDispatcher) -> None:
    made = order(limits=Limits(concurrency=2))
    runs = [made.start({"number": number}) for number in range(4)]
    enter(*runs)

    assert inside(*runs) == runs[:2]
    assert [run.status for run in runs] == ["running"] * 4
    assert [len(run.steps()) for run in runs] == [1, 1, 0, 0]
    assert list(find_violations()) == []


def test_a_run_that_is_not_let_in_says_what_it_waits_for(order: Any) -> None:
    made = order(limits=Limits(concurrency=1))
    first, second, third = [made.start() for _ in range(3)]
    enter(first, second, third)

    waits_for = third.waits_for
    assert waits_for is not None
    lined_up_at = third.get().lined_up_at
    assert lined_up_at is not None
    assert waits_for.pop("since") == lined_up_at.isoformat()
    assert waits_for == {
        "kind": "concurrency",
        "text": "At most one run of order may be inside at once",
        "limit": 1,
        "key": None,
    }
    assert (first.queue_position, second.queue_position, third.queue_position) == (None, 1, 2)
    report = WorkflowService().get_run_status(third.id)
    assert report is not None
    assert report.waits_for == third.waits_for
    assert third.get().due_at is not None
    assert third.error is None


def test_the_end_of_a_run_calls_the_next_one_without_the_relay(order: Any, outbox: RecordingDispatcher) -> None:
    made = order(limits=Limits(concurrency=1))
    runs = [made.start({"number": number}) for number in range(5)]

    outbox.deliver()

    assert [run.status for run in runs] == ["completed"] * 5
    assert WorkflowSlot.objects.count() == 0
    assert all(run.get().line is None and run.waits_for is None for run in runs)


def test_each_end_calls_one_and_only_one(order: Any, outbox: RecordingDispatcher) -> None:
    made = order(limits=Limits(concurrency=2))
    runs = [made.start() for _ in range(6)]
    enter(*runs)
    called(outbox)

    finish(runs[0])
    assert called(outbox) == [runs[2].id]
    finish(runs[1])
    assert called(outbox) == [runs[3].id], "the one that was called already is not called again"


def test_the_oldest_of_the_highest_priority_is_next(order: Any, outbox: RecordingDispatcher, log: list[Any]) -> None:
    made = order(limits=Limits(concurrency=1))
    runs = [made.start({"number": number}, priority=priority) for number, priority in enumerate([5, 5, 9, None, 1, 9])]

    outbox.deliver()

    assert {run.status for run in runs} == {"completed"}
    assert log == [0, 2, 5, 1, 3, 4]


def test_nobody_overtakes_one_that_was_called(order: Any, outbox: RecordingDispatcher) -> None:
    made = order(limits=Limits(concurrency=1))
    first, second = made.start(), made.start()
    enter(first, second)
    finish(first)

    late = made.start()
    enter(late)
    assert inside(second, late) == []
    assert late.queue_position == 2

    enter(second)
    assert inside(second, late) == [second]


def test_each_key_has_a_limit_of_its_own(order: Any) -> None:
    made = order(limits=Limits(concurrency_per_key=1, concurrency_key=lambda tenant: tenant))
    runs = [made.start({"tenant": tenant}) for tenant in "aabba"]
    enter(*runs)

    assert inside(*runs) == [runs[0], runs[2]]
    assert runs[1].waits_for is not None
    assert runs[1].waits_for["key"] == "a"
    assert [run.queue_position for run in runs] == [None, 1, None, 1, 2]


def test_a_run_passes_the_limit_of_its_key_and_that_of_the_workflow(order: Any, outbox: RecordingDispatcher) -> None:
    limits = Limits(concurrency=2, concurrency_per_key=1, concurrency_key=lambda tenant: tenant)
    made = order(limits=limits)
    a, a_too, b, c = [made.start({"tenant": tenant}) for tenant in "aabc"]
    enter(a, a_too, b, c)

    assert WorkflowSlot.objects.filter(key=None).count() == 2
    assert [run.waits_for and run.waits_for["key"] for run in (a_too, c)] == ["a", None]
    finish(a)
    outbox.deliver()
    assert {run.status for run in (a, a_too, b, c)} == {"completed"}
    assert WorkflowSlot.objects.count() == 0


def test_a_key_with_many_runs_stands_in_the_workflows_line_with_as_many_as_its_limit(order: Any) -> None:
    limits = Limits(concurrency=1, concurrency_per_key=2, concurrency_key=lambda tenant: tenant)
    made = order(limits=limits)
    runs = [made.start({"tenant": "a"}) for _ in range(6)]
    enter(*runs)
    last = made.start({"tenant": "b"})
    enter(last)

    assert last.queue_position == 2


def test_the_key_is_computed_once_from_the_input_and_defaults(order: Any) -> None:
    asked: list[str] = []

    def key(tenant: str) -> str:
        asked.append(tenant)
        return tenant.upper()

    made = order(limits=Limits(concurrency_per_key=1, concurrency_key=key))
    run = made.start({"number": 1})
    enter(run)
    finish(run)

    assert (asked, run.get().concurrency_key) == (["x"], "X")


@pytest.mark.parametrize(
    "options",
    [
        {"limits": Limits(concurrency_per_key=1, concurrency_key=lambda number: [number])},
        {"limits": Limits(rate_limit="1/s", rate_limit_key=lambda number: 1 / number)},
        {"priority": lambda number: 77},
    ],
    ids=["no key", "raises", "no priority"],
)
def test_what_cannot_be_computed_is_refused_before_anything_is_stored(order: Any, options: Any) -> None:
    made = order(**options)

    with pytest.raises(WorkflowInputError, match="Flow control of workflow 'order'"):
        made.start()
    assert WorkflowRun.objects.count() == 0


@pytest.mark.parametrize("how", ["completed", "failed", "cancelled", "deadline", "suspended", "deleted"])
def test_a_slot_is_given_back_however_a_run_ends(how: str, outbox: RecordingDispatcher) -> None:
    @function(name="work", queued=True, retries=0)
    def work() -> None:
        if how == "failed":
            raise ValueError("no")

    @workflow(limits=Limits(concurrency=1))
    def held(flow: Flow) -> None:
        flow.do("work", work)

    service = WorkflowService(worker="worker-1")
    first, second = held.start(deadline="1h"), held.start()
    enter(first, second)
    assert inside(first, second) == [first]
    called(outbox)

    match how:
        case "completed" | "failed":
            service.execute_workflow_step(first.id, "work")
        case "cancelled":
            first.cancel()
        case "deadline":
            with clock.travel(timedelta(hours=2)):
                service.relay()
        case "suspended":
            with undeployed("work"):
                service.execute_workflow_step(first.id, "work")
        case "deleted":
            WorkflowRunService().delete_run(first.id)
            enter(second)

    outbox.lose_everything()
    enter(second)
    assert inside(first, second) == [second]
    assert list(find_violations()) == []


def test_slots_of_a_process_that_died_before_it_gave_them_back_are_found_by_the_relay(
    order: Any, outbox: RecordingDispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = order(limits=Limits(concurrency=1))
    first, second = made.start(), made.start()
    enter(first, second)
    called(outbox)
    with monkeypatch.context() as patch:
        patch.setattr(admission, "leave_for_good", lambda *args: None)
        finish(first)
    assert (first.status, inside(first)) == ("completed", [first])
    assert [violation.rule for violation in find_violations()] == ["ended-run-holds-slot"]

    WorkflowService().relay()

    assert called(outbox) == [second.id]
    enter(second)
    assert inside(first, second) == [second]


def test_whoever_finds_no_free_slot_takes_one_whose_run_is_over_or_gone(
    order: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = order(limits=Limits(concurrency=2))
    over, gone, next_one, after = [made.start() for _ in range(4)]
    enter(over, gone)
    monkeypatch.setattr(admission, "leave_for_good", lambda *args: None)
    finish(over)
    WorkflowSlot.objects.filter(run_id=gone.id).update(run_id="gone")

    enter(next_one, after)

    assert inside(over, next_one, after) == [next_one, after]


def test_a_slot_that_is_freed_while_another_run_lines_up_is_not_missed(
    order: Any, outbox: RecordingDispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = order(limits=Limits(concurrency=1))
    first, second = made.start(), made.start()
    enter(first)
    leave = RunQuerySet.leave

    def late(self: RunQuerySet, run_id: str, *args: Any, **options: Any) -> bool:
        if run_id == second.id and options.get("lines_up"):
            monkeypatch.setattr(RunQuerySet, "leave", leave)
            finish(first)
            called(outbox)
        return leave(self, run_id, *args, **options)

    monkeypatch.setattr(RunQuerySet, "leave", late)
    enter(second)

    assert called(outbox) == [second.id]


def test_a_worker_that_lost_its_run_gives_nothing_back(order: Any) -> None:
    made = order(limits=Limits(concurrency=1))
    run = made.start()
    enter(run)
    slots = WorkflowService()._runtime.slots

    assert not slots.give_back(run.id, where={"pass_token": "an older one"})
    assert inside(run) == [run]


def test_a_run_that_is_killed_is_carried_on_in_its_slot(order: Any, outbox: RecordingDispatcher) -> None:
    died: list[int] = []

    @function(name="die", retries=1, retry_delay=0)
    def die() -> None:
        if current_step().attempt == 1:
            died.append(1)
            raise KeyboardInterrupt

    @workflow(limits=Limits(concurrency=1))
    def fragile(flow: Flow) -> None:
        flow.do("die", die)

    run = fragile.start()
    with pytest.raises(KeyboardInterrupt):
        enter(run)
    assert inside(run) == [run]

    outbox.lose_everything()
    with clock.travel(2 * MINUTE):
        WorkflowService().relay()
        outbox.deliver()
    assert (run.status, WorkflowSlot.objects.count()) == ("completed", 0)


# -- waiting -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keeps", [False, True])
def test_a_sleeping_run_gives_its_slot_back_unless_it_is_to_keep_it(keeps: bool, outbox: RecordingDispatcher) -> None:
    @workflow(limits=Limits(concurrency=1, keep_while_waiting=keeps))
    def sleeper(flow: Flow) -> None:
        flow.sleep("nap", "1min")

    first, second = sleeper.start(), sleeper.start()
    enter(first)
    assert inside(first) == ([first] if keeps else [])
    enter(second)
    assert len(second.steps()) == (0 if keeps else 1)
    assert (first.waits_for or {})["kind"] == "sleep"
    assert (second.waits_for or {})["kind"] == ("concurrency" if keeps else "sleep")

    outbox.lose_everything()
    with clock.travel(2 * MINUTE):
        WorkflowService().relay()
        outbox.deliver()
        assert first.status == "completed"
    with clock.travel(4 * MINUTE):
        WorkflowService().relay()
        outbox.deliver()
    assert second.status == "completed"
    assert WorkflowSlot.objects.count() == 0


def test_a_run_that_wakes_must_be_let_in_again(outbox: RecordingDispatcher, log: list[Any]) -> None:
    note = noted(log)

    @workflow(limits=Limits(concurrency=1))
    def sleeper(flow: Flow, naps: bool) -> None:
        if naps:
            flow.sleep("nap", "1min")
        flow.do("note", note, {"entry": naps})

    first, second = sleeper.start({"naps": True}), sleeper.start({"naps": False})
    enter(first, second)
    assert inside(first, second) == [second]

    with clock.travel(2 * MINUTE):
        WorkflowService().relay_undispatched_steps()
        enter(first)
        assert inside(first, second) == [second]
        assert (first.waits_for or {})["kind"] == "concurrency"
        finish(second)
        assert first.id in called(outbox)
        enter(first)
        assert inside(first, second) == [first]


def test_what_other_runs_wait_for_is_said_as_well(outbox: RecordingDispatcher) -> None:
    @function(name="fail", retries=1, retry_delay="1min")
    def fail() -> None:
        raise ValueError("no")

    @function(name="away", queued=True)
    def away() -> None: ...

    @workflow
    def waiting(flow: Flow, how: str) -> None:
        match how:
            case "sleep":
                flow.sleep("nap", "1h")
            case "retry":
                flow.do("fail", fail)
            case "steps":
                flow.map("away", away, [{}] * 5)
            case "code":
                flow.do("missing", "no such function")

    found = {}
    for how in ("sleep", "retry", "steps", "code"):
        run = waiting.start({"how": how})
        enter(run)
        found[how] = run.waits_for or {}

    assert {how: waits["kind"] for how, waits in found.items()} == {how: how for how in found}
    assert found["sleep"]["step"] == "nap"
    assert found["retry"]["step"] == "fail"
    assert found["steps"]["text"] == "Waits for away[0], away[1], away[2] and 2 more"
    assert "no such function" in found["code"]["text"]
    with undeployed("waiting"):
        run = WorkflowService().get_handle(WorkflowService().create_run("waiting", {}))
        with pytest.raises(WorkflowNotFoundError):
            enter(run)
    assert (run.waits_for or {})["kind"] == "code"


@pytest.mark.parametrize("kind", ["approval", "resume"])
def test_a_run_that_waits_for_a_person_gives_its_slot_back_and_must_be_let_in_again(
    kind: str, outbox: RecordingDispatcher, log: list[Any]
) -> None:
    note = noted(log)

    @workflow(limits=Limits(concurrency=1))
    def order(flow: Flow, asks: bool) -> None:
        if asks and kind == "approval":
            flow.approval("release", expiry="1h")
        elif asks:
            flow.suspend("release")
        flow.do("note", note, {"entry": asks})

    first, second = order.start({"asks": True}), order.start({"asks": False})
    enter(first, second)
    assert inside(first, second) == [second]
    (gate,) = first.steps()
    waits_for = first.waits_for or {}
    assert (waits_for["kind"], waits_for["reason"]) == (kind, "release")
    assert waits_for["since"] == gate.created_at.isoformat()
    ends = (gate.created_at + 60 * MINUTE).isoformat() if kind == "approval" else None
    assert waits_for.get("until") == ends

    if kind == "approval":
        WorkflowService().approve_step(first.id, "release", True)
    else:
        WorkflowService().resume_workflow(first.id)
    assert (first.status, first.waits_for) == ("running", None)
    enter(first)
    assert inside(first, second) == [second]
    assert (first.waits_for or {})["kind"] == "concurrency"
    finish(second)
    assert first.id in called(outbox)
    enter(first)
    finish(first)
    assert first.status == "completed"
    assert list(find_violations()) == []


def test_a_gate_that_the_code_has_no_more_keeps_no_slot(outbox: RecordingDispatcher) -> None:
    asks = True

    @workflow(limits=Limits(concurrency=1))
    def order(flow: Flow) -> None:
        if asks:
            flow.approval("release")
        flow.sleep("nap", "1min")

    run = order.start()
    enter(run)
    asks = False
    WorkflowService().resume_workflow(run.id)
    enter(run)
    assert inside(run) == []
    assert (run.waits_for or {})["kind"] == "sleep"


# -- changed without a restart -----------------------------------------------------------------------------------------


def test_a_raised_limit_lets_the_next_ones_in_at_once(order: Any, outbox: RecordingDispatcher) -> None:
    made = order(limits=Limits(concurrency=1))
    runs = [made.start() for _ in range(5)]
    enter(*runs)
    called(outbox)

    WorkflowService().set_limits("order", concurrency=3, by="ada")

    assert called(outbox) == [run.id for run in runs[1:3]]
    enter(*runs)
    assert inside(*runs) == runs[:3]
    control = WorkflowService().get_workflow_control("order")
    assert control is not None
    assert (control.concurrency, control.rate_limit, control.updated_by) == (3, None, "ada")


def test_a_lowered_limit_drains(order: Any, outbox: RecordingDispatcher) -> None:
    made = order(limits=Limits(concurrency=4))
    runs = [made.start() for _ in range(8)]
    enter(*runs)
    WorkflowService().set_limits("order", concurrency=2)

    finish(runs[0])
    finish(runs[1])
    enter(*runs[4:])
    assert inside(*runs) == runs[2:4]

    finish(runs[2])
    enter(*runs[4:])
    assert inside(*runs) == runs[3:5]


def test_the_codes_limit_comes_back(order: Any) -> None:
    made = order(limits=Limits(concurrency=1))
    service = WorkflowService()
    service.set_limits("order", concurrency=2, rate_limit="5/1m")
    service.set_limits("order", concurrency=None)
    runs = [made.start() for _ in range(2)]
    enter(*runs)

    assert inside(*runs) == runs[:1]
    control = service.get_workflow_control("order")
    assert control is not None
    assert (control.concurrency, control.rate_limit) == (None, "5/1m")


def test_a_process_that_remembers_an_older_limit_refuses_nobody_for_it(order: Any) -> None:
    made = order(limits=Limits(concurrency=1))
    runs = [made.start() for _ in range(2)]
    enter(runs[0])
    remembered = dict(rules._read)
    WorkflowService().set_limits("order", concurrency=2)
    rules._read.update(remembered)

    enter(runs[1])

    assert inside(*runs) == runs


def test_a_workflow_without_limits_can_be_given_some(order: Any) -> None:
    made = order()
    WorkflowService().set_limits("order", concurrency=1)
    runs = [made.start() for _ in range(2)]
    enter(*runs)

    assert inside(*runs) == runs[:1]


@pytest.mark.parametrize(
    "limits",
    [{"concurrency": 0}, {"concurrency": True}, {"concurrency_per_key": 10_001}, {"rate_limit": "many"}],
    ids=str,
)
def test_limits_that_are_none_are_refused(order: Any, limits: dict[str, Any]) -> None:
    order()
    with pytest.raises(WorkflowInputError, match="Limits of workflow 'order'"):
        WorkflowService().set_limits("order", **limits)
    assert WorkflowService().get_workflow_control("order") is None


def test_a_workflow_that_nobody_knows_is_refused() -> None:
    with pytest.raises(WorkflowNotFoundError):
        WorkflowService().set_limits("nobody", concurrency=1)
    with pytest.raises(WorkflowNotFoundError):
        WorkflowService().pause_workflow("nobody")


# -- rates -------------------------------------------------------------------------------------------------------------


def test_no_more_runs_begin_in_a_period_than_the_limit_says(order: Any, outbox: RecordingDispatcher) -> None:
    made = order(limits=Limits(rate_limit="2/1m"))
    runs = [made.start() for _ in range(5)]
    enter(*runs)
    begun = [len(run.steps()) for run in runs]
    assert begun == [1, 1, 0, 0, 0]
    waits_for = runs[2].waits_for or {}
    assert (waits_for["kind"], waits_for["limit"]) == ("rate_limit", "2/1m")
    assert runs[2].queue_position == 1

    # The first of them is due when the oldest start is a minute old; the others later.
    due = [run.get().due_at for run in runs[2:]]
    assert due[0] is not None
    admitted_at = runs[0].get().admitted_at
    assert admitted_at is not None
    assert abs(due[0] - admitted_at - MINUTE) < SECOND
    outbox.lose_everything()
    with clock.travel(MINUTE + SECOND):
        WorkflowService().relay()
        outbox.deliver()
        assert [len(run.steps()) for run in runs] == [1, 1, 1, 1, 0]
    with clock.travel(2 * MINUTE + 2 * SECOND):
        WorkflowService().relay()
        outbox.deliver()
        assert [run.status for run in runs] == ["completed"] * 5


def test_each_key_has_a_rate_of_its_own(order: Any) -> None:
    made = order(limits=Limits(rate_limit="1/1h", rate_limit_key=lambda tenant: tenant))
    runs = [made.start({"tenant": tenant}) for tenant in "aab"]
    enter(*runs)

    assert [len(run.steps()) for run in runs] == [1, 0, 1]


def test_a_run_that_waits_for_its_turn_holds_no_slot(order: Any) -> None:
    limits = Limits(concurrency=2, rate_limit="1/1h", rate_limit_key=lambda tenant: tenant)
    made = order(limits=limits)
    runs = [made.start({"tenant": tenant}) for tenant in "aab"]
    enter(*runs)

    assert inside(*runs) == [runs[0], runs[2]]


def test_a_rate_counts_a_run_once(outbox: RecordingDispatcher) -> None:
    @workflow(limits=Limits(rate_limit="1/1h"))
    def sleeper(flow: Flow) -> None:
        flow.sleep("nap", "1min")

    run = sleeper.start()
    enter(run)
    with clock.travel(2 * MINUTE):
        WorkflowService().relay()
        outbox.deliver()
    assert run.status == "completed"


def test_a_raised_rate_holds_at_once(order: Any, outbox: RecordingDispatcher) -> None:
    made = order(limits=Limits(rate_limit="1/1h"))
    runs = [made.start() for _ in range(4)]
    enter(*runs)
    called(outbox)

    WorkflowService().set_limits("order", rate_limit="3/1h")

    assert called(outbox)[:2] == [run.id for run in runs[1:3]]
    enter(*runs[1:])
    assert [len(run.steps()) for run in runs] == [1, 1, 1, 0]


def test_rows_of_keys_that_are_not_used_any_more_go(order: Any) -> None:
    from pikku_storage.workflows.models import WorkflowRate

    made = order(limits=Limits(rate_limit="1/1m", rate_limit_key=lambda tenant: tenant))
    enter(*[made.start({"tenant": str(number)}) for number in range(3)])
    assert WorkflowRate.objects.count() == 3
    with clock.travel(2 * MINUTE):
        enter(made.start({"tenant": "later"}))
    assert list(WorkflowRate.objects.values_list("key", flat=True)) == ["later"]


# -- inline ------------------------------------------------------------------------------------------------------------


def test_an_inline_run_waits_to_be_let_in(order: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made = order(limits=Limits(concurrency=1))
    first = made.start()
    enter(first)
    looked: list[float] = []

    def sleep(runtime: Runtime, seconds: float) -> None:
        looked.append(seconds)
        if len(looked) == 3:
            finish(first)

    monkeypatch.setattr(Runtime, "sleep", sleep)
    second = made.run({"number": 2})

    assert (second.status, second.output, len(looked)) == ("completed", 2, 3)


def test_an_inline_run_waits_no_longer_than_its_deadline(order: Any) -> None:
    made = order(limits=Limits(concurrency=1))
    enter(made.start())

    run = made.run(deadline="50ms")

    assert run.status == "failed"
    assert (run.error or {})["code"] == "DEADLINE_EXCEEDED"


def test_no_message_takes_an_inline_run_away(order: Any, outbox: RecordingDispatcher) -> None:
    """It looks by itself, and is there to hand over to a worker only if its process dies."""
    made = order(limits=Limits(concurrency=1))
    first = made.start()
    enter(first)
    inline = WorkflowRun.objects.create(
        workflow="order", inline=True, created_at=first.get().created_at, updated_at=first.get().created_at
    )
    WorkflowService().orchestrate_workflow(inline.pk)
    called(outbox)
    finish(first)
    assert called(outbox) == []


# -- what it costs -----------------------------------------------------------------------------------------------------


def test_a_slot_that_was_taken_meanwhile_costs_another_look(order: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made = order(limits=Limits(concurrency=3))
    first, second = made.start(), made.start()
    enter(first)
    held, stale = SlotQuerySet.held, [True]

    def seen(self: SlotQuerySet, scopes: Any) -> Any:
        return [] if stale and stale.pop() else held(self, scopes)

    monkeypatch.setattr(SlotQuerySet, "held", seen)
    monkeypatch.setattr("random.choice", lambda numbers: numbers[0])
    enter(second)
    assert inside(first, second) == [first, second]
