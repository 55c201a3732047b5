"""Random interleavings of every state change, against a model: no way leads to a state outside the table of
transitions.

The model knows what each operation must answer. After every operation the rows are compared with it, and the invariants
of the stored data are checked. Claims and passes are kept after they are over, so that late outcomes and zombies are
part of every run.
"""

from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from pikku_storage.db.clock import travel
from pikku_storage.exceptions import WorkflowError
from pikku_storage.ids import new_token
from pikku_storage.workflows.engine.runtime import Runtime
from pikku_storage.workflows.invariants import find_violations
from pikku_storage.workflows.records import Run, StepState
from pikku_storage.workflows.service import WorkflowService
from pikku_storage.workflows.statuses import (
    LIVE_RUN_STATUSES,
    RUN_TRANSITIONS,
    STEP_TRANSITIONS,
    RunStatus,
    StepStatus,
)

T = TypeVar("T")
NAMES = ("a", "b", "c")
names = st.sampled_from(NAMES)
numbers = st.integers(0, 5)
seldom = st.sampled_from([False] * 9 + [True])
WAITING = {"pending", "scheduled"}
OPEN = {"pending", "scheduled", "running"}


@dataclass
class ModelStep:
    step_id: str
    max_attempts: int
    status: str = "pending"
    attempt: int = 1
    token: str | None = None
    result: object = None


@dataclass(frozen=True)
class Held:
    """A claim that somebody once had; it may be over."""

    name: str
    attempt: int
    token: str | None


