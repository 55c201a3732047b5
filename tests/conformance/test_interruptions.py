"""The database fails at one statement, whichever that is: no run fails for it, and nothing is lost or done twice."""

from __future__ import annotations

import itertools
import logging
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from django.db import InterfaceError, OperationalError, transaction

from pikku_storage.db import clock, engine
from pikku_storage.exceptions import FinalError, WorkflowApprovalResolvedError, WorkflowStepFailedError
from pikku_storage.ids import child_run_id, invocation_id
from pikku_storage.workflows import current_step, function, graph, node, ref, trigger, workflow
from pikku_storage.workflows.definitions import BaseWorkflow, WorkflowDefinition
from pikku_storage.workflows.engine import runtime, versions
from pikku_storage.workflows.flow import Flow
from pikku_storage.workflows.handle import WorkflowRunHandle
from pikku_storage.workflows.invariants import find_violations
from pikku_storage.workflows.querysets import StepQuerySet
from pikku_storage.workflows.runs import WorkflowRunService
from pikku_storage.workflows.service import WorkflowService
from tests.conformance.failing import WAYS, Way, failing
from tests.conformance.recording import RecordingDispatcher
from tests.conformance.support import DATABASE, MINUTE, attempts_of, connection, needs_transactions, outcomes, step_of

pytestmark = pytest.mark.django_db(transaction=True)

POLICY: dict[str, Any] = {"retries": 3, "retry_delay": 0}


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Writes that must not be lost are tried again at once."""
    monkeypatch.setattr(runtime, "_PAUSES", (0.0,) * 3)


@dataclass
class Books:
    """What the steps did to the world, and how often they were asked to."""

    entries: dict[str, Any] = field(default_factory=dict)
    calls: Counter[tuple[str, int]] = field(default_factory=Counter)

    def enter(self, what: Any) -> Any:
        """An effect with an idempotency key, as the documentation teaches."""
        step = current_step()
        self.calls[step.step_name, step.attempt] += 1
        return self.entries.setdefault(step.invocation_id, what)


@dataclass
class Story:
    """A workflow, and what it comes to however it is interrupted."""

    definition: BaseWorkflow
    output: Any
    effects: set[str]
    """The names of the steps that do something; `ship/pack` is the step `pack` of the run that does the step `ship`."""
    state: dict[str, Any] = field(default_factory=dict)


def _plain(books: Books) -> Story:
    @function(**POLICY)
    def pack(parcel: int) -> Any:
        return books.enter(parcel)

    @workflow
    def order(flow: Flow) -> Any:
        flow.set_state("stage", "packing")
        packed = [flow.do("pack", pack, {"parcel": 7}), flow.do("weigh", lambda: books.enter(3), **POLICY)]
        flow.set_state("stage", "packed")
        return packed

    return Story(order, [7, 3], {"pack", "weigh"}, {"stage": "packed"})


def _tried_again(books: Books) -> Story:
    @function(**POLICY)
    def pack() -> Any:
        if current_step().attempt == 1:
            raise ValueError("no box")
        return books.enter("packed")

    @workflow
    def order(flow: Flow) -> Any:
        return flow.do("pack", pack)

    return Story(order, "packed", {"pack"})


def _compensated(books: Books) -> Story:
    @function(**POLICY)
    def refund(error: Any, input: Any, invocation_id: str) -> Any:
        return books.enter(["refunded", input["amount"]])

    @function(**POLICY)
    def charge(amount: int) -> None:
        books.enter(amount)
        raise FinalError("no funds")

    @workflow
    def order(flow: Flow) -> Any:
        try:
            flow.do("charge", charge, {"amount": 5}, on_error=refund)
        except WorkflowStepFailedError:
            return "not paid"

    return Story(order, "not paid", {"charge", "charge:onError"})


def _queued(books: Books) -> Story:
    @function(queued=True, **POLICY)
    def pack() -> Any:
        return books.enter("packed")

    @workflow
    def order(flow: Flow) -> Any:
        return flow.do("pack", pack)

    return Story(order, "packed", {"pack"})


def _fanned_out(books: Books) -> Story:
    @function(**POLICY)
    def pack(parcel: int) -> Any:
        return books.enter(parcel)

    @workflow
    def order(flow: Flow) -> Any:
        return flow.map("pack", pack, [1, 2])

    return Story(order, [1, 2], {"pack[0]", "pack[1]"})


def _asleep(books: Books) -> Story:
    @workflow
    def order(flow: Flow) -> Any:
        flow.sleep("rest", 1)
        return flow.do("wake", lambda: books.enter("awake"), **POLICY)

    return Story(order, "awake", {"wake"})


def _child(books: Books) -> Story:
    @workflow
    def ship(flow: Flow, parcel: int) -> Any:
        return flow.do("pack", lambda: books.enter(parcel), **POLICY)

    @workflow
    def order(flow: Flow) -> Any:
        return [flow.do("ship", ship, {"parcel": 7}), flow.do("bill", lambda: books.enter("billed"), **POLICY)]

    return Story(order, [7, "billed"], {"ship/pack", "bill"})


def _sleeping_child(books: Books) -> Story:
    @workflow
    def ship(flow: Flow) -> Any:
        flow.sleep("rest", 1)
        return flow.do("pack", lambda: books.enter("packed"), **POLICY)

    @workflow
    def order(flow: Flow) -> Any:
        return flow.do("ship", ship)

    return Story(order, "packed", {"ship/pack"})


def _children(books: Books) -> Story:
    @workflow
    def ship(flow: Flow, parcel: int) -> Any:
        return flow.do(f"pack {parcel}", lambda: books.enter(parcel), **POLICY)

    @workflow
    def order(flow: Flow) -> Any:
        return flow.map("ship", ship, [1, 2])

    return Story(order, [1, 2], {"ship[0]/pack 1", "ship[1]/pack 2"})


def _failed_child(books: Books) -> Story:
    @function(**POLICY)
    def refund(error: Any, input: Any, invocation_id: str) -> Any:
        return books.enter(error["message"])

    @workflow
    def charge(flow: Flow) -> None:
        flow.do("ask", lambda: books.enter("asked"), **POLICY)
        raise FinalError("no funds")

    @workflow
    def order(flow: Flow) -> Any:
        try:
            flow.do("charge", charge, on_error=refund)
        except WorkflowStepFailedError as failure:
            return str(failure)

    return Story(order, "no funds", {"charge/ask", "charge:onError"})


def _child_tried_again(books: Books) -> Story:
    """Whose second attempt is another run, of which the first one's steps are no part."""

    @workflow
    def ship(flow: Flow) -> Any:
        first, second = (child_run_id(str(flow._replay.run.wire["parentStepId"]), attempt) for attempt in (1, 2))
        if flow.run_id == first:
            raise ValueError("no van")
        assert flow.run_id == second
        return flow.do("pack", lambda: books.enter("packed"), **POLICY)

    @workflow
    def order(flow: Flow) -> Any:
        return flow.do("ship", ship, retries=1, retry_delay=0)

    return Story(order, "packed", {"ship/pack"})


