"""Code that changed under a stored run: what no longer fits suspends the run, and nothing is lost."""

from typing import Any

import pytest

from pikku_storage.db import clock
from pikku_storage.workflows import function, workflow
from pikku_storage.workflows.definitions import BaseWorkflow, FunctionDefinition, WorkflowDefinition
from pikku_storage.workflows.flow import Flow
from pikku_storage.workflows.handle import WorkflowRunHandle
from pikku_storage.workflows.invariants import find_violations
from pikku_storage.workflows.registry import registry
from pikku_storage.workflows.service import WorkflowService
from tests.conformance.recording import RecordingDispatcher
from tests.conformance.support import MINUTE, outcomes, step_names

pytestmark = pytest.mark.django_db(transaction=True)


def _deploy(*definitions: FunctionDefinition[Any, Any] | WorkflowDefinition[Any]) -> None:
    """This process now knows these, under their names, instead of what it knew."""
    for definition in definitions:
        if isinstance(definition, FunctionDefinition):
            registry.functions[definition.name] = definition
        else:
            registry.workflows[definition.name] = definition


def _body(name: str, body: Any) -> WorkflowDefinition[Any]:
    return WorkflowDefinition(body, name=name)


def _conflict(run: WorkflowRunHandle) -> str:
    assert run.status == "suspended"
    assert run.error is not None
    assert run.error["code"] == "VERSION_CONFLICT"
    assert run.get().due_at is not None, "the relay looks again"
    return str(run.error["message"])


def _asleep(outbox: RecordingDispatcher, definition: BaseWorkflow, data: Any = None) -> WorkflowRunHandle:
    run = definition.start(data)
    outbox.deliver()
    assert run.status == "running"
    return run


@pytest.mark.parametrize("by", ["relay", "resume"])
def test_a_step_that_now_calls_another_function_suspends_the_run_until_the_code_is_put_right(
    outbox: RecordingDispatcher, service: WorkflowService, by: str
) -> None:
    called: list[str] = []

    @function
    def pack() -> str:
        called.append("pack")
        return "packed"

    @function
    def wrap() -> str:
        called.append("wrap")
        return "wrapped"

    def before(flow: Flow) -> Any:
        parcel = flow.do("parcel", pack)
        flow.sleep("rest", "1min")
        return [parcel, flow.do("ship", lambda: "shipped")]

    def after(flow: Flow) -> Any:
        parcel = flow.do("parcel", wrap)
        flow.sleep("rest", "1min")
        return [parcel, flow.do("ship", lambda: "shipped")]

    _deploy(_body("order", before))
    run = _asleep(outbox, registry.workflow("order"))
    _deploy(_body("order", after))
    with clock.travel(2 * MINUTE):
        service.relay()
        outbox.deliver()

        assert _conflict(run) == "Step 'parcel' belongs to function 'pack', not 'wrap'; it was left as it is."
        assert called == ["pack"]
        assert outcomes(run.id, "parcel") == ["succeeded"]
        assert list(find_violations()) == []

        _deploy(_body("order", before))
        with clock.travel(10 * MINUTE):
            assert run.resume() if by == "resume" else service.relay() == [run.id]
            outbox.deliver()

    assert (run.status, run.error, run.output) == ("completed", None, ["packed", "shipped"])
    assert called == ["pack"]


@pytest.mark.parametrize(
    ("before_is_registered", "message"),
    [
        (True, "Step 'parcel' belongs to function 'pack', not None; it was left as it is."),
        (False, "Step 'parcel' belongs to function None, not 'pack'; it was left as it is."),
    ],
    ids=["registered to plain", "plain to registered"],
)
def test_a_step_that_changes_between_a_registered_function_and_a_plain_one_suspends_the_run(
    outbox: RecordingDispatcher, service: WorkflowService, before_is_registered: bool, message: str
) -> None:
    @function
    def pack() -> str:
        return "packed"

    def registered(flow: Flow) -> Any:
        parcel = flow.do("parcel", pack)
        flow.sleep("rest", "1min")
        return parcel

    def plain(flow: Flow) -> Any:
        parcel = flow.do("parcel", lambda: "packed")
        flow.sleep("rest", "1min")
        return parcel

    before, after = (registered, plain) if before_is_registered else (plain, registered)
    _deploy(_body("order", before))
    run = _asleep(outbox, registry.workflow("order"))
    _deploy(_body("order", after))
    with clock.travel(2 * MINUTE):
        service.relay()
        outbox.deliver()
        assert _conflict(run) == message
        _deploy(_body("order", before))
        run.resume()
        outbox.deliver()

    assert run.output == "packed"