class Interleavings(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.service = WorkflowService(worker="model")
        self.runtime = Runtime(worker="model")
        self.run_id = self.service.create_run("modelled", {})
        self.run_status = "running"
        self.steps: dict[str, ModelStep] = {}
        self.held: list[Held] = []
        self.passes: list[str] = ["never inside"]
        self.inside: str | None = None
        self.woken = False
        self.time = ExitStack()

    def teardown(self) -> None:
        self.time.close()

    # -- steps

    @initialize(budgets=st.tuples(*[st.integers(0, 3)] * len(NAMES)))
    def insert(self, budgets: tuple[int, ...]) -> None:
        for name, retries in zip(NAMES, budgets, strict=True):
            state = self.service.insert_step_state(self.run_id, name, "f", {"n": 0}, retries=retries, retry_delay=0)
            self.steps[name] = ModelStep(state.step_id, retries + 1)
            self.held.append(Held(name, 1, None))

    @rule(name=names)
    def claim(self, name: str) -> None:
        step = self.steps[name]
        claimed = self.service.claim_step(self.run_id, name)
        is_open = step.status in WAITING or (step.status == "failed" and step.attempt < step.max_attempts)
        expected = is_open and self.run_status in LIVE_RUN_STATUSES
        assert (claimed is not None) == expected
        if claimed is not None:
            step.attempt += step.status == "failed"
            self._now(step, "running", token=claimed.claim_token)
        self.held.append(Held(name, step.attempt, None if claimed is None else claimed.claim_token))

    @rule(number=numbers, result=st.sampled_from([0, False, "", None, [], {"a": 1}]))
    def succeed(self, number: int, result: object) -> None:
        held = self._one_of(self.held, number)
        step = self.steps[held.name]
        won = self.service.set_step_result(step.step_id, result, attempt=held.attempt, claim_token=held.token)
        assert won == self._holds(held)
        if won:
            self._now(step, "succeeded", result=result)

    @rule(number=numbers)
    def fail(self, number: int) -> None:
        held = self._one_of(self.held, number)
        step = self.steps[held.name]
        error = {"message": "boom"}
        won = self.service.set_step_error(step.step_id, error, attempt=held.attempt, claim_token=held.token)
        assert won == self._holds(held)
        if won:
            self._now(step, "failed")

    @rule(name=names)
    def succeed_by_hand(self, name: str) -> None:
        step = self.steps[name]
        assert self.service.set_step_result(step.step_id, 7) == (step.status in OPEN)
        if step.status in OPEN:
            self._now(step, "succeeded", result=7)

    @rule(name=names)
    def fail_by_hand(self, name: str) -> None:
        step = self.steps[name]
        assert self.service.set_step_error(step.step_id, {"message": "by hand"}) == (step.status in OPEN)
        if step.status in OPEN:
            self._now(step, "failed")

    @rule(name=names)
    def run_by_hand(self, name: str) -> None:
        step = self.steps[name]
        assert self.service.set_step_running(step.step_id) == (step.status in WAITING)
        if step.status in WAITING:
            self._now(step, "running")

    @rule(name=names)
    def schedule(self, name: str) -> None:
        step = self.steps[name]
        assert self.service.set_step_scheduled(step.step_id) == (step.status == "pending")
        if step.status == "pending":
            self._now(step, "scheduled")

    @rule(name=names, status=st.sampled_from(["pending", "running"]))
    def retry(self, name: str, status: str) -> None:
        step = self.steps[name]
        if step.status == "failed" and step.attempt < step.max_attempts:
            state = self.service.create_retry_attempt(step.step_id, status)
            step.attempt += 1
            self._now(step, status, token=state.claim_token)
            assert (state.result, state.error, state.attempt_count) == (None, None, step.attempt)
        else:
            with pytest.raises(WorkflowError):
                self.service.create_retry_attempt(step.step_id, status)

    @rule(minutes=st.integers(1, 20))
    def time_passes_and_the_relay_looks(self, minutes: int) -> None:
        self.time.enter_context(travel(timedelta(minutes=minutes)))
        running = [step for step in self.steps.values() if step.status == "running"]
        self.service.relay()
        for step in running:
            # Its lease was a minute, and nobody renewed it.
            self._now(step, "failed")
        self.woken = True

    # -- the run

    @rule(status=st.sampled_from(["running", "suspended"] * 9 + ["completed", "failed"]))
    def set_run_status(self, status: str) -> None:
        expected = self.run_status in LIVE_RUN_STATUSES
        assert self.service.update_run_status(self.run_id, status, {"by": "hand"}) == expected
        if expected:
            self.run_status, self.inside = status, None

    @rule(really=seldom)
    def cancel(self, really: bool) -> None:
        if not really:
            return
        expected = self.run_status in LIVE_RUN_STATUSES
        assert self.service.cancel_workflow(self.run_id, "enough") == expected
        if expected:
            self.run_status, self.inside = "cancelled", None

    @rule()
    def wake(self) -> None:
        expected = self.run_status in LIVE_RUN_STATUSES
        assert self.service.resume_workflow(self.run_id) == expected
        if expected:
            self.run_status = "running"
        self.woken = True

    @rule()
    def enter(self) -> None:
        token, at = new_token(), self.runtime.now()
        entered = self.runtime.runs.enter(self.run_id, token, worker="w", at=at, until=self.runtime.lease_end(at))
        # The model does not know the lease's end, only that an entered pass shuts others out until time passes.
        if self.run_status not in LIVE_RUN_STATUSES:
            assert not entered
        elif self.inside is None:
            assert entered
        if entered:
            self.run_status, self.inside, self.woken = "running", token, False
        self.passes.append(token)

    @rule(number=numbers)
    def leave(self, number: int) -> None:
        token = self._one_of(self.passes, number)
        run = self._run()
        at = self.runtime.now()
        seen = run.wake_token if not self.woken else "an older one"
        left = self.runtime.runs.leave(self.run_id, token, seen_wake=seen, at=at, due_at=self.runtime.stalled_end(at))
        expected = token == self.inside and not self.woken and self.run_status == "running"
        assert left == expected
        if left:
            self.inside = None

    @rule(number=numbers, status=st.sampled_from([RunStatus.COMPLETED, RunStatus.FAILED]), really=seldom)
    def settle(self, number: int, status: RunStatus, really: bool) -> None:
        # The pass that is inside seldom ends the run, so that most examples live long; older ones try all the time.
        token = self._one_of(self.passes, number)
        if token == self.inside and not really:
            return
        settled = self.runtime.runs.settle(
            self.run_id, token, status, at=self.runtime.now(), output={"done": True}, error=None
        )
        assert settled == (token == self.inside and self.run_status in LIVE_RUN_STATUSES)
        if settled:
            self.run_status, self.inside = status.value, None

    # -- what must hold

    @invariant()
    def rows_are_what_the_model_says(self) -> None:
        stored = {step.step_name: step for step in self.service.list_step_states(self.run_id)}
        assert {name: self._shape(step) for name, step in stored.items()} == {
            name: (step.status, step.attempt, step.result) for name, step in self.steps.items()
        }
        assert self._run().status == self.run_status
        assert [str(violation) for violation in find_violations(run_ids=[self.run_id])] == []

    def _now(self, step: ModelStep, status: str, *, token: str | None = None, result: object = None) -> None:
        assert StepStatus(status) in STEP_TRANSITIONS[StepStatus(step.status)]
        step.status, step.token, step.result = status, token, result

    def _holds(self, held: Held) -> bool:
        step = self.steps[held.name]
        return step.status == "running" and step.token == held.token and step.attempt == held.attempt

    @staticmethod
    def _one_of(kept: list[T], number: int) -> T:
        """Counted from the newest, which is the most interesting one."""
        return kept[-1 - number % len(kept)]

    def _run(self) -> Run:
        run = self.service.get_run(self.run_id)
        assert run is not None
        return run

    @staticmethod
    def _shape(step: StepState) -> tuple[str, int, object]:
        return step.status, step.attempt_count, step.result


@pytest.mark.django_db
def test_no_interleaving_leaves_the_table() -> None:
    run_state_machine_as_test(
        Interleavings,
        settings=settings(
            max_examples=50,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )


def test_terminal_statuses_have_no_way_out() -> None:
    assert {status for status, following in RUN_TRANSITIONS.items() if not following} == {
        RunStatus.COMPLETED,
        RunStatus.FAILED,
        RunStatus.CANCELLED,
    }
    assert STEP_TRANSITIONS[StepStatus.SUCCEEDED] == frozenset()