def _drawn_children(books: Books) -> Story:
    @workflow
    def ship(flow: Flow, parcel: int) -> Any:
        return flow.do(f"pack {parcel}", lambda: books.enter(parcel), **POLICY)

    nodes = {
        "first": node(ship, input={"parcel": 1}),
        "rest": node(ship, for_each=trigger("rest", default=[2])),
    }
    definition = graph("order", entry=["first", "rest"], nodes=nodes, output=[ref("first"), ref("rest")])
    return Story(definition, [1, [2]], {"first/pack 1", "rest[0]/pack 2"})


def _asked(books: Books) -> Story:
    """A step answers the approval that follows it."""

    @function(**POLICY)
    def answer() -> None:
        with suppress(WorkflowApprovalResolvedError):
            WorkflowService().approve_step(current_step().run_id, "release", "go", by="ada")

    @workflow
    def order(flow: Flow) -> Any:
        flow.do("answer", answer)
        decided = flow.approval("release", approvers="not-initiator", expiry="10h")
        return flow.do("pack", lambda: books.enter([decided.data, decided.decided_by]), **POLICY)

    return Story(order, ["go", "ada"], {"pack"})


def _drawn(books: Books) -> Story:
    @function(**POLICY)
    def list_parcels(parcels: list[int]) -> Any:
        current_step().branch("some")
        return books.enter(parcels)

    @function(**POLICY)
    def pack(parcel: int) -> Any:
        return books.enter(parcel)

    @function(**POLICY)
    def weigh(parcels: list[int]) -> Any:
        return books.enter(sum(parcels))

    definition = graph(
        "order",
        entry="list",
        nodes={
            "list": node(list_parcels, input={"parcels": [1, 2]}, next={"some": "pack", "none": ()}),
            "pack": node(pack, for_each=ref("list"), next="weigh"),
            "weigh": node(weigh, input={"parcels": ref("pack")}),
        },
        output=ref("weigh"),
    )
    return Story(definition, 3, {"list", "pack[0]", "pack[1]", "weigh"})


