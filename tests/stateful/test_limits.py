"""Random starts, ends, kills, sleeps and changes of limits, against a model: never more are inside than the limit that
held when the last one came in, nobody overtakes, and no free slot is left idle."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as run_machine
from pytest_django.fixtures import Settings

from pikku_storage.workflows import Limits, function, workflow
from pikku_storage.workflows.dispatch import Message
from pikku_storage.workflows.engine import admission, rules
from pikku_storage.workflows.flow import Flow
from pikku_storage.workflows.invariants import find_violations
from pikku_storage.workflows.models import WorkflowRun, WorkflowSlot
from pikku_storage.workflows.service import WorkflowService

numbers = st.integers(0, 9)
limits = st.integers(1, 4)
posted: list[Message] = []


class Posted:
    """A dispatcher whose messages the model delivers, or loses."""

    def send(self, messages: Iterable[Message]) -> None:
        """Keep them."""
        posted.extend(messages)


@function(name="modelled.work", queued=True, retries=0)
def work() -> None: ...


@workflow(name="modelled.limited", limits=Limits(concurrency=2))
def limited(flow: Flow) -> None:
    flow.do("work", work)


class LimitedRuns(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.service = WorkflowService(worker="model")
        self.limit = 2
        self.most = 0
        """The most that may be inside: the limit, or what was inside when it was lowered."""
        self.known: set[str] = set()

    @initialize()
    def begin(self) -> None:
        posted.clear()
        WorkflowRun.objects.all().delete()
        WorkflowSlot.objects.all().delete()
        self.service.set_limits("modelled.limited", concurrency=2)
        self.most = 2

    def inside(self) -> list[str]:
        held = WorkflowSlot.objects.filter(run__status="running")
        return list(held.order_by("run_id").values_list("run_id", flat=True))

    @rule(priority=st.integers(1, 9))
    def start(self, priority: int) -> None:
        self.known.add(limited.start(priority=priority).id)

    @precondition(lambda self: bool(posted))
    @rule(number=numbers)
    def deliver(self, number: int) -> None:
        message = posted.pop(number % len(posted))
        before = self.inside()
        self.service.orchestrate_workflow(message.run_id)
        if message.run_id in self.inside() and message.run_id not in before:
            assert len(before) < self.limit

    @precondition(lambda self: bool(posted))
    @rule(number=numbers)
    def deliver_twice(self, number: int) -> None:
        posted.append(posted[number % len(posted)])

    @precondition(lambda self: bool(self.inside()))
    @rule(number=numbers, how=st.sampled_from(["work", "cancel", "kill"]))
    def end(self, number: int, how: str) -> None:
        inside = self.inside()
        run_id = inside[number % len(inside)]
        if how == "cancel":
            assert self.service.cancel_workflow(run_id)
            return
        with killed_before_it_gives_back() if how == "kill" else nothing():
            self.service.execute_workflow_step(run_id, "work")
        self.most = max(self.limit, len(self.inside()))

    @rule(number=numbers)
    def cancel_one_that_waits(self, number: int) -> None:
        waiting = list(
            WorkflowRun.objects.filter(line__isnull=False).order_by("line_place").values_list("pk", flat=True)
        )
        if waiting:
            assert self.service.cancel_workflow(waiting[number % len(waiting)])

    @rule(limit=limits)
    def change(self, limit: int) -> None:
        self.service.set_limits("modelled.limited", concurrency=limit)
        self.limit, self.most = limit, max(limit, len(self.inside()))

    @rule()
    def the_relay_looks(self) -> None:
        self.service.relay()

    @invariant()
    def never_more_than_the_limit(self) -> None:
        inside = self.inside()
        assert len(inside) <= max(self.limit, self.most)
        self.most = max(self.limit, min(self.most, len(inside)))

    @invariant()
    def slots_belong_to_runs(self) -> None:
        found = [violation.rule for violation in find_violations()]
        # Until the relay has been there after a kill.
        assert set(found) <= {"ended-run-holds-slot"}

    def teardown(self) -> None:
        """No free slot is left idle: with messages alone all go through, after the relay saw to the killed ones."""
        self.service.relay()
        for _ in range(500):
            if posted:
                self.service.orchestrate_workflow(posted.pop(0).run_id)
                continue
            inside = self.inside()
            if not inside:
                break
            self.service.execute_workflow_step(inside[0], "work")
        left = WorkflowRun.objects.filter(status="running").values_list("pk", "line", "redrives")
        assert list(left) == []
        assert WorkflowSlot.objects.count() == 0


@contextmanager
def killed_before_it_gives_back() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(admission, "leave_for_good", lambda *args: None)
        yield


@contextmanager
def nothing() -> Iterator[None]:
    yield


@pytest.mark.django_db(transaction=True)
def test_limits_hold_whatever_happens(settings: Settings) -> None:
    settings.PIKKU_STORAGE = {"DISPATCHER": "tests.stateful.test_limits.Posted"}
    rules.forget("default")
    run_machine(LimitedRuns, settings=SETTINGS)


SETTINGS = settings(
    max_examples=25,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
