"""Flow control where runs are made by other runs: sub-workflows, and what operators make of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from typing import Any, TypeAlias

import pytest

from pikku_storage.db import clock
from pikku_storage.exceptions import WorkflowStepFailedError
from pikku_storage.workflows import Limits, function, workflow
from pikku_storage.workflows.engine import admission
from pikku_storage.workflows.flow import Flow
from pikku_storage.workflows.handle import WorkflowRunHandle
from pikku_storage.workflows.invariants import find_violations
from pikku_storage.workflows.models import WorkflowRun, WorkflowSlot
from pikku_storage.workflows.service import WorkflowService
from tests.conformance.recording import RecordingDispatcher
from tests.conformance.support import MINUTE, SECOND, step_names, step_of

pytestmark = pytest.mark.django_db(transaction=True)

HOUR = timedelta(hours=1)
Travel: TypeAlias = Callable[[timedelta], None]
ONE = Limits(concurrency=1)
ONE_KEPT = Limits(concurrency=1, keep_while_waiting=True)


@pytest.fixture(autouse=True)
def _sound(service: WorkflowService) -> Iterator[None]:
    """Whatever a test does to them, the runs stay sound, and no slot is held by one that has ended."""
    yield
    assert list(find_violations()) == []
    assert WorkflowSlot.objects.exclude(run__status__in=["running", "suspended"]).count() == 0


@pytest.fixture
def travel() -> Iterator[Travel]:
    """Puts the clock on for the rest of the test."""
    with ExitStack() as stack:
        yield lambda by: stack.enter_context(clock.travel(by))


@pytest.fixture
def counted() -> list[int]:
    """How many slots were held at each look of `look`."""
    return []


@pytest.fixture
def look(counted: list[int]) -> Any:
    """A queued function that counts the slots."""

    @function(name="look", queued=True, retries=0)
    def look() -> None:
        counted.append(WorkflowSlot.objects.count())

    return look


def countdown(limits: Limits, look: Any) -> Any:
    """A workflow that calls itself, as often as it is told."""

    @workflow(name="countdown", limits=limits)
    def countdown(flow: Flow, left: int) -> int:
        flow.do("look", look)
        below = flow.do("below", countdown, {"left": left - 1}) if left else 0
        flow.do("look again", look)
        return int(below) + 1

    return countdown


# -- slots -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limits", [ONE, ONE_KEPT], ids=["gives back", "keeps"])
def test_a_workflow_that_calls_itself_does_not_wait_for_its_own_slot(
    limits: Limits, look: Any, counted: list[int], outbox: RecordingDispatcher
) -> None:
    run = countdown(limits, look).start({"left": 3})
    outbox.deliver()
    assert (run.status, run.output) == ("completed", 4)
    assert counted == [1] * 8, "and it was alone all the time"
    assert WorkflowSlot.objects.count() == 0


@pytest.mark.parametrize("limits", [ONE, ONE_KEPT], ids=["gives back", "keeps"])
def test_nor_does_it_inline(limits: Limits, look: Any) -> None:
    run = countdown(limits, look).run({"left": 3}, deadline="10s")
    assert (run.status, run.output) == ("completed", 4)
    assert WorkflowSlot.objects.count() == 0


def test_two_workflows_that_call_each_other_do_not_wait_for_each_other(
    outbox: RecordingDispatcher, travel: Travel
) -> None:
    """Each holds the slot that the other one's child needs, until it waits for its own child."""

    @workflow(name="left", limits=ONE)
    def left(flow: Flow, calls: bool) -> str:
        flow.sleep("nap", "1s")
        return f"left of {flow.do('right', right, {'calls': False})}" if calls else "left"

    @workflow(name="right", limits=ONE)
    def right(flow: Flow, calls: bool) -> str:
        flow.sleep("nap", "1s")
        return f"right of {flow.do('left', left, {'calls': False})}" if calls else "right"

    runs = left.start({"calls": True}), right.start({"calls": True})
    for _ in range(6):
        outbox.deliver()
        travel(SECOND)
        WorkflowService().relay()
    outbox.deliver()
    assert [run.output for run in runs] == ["left of right", "right of left"]


def test_a_parent_that_waits_for_its_child_lets_others_in(look: Any, outbox: RecordingDispatcher) -> None:
    @workflow
    def rest(flow: Flow) -> None:
        flow.sleep("rest", "1h")

    @workflow(name="parent", limits=ONE)
    def parent(flow: Flow) -> None:
        flow.do("rest", rest)

    first, second = parent.start(), parent.start()
    outbox.deliver()
    assert [len(run.children()) for run in (first, second)] == [1, 1]
    assert WorkflowSlot.objects.count() == 0