STORIES: dict[str, Callable[[Books], Story]] = {
    "plain": _plain,
    "tried again": _tried_again,
    "compensated": _compensated,
    "queued": _queued,
    "fanned out": _fanned_out,
    "asleep": _asleep,
    "asked": _asked,
    "drawn": _drawn,
}
FAMILIES: dict[str, Callable[[Books], Story]] = {
    "child": _child,
    "sleeping child": _sleeping_child,
    "children": _children,
    "failed child": _failed_child,
    "child tried again": _child_tried_again,
    "drawn children": _drawn_children,
}
CASES: list[tuple[str, str, Way]] = [
    *((name, "inline", way) for name in ("plain", "tried again", "compensated", "asleep", "drawn") for way in WAYS),
    *((name, "worker", way) for name in STORIES for way in WAYS),
    *((name, "relayed", way) for name in ("queued", "fanned out", "asleep") for way in WAYS),
    # How a single write is taken is shown by now: here it is what comes between one run and the other.
    *((name, "worker", "down") for name in FAMILIES),
    *((name, "worker", "unanswered") for name in ("child", "children")),
    *((name, "relayed", "down") for name in ("child", "children")),
    ("child", "inline", "down"),
]
STORIES |= FAMILIES
ON_MONGODB = {
    ("plain", "worker"),
    ("queued", "worker"),
    ("queued", "relayed"),
    ("fanned out", "worker"),
    ("asked", "worker"),
    ("child", "worker"),
}
"""What is cut off at each write there, where a sweep takes long: one of each kind."""


def _live(definition: BaseWorkflow, key: str, mode: str, service: WorkflowService, outbox: RecordingDispatcher) -> None:
    """From the start to the end, with a worker, and a relay later."""
    if mode == "inline":
        definition.run(idempotency_key=key)
        return
    definition.start(idempotency_key=key)
    if mode == "relayed":
        outbox.lose_everything()
    else:
        outbox.deliver()
    with clock.travel(MINUTE):
        service.relay()
        outbox.deliver()


def _drive_on(run: WorkflowRunHandle, service: WorkflowService, outbox: RecordingDispatcher) -> None:
    """Let an hour pass, with a relay and a worker, until the run has ended and one more round found nothing amiss."""
    for minutes in range(2, 60, 2):
        has_ended = run.get().is_terminal
        with clock.travel(minutes * MINUTE):
            service.relay()
            outbox.deliver()
        if has_ended:
            return


def _invocation(run_id: str, name: str) -> str:
    parent, _, step_name = name.rpartition("/")
    return invocation_id(str(step_of(run_id, parent).child_run_id) if parent else run_id, step_name)


def _seen_through(run: WorkflowRunHandle, story: Story, books: Books, *, at: str) -> None:
    """The run came to its end as if nothing had been. Looks at it and its children alone, since a sweep makes many."""
    stored = run.get()
    assert (stored.status, stored.error) == ("completed", None), at
    assert stored.output == story.output, at
    shown = {key: value for key, value in run.state.items() if not key.startswith("__approval_")}
    assert shown == story.state, at
    assert set(books.entries) == {_invocation(run.id, name) for name in story.effects}, at
    children = runtime.Runtime().runs.filter(parent_run_id=run.id).values_list("pk", flat=True)
    assert list(find_violations(run_ids=[run.id, *children])) == [], at
    history = WorkflowRunService().get_run_history(run.id)
    for step in run.steps():
        assert step.is_settled, at
        attempts = [entry.status for entry in history if entry.step_name == step.step_name]
        assert all(status == "failed" for status in attempts[:-1]), at


