"""An approval in random order: answers early, allowed, forbidden and unfit, passes, resumes, the end of its time, a
cancellation, a relay and lost wake-ups. It comes to exactly one outcome, the one that was told."""

from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from pikku_storage.db.clock import travel
from pikku_storage.exceptions import (
    WorkflowApprovalForbiddenError,
    WorkflowApprovalInvalidError,
    WorkflowApprovalResolvedError,
)
from pikku_storage.ids import new_id
from pikku_storage.workflows import workflow
from pikku_storage.workflows.flow import Flow
from pikku_storage.workflows.invariants import find_violations
from pikku_storage.workflows.registry import registry
from pikku_storage.workflows.runs import WorkflowRunService
from pikku_storage.workflows.service import WorkflowService

EXPIRY = timedelta(minutes=30)
OWNER = "the owner"


class Gates(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        registry.workflows.pop("gates.modelled", None)

        @workflow(name="gates.modelled")
        def modelled(flow: Flow) -> Any:
            answer = flow.approval("go", {"type": "integer"}, expiry=EXPIRY, approvers="not-initiator")
            return [answer.status, answer.data]

        self.service = WorkflowService(worker="model")
        # Runs of earlier examples are in the same database.
        self.owner = new_id()
        self.run = modelled.start(owner=self.owner)
        self.time = ExitStack()
        self.passed = timedelta()
        self.opened_at: timedelta | None = None
        self.pending: tuple[int, str] | None = None
        """The answer that was taken and is not judged yet."""
        self.outcome: list[Any] | None = None
        self.is_cancelled = False

    def teardown(self) -> None:
        self.time.close()

    # -- what the model knows

    @property
    def is_open(self) -> bool:
        return self.outcome is None and not self.is_cancelled

    @property
    def is_over(self) -> bool:
        return self.opened_at is not None and self.passed >= self.opened_at + EXPIRY

    def judge(self) -> None:
        """What a pass does."""
        if not self.is_open:
            return
        if self.opened_at is None:
            self.opened_at = self.passed
        if self.pending is not None:
            number, by = self.pending
            self.pending = None
            if number != -1 and by != OWNER:
                self.outcome = ["decided", number]
                return
        if self.is_over:
            self.outcome = ["expired", None]

    # -- what happens

    @rule(number=st.sampled_from([-1, 1, 2, 3]), by=st.sampled_from([OWNER, "bob", "eve"]))
    def answer(self, number: int, by: str) -> None:
        """-1 stands for an answer that does not fit."""
        decision: Any = "x" if number == -1 else number
        expected: Any = None
        if (not self.is_open and self.opened_at is None) or self.outcome is not None:
            expected = WorkflowApprovalResolvedError
        elif self.opened_at is not None and by == OWNER and not self.is_cancelled:
            expected = WorkflowApprovalForbiddenError
        elif self.opened_at is not None and number == -1 and not self.is_cancelled:
            expected = WorkflowApprovalInvalidError
        elif self.is_over or self.pending is not None or self.is_cancelled:
            expected = (
                WorkflowApprovalResolvedError,
                WorkflowApprovalForbiddenError,
                WorkflowApprovalInvalidError,
            )
        if expected is None:
            self._approve(decision, by)
            self.pending = (number, by)
            return
        with pytest.raises(expected):
            self._approve(decision, by)

    def _approve(self, decision: Any, by: str) -> None:
        self.run.approve("go", decision, by=self.owner if by == OWNER else by)

    @rule()
    def a_worker_comes(self) -> None:
        self.service.orchestrate_workflow(self.run.id)
        self.judge()

    @rule()
    def resume(self) -> None:
        assert self.run.resume() == self.is_open

    @rule(minutes=st.integers(1, 12))
    def time_passes(self, minutes: int) -> None:
        self.time.enter_context(travel(timedelta(minutes=minutes)))
        self.passed += timedelta(minutes=minutes)

    @rule()
    def the_relay_looks(self) -> None:
        self.service.relay()

    @precondition(lambda self: self.passed > EXPIRY / 2)
    @rule()
    def cancel(self) -> None:
        assert self.run.cancel() == self.is_open
        self.is_cancelled = self.is_cancelled or self.outcome is None

    # -- what must hold

    @invariant()
    def there_is_one_outcome(self) -> None:
        run = self.run.get()
        if self.is_cancelled:
            assert run.status == "cancelled"
        elif self.outcome is None:
            assert run.status in {"running", "suspended"}
        else:
            assert (run.status, run.output) == ("completed", self.outcome)
        trail = WorkflowRunService().get_run_answers(self.run.id)
        assert [entry.is_outcome for entry in trail].count(True) == (self.outcome is not None)
        assert [entry.verdict for entry in trail].count(None) == (self.pending is not None)
        listed = [approval.run_id for approval in WorkflowRunService().list_open_approvals(owner=self.owner)]
        assert listed == ([self.run.id] if run.status == "suspended" else [])
        assert [str(violation) for violation in find_violations(run_ids=[self.run.id])] == []


class Nowhere:
    """A dispatcher whose messages all get lost."""

    def send(self, messages: Any) -> None:
        """Lose them."""


@pytest.mark.django_db
def test_an_approval_comes_to_one_outcome(settings_of_project: None) -> None:
    run_state_machine_as_test(
        Gates,
        settings=settings(
            max_examples=25,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )


@pytest.fixture
def settings_of_project(settings: Any) -> None:
    settings.PIKKU_STORAGE = {"DISPATCHER": "tests.stateful.test_gates.Nowhere"}