def test_a_body_that_swallows_exceptions_is_suspended_all_the_same(
    outbox: RecordingDispatcher, service: WorkflowService
) -> None:
    called: list[str] = []

    @function
    def pack() -> str:
        return "packed"

    def before(flow: Flow) -> Any:
        flow.do("parcel", pack)
        flow.sleep("rest", "1min")

    def after(flow: Flow) -> Any:
        try:
            flow.do("parcel", lambda: "other")
        except BaseException:  # noqa: BLE001
            flow.do("instead", lambda: called.append("instead"))
        return "swallowed"

    _deploy(_body("order", before))
    run = _asleep(outbox, registry.workflow("order"))
    _deploy(_body("order", after))
    with clock.travel(2 * MINUTE):
        service.relay()
        outbox.deliver()

    _conflict(run)
    assert called == []
    assert step_names(run.id) == ["parcel", "rest"]


@pytest.mark.parametrize("started", ["not yet", "half-way"])
def test_input_that_does_not_fit_todays_parameters_suspends_the_run_until_the_code_is_put_right(
    outbox: RecordingDispatcher, service: WorkflowService, started: str
) -> None:
    def before(flow: Flow, order_id: str) -> Any:
        flow.do("pack", lambda: order_id)
        flow.sleep("rest", "1min")
        return order_id

    def after(flow: Flow, order_number: int) -> Any:
        return order_number

    _deploy(_body("order", before))
    run = registry.workflow("order").start({"order_id": "A1"})
    if started == "half-way":
        outbox.deliver()
    _deploy(_body("order", after))
    with clock.travel(2 * MINUTE):
        service.relay()
        outbox.deliver()

        assert _conflict(run) == (
            "The data of workflow 'order' does not fit order(order_number: int): "
            "missing 'order_number'; unexpected 'order_id'"
        )
        _deploy(_body("order", before))
        with clock.travel(10 * MINUTE):
            service.relay()
            outbox.deliver()
    with clock.travel(20 * MINUTE):
        service.relay()
        outbox.deliver()

    assert (run.status, run.output) == ("completed", "A1")


def test_new_parameters_with_defaults_are_no_conflict(outbox: RecordingDispatcher, service: WorkflowService) -> None:
    def before(flow: Flow, order_id: str) -> Any:
        flow.sleep("rest", "1min")

    def after(flow: Flow, order_id: str, courier: str = "dhl") -> Any:
        flow.sleep("rest", "1min")
        return [order_id, courier]

    _deploy(_body("order", before))
    run = _asleep(outbox, registry.workflow("order"), {"order_id": "A1"})
    _deploy(_body("order", after))
    with clock.travel(2 * MINUTE):
        service.relay()
        outbox.deliver()

    assert run.output == ["A1", "dhl"]


def test_an_inline_run_that_meets_changed_code_is_suspended(
    outbox: RecordingDispatcher, service: WorkflowService
) -> None:
    """Its process died half-way; a worker with other code carries it on."""

    @function
    def pack() -> str:
        return "packed"

    def before(flow: Flow) -> Any:
        flow.do("parcel", pack)
        raise KeyboardInterrupt

    def after(flow: Flow) -> Any:
        return flow.do("parcel", lambda: "other")

    _deploy(_body("order", before))
    with pytest.raises(KeyboardInterrupt):
        registry.workflow("order").run()
    _deploy(_body("order", after))
    with clock.travel(2 * MINUTE):
        (run_id,) = service.relay()
        outbox.deliver()

    _conflict(service.get_handle(run_id))


def test_a_conflict_is_looked_at_less_and_less_often(outbox: RecordingDispatcher, service: WorkflowService) -> None:
    @workflow
    def order(flow: Flow, n: int) -> None: ...

    run = order.start({"n": 1})
    _deploy(_body("order", lambda flow: None))
    outbox.deliver()
    pauses = []
    for _ in range(6):
        stored = run.get()
        assert stored.due_at is not None
        pauses.append(round((stored.due_at - stored.updated_at).total_seconds()))
        with clock.travel(stored.due_at - service._runtime.now()):
            service.relay()
            outbox.deliver()
            _conflict(run)

    assert pauses == [30, 60, 120, 240, 480, 600]