@pytest.mark.parametrize(("name", "mode", "way"), CASES)
def test_a_database_that_fails_at_any_statement_costs_time_only(
    name: str, mode: str, way: Way, service: WorkflowService, outbox: RecordingDispatcher
) -> None:
    """Every statement of the run's life fails once, each in a run of its own."""
    is_shown = (way, name) == ("unanswered", "plain") or (way == "down" and (name, mode) in ON_MONGODB)
    if connection.vendor == "mongodb" and not is_shown:
        # There is no transaction to be dropped, and its driver repeats what was refused.
        pytest.skip("on MongoDB a process is cut off between any two writes, and an answer is lost")
    for at in itertools.count(1):
        books = Books()
        story = STORIES[name](books)
        versions.stored_versions.clear()
        engine(DATABASE).now()

        with failing(at, way) as failure:
            _live(story.definition, f"run {at}", mode, service, outbox)
        # Whoever got an error from starting a run starts it again, with the same key.
        run = story.definition.start(idempotency_key=f"run {at}")
        _drive_on(run, service, outbox)

        where = f"statement {at}: {failure.reached}"
        _seen_through(run, story, books, at=where)
        assert set(books.calls.values()) == {1}, f"{where}: an attempt is one call"
        if way != "down":
            calls = Counter(step_name for step_name, _ in books.calls)
            assert set(calls.values()) == {1}, f"{where}: an outcome is not lost to a moment's trouble"
        if failure.reached is None:
            break
        outbox.reset()
    assert at > 6
    assert list(find_violations()) == [], "nor has a later run harmed an earlier one"


@pytest.mark.parametrize("name", STORIES)
def test_where_nothing_fails_there_is_nothing_to_be_mended(
    name: str, service: WorkflowService, outbox: RecordingDispatcher
) -> None:
    """The measure of the sweep: each step has one attempt, but for the one that fails by itself."""
    run = STORIES[name](Books()).definition.run()
    attempts = {step.step_name: len(attempts_of(run.id, step.step_name)) for step in run.steps()}
    assert set(attempts.values()) == ({2} if name.endswith("tried again") else {1})