def test_a_child_that_is_not_let_in_is_cancelled_with_its_parent(look: Any, outbox: RecordingDispatcher) -> None:
    @workflow(name="child", limits=ONE)
    def child(flow: Flow) -> None:
        flow.do("look", look)

    @workflow(name="parent")
    def parent(flow: Flow) -> None:
        flow.do("child", child)

    holder, waiting, last = (parent.start() for _ in range(3))
    for run in (holder, waiting, last):
        WorkflowService(worker="worker-1").orchestrate_workflow(run.id)
    [inside], [lined_up], [behind] = (run.children() for run in (holder, waiting, last))
    assert [each.queue_position for each in (inside, lined_up, behind)] == [None, 1, 2]

    waiting.cancel("stop")
    assert (lined_up.status, lined_up.waits_for, behind.queue_position) == ("cancelled", None, 1)
    holder.cancel("stop")
    assert inside.status == "cancelled"
    outbox.deliver()
    assert last.status == "completed", "the cancelled child's slot was given on"


# -- priorities and deadlines ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("own", "has"), [(None, 8), (2, 2)], ids=["its parent's", "its own"])
def test_a_child_is_as_urgent_as_its_parent_unless_it_says_so(
    own: int | None, has: int, outbox: RecordingDispatcher
) -> None:
    @workflow(priority=own)
    def child(flow: Flow) -> None:
        flow.sleep("nap", "1h")

    @workflow
    def parent(flow: Flow) -> None:
        flow.do("child", child)

    run = parent.start(priority=8)
    outbox.deliver()
    assert run.children()[0].get().priority == has


@pytest.fixture
def late() -> Any:
    """Makes a parent and its child with these deadlines; the child takes two hours."""

    def made(of_parent: str | None, of_child: str | None) -> Any:
        @workflow(deadline=of_child)
        def child(flow: Flow) -> None:
            flow.sleep("nap", "2h")

        @workflow(deadline=of_parent)
        def parent(flow: Flow) -> str:
            try:
                flow.do("child", child)
            except WorkflowStepFailedError as failure:
                return str(failure.code)
            return "in time"

        return parent

    return made


@pytest.mark.parametrize(
    ("of_parent", "of_child", "ends"),
    [("1h", "30min", "child"), ("1h", "90min", "parent"), ("1h", None, "parent"), (None, "1h", "child")],
)
def test_the_earlier_deadline_of_the_two_holds_for_a_child(
    of_parent: str | None, of_child: str | None, ends: str, late: Any, outbox: RecordingDispatcher
) -> None:
    run = late(of_parent, of_child).start()
    outbox.deliver()
    [child] = run.children()
    child_ends = child.get().deadline_at
    assert child_ends is not None
    if ends == "parent":
        assert child_ends == run.get().deadline_at
    else:
        assert child_ends == child.get().created_at + (HOUR if of_parent is None else HOUR / 2)


def test_a_child_whose_time_is_over_fails_its_step(
    late: Any, outbox: RecordingDispatcher, service: WorkflowService, travel: Travel
) -> None:
    run = late(None, "1h").start()
    outbox.deliver()
    travel(HOUR + SECOND)
    service.relay()
    assert (run.children()[0].error or {})["code"] == "DEADLINE_EXCEEDED"
    outbox.deliver()
    assert (run.status, run.output) == ("completed", "DEADLINE_EXCEEDED")


@pytest.mark.parametrize("by", ["relay", "message"])
def test_a_parent_whose_time_is_over_takes_its_children_along(
    by: str, outbox: RecordingDispatcher, service: WorkflowService, travel: Travel
) -> None:
    @workflow
    def child(flow: Flow) -> None:
        flow.sleep("nap", "2h")

    @workflow
    def parent(flow: Flow) -> None:
        flow.do("child", child)

    run = parent.start(deadline="1h")
    outbox.deliver()
    WorkflowRun.objects.filter(parent_run_id=run.id).update(deadline_at=None)
    travel(HOUR + SECOND)
    if by == "relay":
        service.relay()
    else:
        service.orchestrate_workflow(run.id)
    assert (run.error or {})["code"] == "DEADLINE_EXCEEDED"
    assert run.children()[0].status == "cancelled"


# -- pauses ------------------------------------------------------------------------------------------------------------


def test_a_paused_parent_begins_no_child(outbox: RecordingDispatcher, service: WorkflowService) -> None:
    @workflow
    def child(flow: Flow) -> str:
        return "done"

    @workflow(name="parent")
    def parent(flow: Flow) -> Any:
        flow.do("pause", lambda: service.pause_workflow("parent"))
        return flow.do("child", child)

    run = parent.start()
    outbox.deliver()
    assert (run.status, step_names(run.id)) == ("running", ["pause"])
    assert (run.waits_for or {})["kind"] == "paused"
    service.unpause_workflow("parent")
    outbox.deliver()
    assert run.output == "done"


# -- what operators do -------------------------------------------------------------------------------------------------


@pytest.fixture
def per_tenant(look: Any) -> Any:
    """A workflow with keys, which is inside until its message is delivered."""

    @workflow(
        name="per_tenant",
        limits=Limits(
            concurrency_per_key=1,
            concurrency_key=lambda tenant: tenant,
            rate_limit="100/1h",
            rate_limit_key=lambda tenant: tenant,
        ),
    )
    def per_tenant(flow: Flow, tenant: str) -> str:
        flow.do("look", look)
        return tenant

    return per_tenant


