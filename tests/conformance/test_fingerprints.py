"""What a stream of a run reads: whether something changed, and how far the run is."""

from collections.abc import Callable

import pytest

from pikku_storage.workflows import reads
from pikku_storage.workflows.records import RunFingerprint, RunProgress, StepProgress, StepState
from pikku_storage.workflows.service import WorkflowService
from tests.conformance.conftest import Counter
from tests.conformance.support import DATABASE
from tests.factories import RunFactory, StepFactory

pytestmark = pytest.mark.django_db

Change = Callable[[WorkflowService, StepState], object]


def fingerprint(run_id: str) -> RunFingerprint:
    found = reads.run_fingerprint(DATABASE, run_id)
    assert found is not None
    return found


CHANGES: dict[str, Change] = {
    "a new step": lambda service, step: service.insert_step_state(step.run_id, "another"),
    "a claim": lambda service, step: service.claim_step(step.run_id, step.step_name),
    "a message that was sent": lambda service, step: service.set_step_scheduled(step.step_id),
    "a result": lambda service, step: service.set_step_result(step.step_id, 1),
    "a child run": lambda service, step: service.set_step_child_run_id(step.step_id, "child"),
    "the run's end": lambda service, step: service.update_run_status(step.run_id, "completed"),
    "the run's suspension": lambda service, step: service.update_run_status(step.run_id, "suspended"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_changes_a_run_or_a_step_changes_the_fingerprint(
    change: str, service: WorkflowService, ticking: None
) -> None:
    step = StepFactory.create()
    StepFactory.create(run_id=step.run_id)
    before = fingerprint(step.run_id)
    assert fingerprint(step.run_id) == before
    CHANGES[change](service, step)
    assert fingerprint(step.run_id) != before


def test_a_retry_within_a_millisecond_changes_the_fingerprint(service: WorkflowService) -> None:
    """Nothing but the number of attempts tells the two apart."""
    step = StepFactory.create(retries=1)
    service.claim_step(step.run_id, step.step_name)
    before = fingerprint(step.run_id)
    service.set_step_error(step.step_id, {"message": "no"})
    service.create_retry_attempt(step.step_id, "running")
    assert {entry[2] for entry in before.steps} == {1}
    assert {entry[2] for entry in fingerprint(step.run_id).steps} == {2}


def test_another_runs_step_changes_nothing(service: WorkflowService) -> None:
    run = RunFactory.create()
    before = fingerprint(run.id)
    StepFactory.create()
    assert fingerprint(run.id) == before


def test_a_fingerprint_knows_whose_the_run_is_and_how_many_steps_there_are(service: WorkflowService) -> None:
    run = RunFactory.create(wire={"type": "http", "pikkuUserId": "ada"})
    alone = fingerprint(run.id)
    assert (alone.owner_id, alone.status, alone.updated_at) == ("ada", "running", run.updated_at)
    assert [entry[1] for entry in alone.steps] == [0]
    steps = [StepFactory.create(run_id=run.id) for _ in range(3)]
    service.claim_step(run.id, steps[0].step_name)
    counts = {entry[0]: entry[1:3] for entry in fingerprint(run.id).steps}
    assert counts == {"pending": (2, 2), "running": (1, 1)}


def test_a_fingerprint_is_one_read(statements: Counter) -> None:
    run_id = StepFactory.create().run_id
    with statements() as seen:
        fingerprint(run_id)
    assert len(seen.captured_queries) == 1


def test_progress_is_told_without_payloads_unless_they_are_asked_for(service: WorkflowService) -> None:
    run = RunFactory.create(deterministic=True, planned_steps=[{"stepName": "first"}])
    first = StepFactory.create(run_id=run.id, step_name="first")
    StepFactory.create(run_id=run.id, step_name="second")
    service.set_step_child_run_id(first.step_id, "child")
    service.update_run_status(run.id, "failed", output={"half": True}, error={"message": "no"})
    steps = (
        StepProgress(step_name="first", status="pending", child_run_id="child"),
        StepProgress(step_name="second", status="pending", child_run_id=None),
    )
    expected = RunProgress(status="failed", deterministic=True, planned_steps=[{"stepName": "first"}], steps=steps)
    assert reads.run_progress(DATABASE, run.id, full=False) == expected
    full = reads.run_progress(DATABASE, run.id, full=True)
    assert full is not None
    assert (full.output, full.error) == ({"half": True}, {"message": "no"})
    assert full.is_terminal


def test_an_unknown_run_has_neither(db: None) -> None:
    assert reads.run_fingerprint(DATABASE, "unknown") is None
    assert reads.run_progress(DATABASE, "unknown", full=True) is None