@pytest.mark.parametrize("way", ["refused", "dropped", "unanswered"])
@pytest.mark.parametrize("mode", ["inline", "worker"])
def test_asking_for_the_time_may_fail_as_well(
    way: Way, mode: str, service: WorkflowService, outbox: RecordingDispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where time is the server's it is asked for now and then, which after a long step is just before its outcome is
    written."""
    if connection.vendor == "mongodb" and (way, mode) != ("unanswered", "worker"):
        pytest.skip("on MongoDB an answer is lost")
    monkeypatch.setattr(clock, "ASK_AGAIN_AFTER", -1.0)
    for at in itertools.count(1):
        books = Books()
        story = _plain(books)
        with failing(at, way) as failure:
            _live(story.definition, f"run {at}", mode, service, outbox)
        run = story.definition.start(idempotency_key=f"run {at}")
        _drive_on(run, service, outbox)

        where = f"statement {at}: {failure.reached}"
        _seen_through(run, story, books, at=where)
        calls = Counter(step_name for step_name, _ in books.calls)
        assert set(calls.values()) == {1}, f"{where}: an outcome is not lost to a moment's trouble"
        if failure.reached is None:
            break
        outbox.reset()


# -- the outcome of an attempt -----------------------------------------------------------------------------------------


class Trouble:
    """Stands in for the write of an outcome: its first `times` calls raise, before or after they wrote."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, outcome: str, *, answered: bool, times: int = 1) -> None:
        self.tries = 0
        write = getattr(StepQuerySet, outcome)

        def troubled(queryset: StepQuerySet, *args: Any, **options: Any) -> bool:
            self.tries += 1
            if self.tries > times:
                return bool(write(queryset, *args, **options))
            if not answered:
                write(queryset, *args, **options)
            raise (OperationalError, InterfaceError)[self.tries % 2]("no such luck")

        monkeypatch.setattr(StepQuerySet, outcome, troubled)


@pytest.fixture(params=["inline", "in its run", "queued"])
def mode(request: pytest.FixtureRequest) -> str:
    """Where a step is carried out."""
    name: str = request.param
    return name


@pytest.fixture
def order(mode: str) -> WorkflowDefinition[Any]:
    """One step, which fails if it is told to."""

    @function(queued=mode == "queued", retries=0)
    def pack(fails: bool) -> str:
        if fails:
            raise ValueError("no box")
        return "packed"

    @workflow
    def order(flow: Flow, fails: bool) -> Any:
        return flow.do("pack", pack, {"fails": fails})

    return order


def _carried(definition: WorkflowDefinition[Any], mode: str, outbox: RecordingDispatcher, fails: bool) -> Any:
    if mode == "inline":
        return definition.run({"fails": fails})
    run = definition.start({"fails": fails})
    outbox.deliver()
    return run


@pytest.mark.parametrize("answered", [True, False], ids=["not written", "written"])
@pytest.mark.parametrize(("outcome", "status"), [("succeed", "succeeded"), ("fail", "failed")])
def test_an_outcome_is_written_again_after_a_moments_trouble(
    order: WorkflowDefinition[Any],
    mode: str,
    outbox: RecordingDispatcher,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    outcome: str,
    status: str,
    answered: bool,
) -> None:
    """Also if the first try went through and only its answer was lost: that is seen, and is no lost attempt."""
    trouble = Trouble(monkeypatch, outcome, answered=answered)
    with caplog.at_level(logging.WARNING):
        run = _carried(order, mode, outbox, fails=outcome == "fail")

    assert run.status == ("completed" if status == "succeeded" else "failed"), "in the same pass"
    assert outcomes(run.id, "pack") == [status]
    assert trouble.tries == 2
    assert "A write failed; trying again" in caplog.text
    assert "too late" not in caplog.text
    assert list(find_violations()) == []


def test_an_outcome_is_tried_again_some_times(
    order: WorkflowDefinition[Any], mode: str, outbox: RecordingDispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    trouble = Trouble(monkeypatch, "succeed", answered=True, times=3)

    assert _carried(order, mode, outbox, fails=False).output == "packed"
    assert trouble.tries == 4


def test_an_outcome_that_cannot_be_written_leaves_the_step_to_the_relay(
    order: WorkflowDefinition[Any],
    mode: str,
    outbox: RecordingDispatcher,
    service: WorkflowService,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patch:
        trouble = Trouble(patch, "succeed", answered=True, times=100)
        with pytest.raises((OperationalError, InterfaceError), match="no such luck"):
            _carried(order, mode, outbox, fails=False)
    assert trouble.tries == 4
    (run_id,) = service._runtime.runs.values_list("pk", flat=True)
    assert step_of(run_id, "pack").status == "running"

    run = service.get_handle(run_id)
    _drive_on(run, service, outbox)
    assert run.error is not None
    assert run.error["code"] == "WORKER_LOST", "it had no retries"


def test_an_outcome_that_is_written_again_too_late_is_dropped(
    outbox: RecordingDispatcher,
    service: WorkflowService,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The relay took the attempt away between the two tries."""

    @function(queued=True, retries=1, retry_delay=0)
    def pack() -> int:
        return current_step().attempt

    @workflow
    def order(flow: Flow) -> Any:
        return flow.do("pack", pack)

    succeed = StepQuerySet.succeed
    tries: list[int] = []

    def troubled(queryset: StepQuerySet, *args: Any, **options: Any) -> bool:
        tries.append(1)
        if len(tries) > 1:
            return succeed(queryset, *args, **options)
        with clock.travel(2 * MINUTE):
            service.relay_undispatched_steps()
        raise OperationalError("no such luck")

    monkeypatch.setattr(StepQuerySet, "succeed", troubled)
    run = order.start()
    with caplog.at_level(logging.WARNING):
        outbox.deliver()
    with clock.travel(2 * MINUTE):
        outbox.deliver()

    assert "Attempt 1 of step pack" in caplog.text
    assert "too late" in caplog.text
    assert outcomes(run.id, "pack") == ["failed", "succeeded"]
    assert run.output == 2


@needs_transactions
def test_inside_a_transaction_there_is_one_try(
    outbox: RecordingDispatcher, monkeypatch: pytest.MonkeyPatch, service: WorkflowService
) -> None:
    """What failed there has taken the transaction with it."""

    @workflow
    def order(flow: Flow) -> Any:
        return flow.do("pack", lambda: "packed")

    trouble = Trouble(monkeypatch, "succeed", answered=True)
    with pytest.raises((OperationalError, InterfaceError), match="no such luck"), transaction.atomic():
        order.run()

    assert trouble.tries == 1
    assert not connection.in_atomic_block
    assert not service._runtime.runs.exists()