@pytest.mark.parametrize("made_by", ["retry", "fork", "rerun"])
def test_what_is_made_of_a_run_takes_part_as_if_it_had_been_started(
    made_by: str, per_tenant: Any, outbox: RecordingDispatcher, service: WorkflowService, travel: Travel
) -> None:
    run = per_tenant.start({"tenant": "a"}, priority=8, deadline="1h")
    service.orchestrate_workflow(run.id)
    run.cancel("stop")
    blocker = per_tenant.start({"tenant": "a"}, priority=9)
    service.orchestrate_workflow(blocker.id)
    travel(MINUTE)

    copy = {
        "retry": lambda: service.retry_run(run.id),
        "fork": lambda: service.fork_run(run.id, "look"),
        "rerun": lambda: service.rerun_run(run.id),
    }[made_by]()
    stored = copy.get()
    assert (stored.priority, stored.concurrency_key, stored.rate_limit_key) == (8, "a", "a")
    assert stored.deadline_at is not None
    assert abs(stored.deadline_at - stored.created_at - HOUR) < SECOND
    service.orchestrate_workflow(copy.id)
    assert copy.queue_position == 1
    outbox.deliver()
    assert copy.output == "a"


@pytest.mark.parametrize("made_by", ["fork", "rerun"])
def test_other_data_means_other_keys(
    made_by: str, per_tenant: Any, outbox: RecordingDispatcher, service: WorkflowService
) -> None:
    run = per_tenant.start({"tenant": "a"})
    outbox.deliver()
    new = {"tenant": "b"}
    copy = service.fork_run(run.id, "look", new) if made_by == "fork" else service.rerun_run(run.id, new)
    assert (copy.get().concurrency_key, copy.get().rate_limit_key) == ("b", "b")


def undoable(**options: Any) -> tuple[Any, list[str]]:
    """A workflow that books and then sleeps; what was undone is noted."""
    undone: list[str] = []

    @function(name="unbook")
    def unbook(**_: Any) -> None:
        undone.append("booked")

    @function(name="book", retries=0)
    def book() -> None: ...

    @workflow(name="booking", **options)
    def booking(flow: Flow) -> None:
        flow.do("book", book, on_error=unbook)
        flow.sleep("nap", "2h")

    return booking, undone


def test_a_run_that_was_never_let_in_is_cancelled_without_waiting_for_its_turn(
    outbox: RecordingDispatcher, service: WorkflowService
) -> None:
    booking, undone = undoable(limits=ONE_KEPT)
    inside, waiting = booking.start(), booking.start()
    outbox.deliver()
    assert waiting.queue_position == 1
    assert service.cancel_workflow(waiting.id, "stop", compensate=True)
    outbox.deliver()
    assert (waiting.status, waiting.queue_position, undone) == ("cancelled", None, [])

    assert service.cancel_workflow(inside.id, "stop", compensate=True)
    outbox.deliver()
    assert (inside.status, undone) == ("cancelled", ["booked"])
    assert WorkflowSlot.objects.count() == 0


def test_what_is_being_undone_has_no_deadline(
    outbox: RecordingDispatcher, service: WorkflowService, travel: Travel
) -> None:
    booking, undone = undoable(deadline="1h")
    run = booking.start()
    outbox.deliver()
    service.cancel_workflow(run.id, "stop", compensate=True)
    outbox.lose_everything()
    travel(HOUR + SECOND)
    service.relay()
    outbox.deliver()
    assert (run.status, undone) == ("cancelled", ["booked"])


def _end_without_giving_back(monkeypatch: pytest.MonkeyPatch, run: WorkflowRunHandle) -> None:
    """As a process that dies in between."""
    with monkeypatch.context() as patched:
        patched.setattr(admission, "leave_for_good", lambda runtime, run, run_id: None)
        run.cancel("stop")
    assert WorkflowSlot.objects.filter(run_id=run.id).count() == 1


@pytest.mark.parametrize("how", ["delete", "delete after a crash", "prune after a crash"])
def test_a_run_that_is_deleted_leaves_no_slot_behind(
    how: str,
    per_tenant: Any,
    outbox: RecordingDispatcher,
    service: WorkflowService,
    runs: Any,
    monkeypatch: pytest.MonkeyPatch,
    travel: Travel,
) -> None:
    holder, waiting = (per_tenant.start({"tenant": "a"}) for _ in range(2))
    for run in (holder, waiting):
        service.orchestrate_workflow(run.id)
    outbox.lose_everything()
    if how != "delete":
        _end_without_giving_back(monkeypatch, holder)
        outbox.lose_everything()
    if how == "prune after a crash":
        travel(MINUTE)
        assert service.prune_runs("30s", statuses=["cancelled"]).deleted == 1
    else:
        assert runs.delete_run(holder.id)
    assert WorkflowSlot.objects.count() == 0
    outbox.deliver()
    assert step_of(waiting.id, "look").status == "succeeded", "whoever waited was called"
