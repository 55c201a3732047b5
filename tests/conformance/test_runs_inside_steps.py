"""A step may carry out a run of its own, inline or through the workers."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from pikku_storage.exceptions import WorkflowRunFailedError
from pikku_storage.ids import invocation_id
from pikku_storage.workflows import current_step, workflow
from pikku_storage.workflows.definitions import WorkflowDefinition
from pikku_storage.workflows.flow import Flow
from pikku_storage.workflows.invariants import find_violations
from pikku_storage.workflows.service import WorkflowService
from tests.conformance.recording import RecordingDispatcher
from tests.conformance.support import outcomes

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def label() -> WorkflowDefinition[Any]:
    """The run inside: one step, which knows where it is."""

    @workflow
    def label(flow: Flow, parcel: int) -> Any:
        return flow.do("print", lambda: [parcel, current_step().step_name, current_step().invocation_id])

    return label


@pytest.fixture(autouse=True)
def _sound() -> Iterator[None]:
    yield
    assert list(find_violations()) == []


@pytest.mark.parametrize("timeout", [None, "10s"])
def test_a_run_inside_a_step_is_a_run_like_any_other(label: WorkflowDefinition[Any], timeout: str | None) -> None:
    inside: list[str] = []

    def pack() -> Any:
        run = label.run({"parcel": 7}, idempotency_key=current_step().invocation_id)
        inside.append(run.id)
        return [run.output, current_step().step_name, current_step().run_id]

    @workflow
    def order(flow: Flow) -> Any:
        return [flow.do("pack", pack, timeout=timeout), flow.do("ship", lambda: current_step().step_name)]

    run = order.run()

    assert run.error is None
    printed, *outer = run.output[0]
    assert printed == [7, "print", invocation_id(inside[0], "print")]
    assert outer == ["pack", run.id]
    assert run.output[1] == "ship"
    assert {step.step_name for step in run.steps()} == {"pack", "ship"}


def test_a_run_inside_a_step_that_is_tried_again_is_found_by_its_key(label: WorkflowDefinition[Any]) -> None:
    inside: list[tuple[str, bool]] = []

    def pack() -> Any:
        run = label.run({"parcel": 7}, idempotency_key=current_step().invocation_id)
        inside.append((run.id, run.created))
        if current_step().attempt == 1:
            raise ValueError("lost the label")
        return run.output[0]

    @workflow
    def order(flow: Flow) -> Any:
        return flow.do("pack", pack, retries=1, retry_delay=0)

    assert order.run().output == 7
    assert [created for _, created in inside] == [True, False]
    assert len({run_id for run_id, _ in inside}) == 1


def test_the_limit_of_a_step_inside_leaves_the_outer_step_alone() -> None:
    @workflow
    def slow(flow: Flow) -> Any:
        return flow.do("slow", lambda: time.sleep(5), timeout=50, retries=0)

    def pack() -> Any:
        with pytest.raises(WorkflowRunFailedError, match="longer than its timeout of 50 ms"):
            slow.run().result()
        return "packed all the same"

    @workflow
    def order(flow: Flow) -> Any:
        return flow.do("pack", pack, timeout="20s", retries=0)

    assert order.run().output == "packed all the same"


def test_the_limit_of_the_outer_step_holds_after_the_run_inside(label: WorkflowDefinition[Any]) -> None:
    inside: list[str] = []

    def pack() -> None:
        inside.append(label.run({"parcel": 7}).status)
        time.sleep(60)

    @workflow
    def order(flow: Flow) -> Any:
        return flow.do("pack", pack, timeout="3s", retries=0)

    begun = time.monotonic()
    run = order.run()

    assert inside == ["completed"]
    assert run.error is not None
    assert run.error["message"] == "The step ran longer than its timeout of 3000 ms"
    assert time.monotonic() - begun < 30


def test_a_run_inside_that_waits_for_workers_is_no_wait_of_the_outer_run(
    outbox: RecordingDispatcher, service: WorkflowService
) -> None:
    """The step starts it and goes on; each run waits for its own."""

    @workflow
    def nap(flow: Flow) -> str:
        flow.sleep("rest", "1h")
        return "rested"

    def pack() -> str:
        inner = nap.start()
        service.orchestrate_workflow(inner.id)
        return inner.id

    @workflow
    def order(flow: Flow) -> Any:
        return flow.do("pack", pack)

    run = order.run()
    assert run.status == "completed"
    inner = service.get_handle(str(run.output))
    assert inner.status == "running"
    assert outcomes(inner.id, "rest") == ["scheduled"]


def test_a_run_inside_that_is_cancelled_is_an_ordinary_failure_of_the_step(service: WorkflowService) -> None:
    @workflow
    def label(flow: Flow) -> None:
        flow.do("print", lambda: service.cancel_workflow(current_step().run_id))
        flow.do("stick", lambda: None)

    @workflow
    def order(flow: Flow) -> Any:
        return flow.do("pack", lambda: label.run().result(), retries=0)

    run = order.run()
    assert run.status == "failed"
    assert run.error is not None
    assert "Workflow run was cancelled" in run.error["message"]
