"""Bad input gets a clear error, and nothing is lost or half stored."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from pikku_storage.exceptions import (
    PayloadError,
    WorkflowInputError,
    WorkflowNotFoundError,
    WorkflowStepNameNotString,
)
from pikku_storage.workflows import function, workflow
from pikku_storage.workflows.flow import Flow
from pikku_storage.workflows.handle import WorkflowRunHandle
from pikku_storage.workflows.service import WorkflowService
from tests.conformance.recording import RecordingDispatcher
from tests.conformance.support import nothing_is_stored, outcomes, step_names

pytestmark = pytest.mark.django_db(transaction=True)

Start = Callable[..., Any]


@pytest.fixture(params=["start", "run", "start_workflow", "run_inline", "run_to_completion"])
def begin(request: pytest.FixtureRequest, service: WorkflowService) -> Start:
    """Each way to begin a run of the workflow `order`."""

    @workflow
    def order(flow: Flow, order_id: str, note: Any = None) -> None: ...

    way: str = request.param
    if way in {"start", "run"}:
        bound: Start = getattr(order, way)
        return bound
    return lambda data, **options: getattr(service, way)("order", data, **options)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ([1, 2], r"^\$input: must be a JSON object \(a dict\), not list"),
        ("A1", r"^\$input: must be a JSON object \(a dict\), not str"),
        ({"order_id": float("nan")}, r"^\$input\.order_id: nan is not a JSON number"),
        ({"order_id": "A\x00"}, r"^\$input\.order_id: text with a NUL character at position 1"),
        ({"order_id": "A\ud800"}, r"^\$input\.order_id: text with a lone surrogate at position 1"),
        (
            {"order_id": "A", "note": {"at": [datetime(2026, 1, 1, tzinfo=UTC)]}},
            r"^\$input\.note\.at\[0\]: datetime is not JSON",
        ),
        ({"order_id": "x" * 10_000_000}, r"^\$input: 10,000,015 bytes of JSON, more than the 4,194,304"),
        ({1: "A"}, r"^\$input: the key 1 is not a str"),
    ],
    ids=["list", "text", "nan", "nul", "surrogate", "datetime", "10 MB", "key"],
)
def test_input_that_cannot_be_stored_is_refused_and_nothing_is_written(
    begin: Start, outbox: RecordingDispatcher, data: Any, problem: str
) -> None:
    with pytest.raises(PayloadError, match=problem):
        begin(data)

    assert nothing_is_stored()
    assert outbox.sent == []


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ({}, "missing 'order_id'$"),
        (None, "missing 'order_id'$"),
        ({"order_id": "A", "colour": "red"}, "unexpected 'colour'$"),
        ({"colour": "red"}, "missing 'order_id'; unexpected 'colour'$"),
    ],
    ids=str,
)
def test_arguments_that_do_not_fit_are_refused_and_nothing_is_written(
    begin: Start, outbox: RecordingDispatcher, data: Any, problem: str
) -> None:
    with pytest.raises(WorkflowInputError, match=problem):
        begin(data)

    assert nothing_is_stored()
    assert outbox.sent == []


def test_an_unknown_workflow_is_refused_and_nothing_is_written(service: WorkflowService) -> None:
    for begin in (service.start_workflow, service.run_inline, service.run_to_completion):
        with pytest.raises(WorkflowNotFoundError, match=r"Workflow not found: order\. .*workflows\.py") as caught:
            begin("order", {})
        assert caught.value.http_status == 404
    assert nothing_is_stored()


@pytest.mark.parametrize("owner", ["x" * 300, "user\x00", "user\ud800"], ids=["too long", "nul", "surrogate"])
def test_an_owner_that_cannot_be_stored_is_refused(owner: str) -> None:
    @workflow
    def order(flow: Flow) -> None: ...

    with pytest.raises((WorkflowInputError, PayloadError)):
        order.start(owner=owner)
    assert nothing_is_stored()


def test_a_trigger_that_cannot_be_stored_is_refused() -> None:
    @workflow
    def order(flow: Flow) -> None: ...

    with pytest.raises(PayloadError):
        order.start(trigger="a\x00b")
    assert nothing_is_stored()


# -- inside a body -----------------------------------------------------------------------------------------------------


def _failed(run: WorkflowRunHandle) -> dict[str, Any]:
    assert run.status == "failed"
    assert run.error is not None
    return run.error


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        (5, "must be a text, not int"),
        (None, "must be a text, not NoneType"),
        (b"pack", "must be a text, not bytes"),
        (["pack"], "must be a text, not list"),
        ("", "must have 1 to 223 characters, not 0"),
        ("x" * 224, "must have 1 to 223 characters, not 224"),
        ("a\x00b", "text with a NUL character at position 1"),
        ("a\ud800", "text with a lone surrogate at position 1"),
    ],
    ids=["number", "none", "bytes", "list", "empty", "too long", "nul", "surrogate"],
)
def test_a_step_name_that_is_no_text_fails_the_run_before_the_step_begins(name: Any, problem: str) -> None:
    called: list[str] = []

    @workflow
    def order(flow: Flow) -> None:
        flow.do("first", lambda: called.append("first"))
        flow.do(name, lambda: called.append("second"))

    run = order.run()

    error = _failed(run)
    assert error["name"] == "WorkflowStepNameNotString"
    assert error["message"] == f"{name!r:.80} is no name of a step: it {problem}"
    assert step_names(run.id) == ["first"], "what was done is kept"
    assert called == ["first"]


@pytest.mark.parametrize("name", [5, ""], ids=repr)
def test_the_name_of_any_kind_of_step_is_checked(name: Any) -> None:
    @workflow
    def order(flow: Flow) -> list[str]:
        refused = []
        for attempt in (
            lambda: flow.do(name, len),
            lambda: flow.map(name, len, [1]),
            lambda: flow.gather((name, len, {})),
            lambda: flow.sleep(name, 1),
        ):
            with pytest.raises(WorkflowStepNameNotString) as caught:
                attempt()
            refused.append(type(caught.value).__name__)
        return refused

    run = order.run()
    assert run.output == ["WorkflowStepNameNotString"] * 4
    assert step_names(run.id) == []


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ([1], "must be a JSON object (a dict) of keyword arguments"),
        ({"n": float("inf")}, "$data.n: inf is not a JSON number"),
        ({}, "missing 'n'"),
        ({"n": 1, "m": 2}, "unexpected 'm'"),
        ({"n": "x" * 5_000_000}, "more than the 4,194,304"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_data_of_a_step_that_do_not_fit_fail_the_run_before_the_step_begins(data: Any, problem: str) -> None:
    @function
    def pack(n: int, extra: int = 0) -> int:
        raise AssertionError("not to be called")

    @function
    def pack_one(n: int) -> int:
        raise AssertionError("not to be called")

    target = pack if isinstance(data, list) else pack_one

    @workflow
    def order(flow: Flow) -> None:
        flow.do("first", lambda: 1)
        flow.do("pack", target, data)

    run = order.run()

    assert problem in _failed(run)["message"]
    assert step_names(run.id) == ["first"]


def test_a_body_may_handle_data_that_do_not_fit() -> None:
    @function
    def pack(n: int) -> int:
        return n

    @workflow
    def order(flow: Flow, n: Any) -> Any:
        try:
            return flow.do("pack", pack, {"n": n} if n else {})
        except WorkflowInputError:
            return "nothing to pack"

    assert order.run({"n": 0}).output == "nothing to pack"


@pytest.mark.parametrize("thing", [5, None, object()], ids=["number", "none", "object"])
def test_a_step_needs_something_to_call(thing: Any) -> None:
    @workflow
    def order(flow: Flow) -> None:
        flow.do("pack", thing)

    assert "is neither a function nor the name of one" in _failed(order.run())["message"]


def test_a_compensation_must_be_a_function() -> None:
    @workflow
    def order(flow: Flow) -> None:
        flow.do("pack", lambda: 1, on_error=lambda **_: None)  # type: ignore[call-overload]

    run = order.run()
    assert "on_error takes a @function" in _failed(run)["message"]
    assert step_names(run.id) == []


@pytest.mark.parametrize(
    "options", [{"retries": -1}, {"retries": 1.5}, {"retry_delay": "soon"}, {"timeout": "soon"}], ids=str
)
@pytest.mark.parametrize("kind", ["registered", "plain"])
def test_a_policy_that_makes_no_sense_fails_the_run_before_the_step_begins(options: Any, kind: str) -> None:
    @function
    def pack() -> int:
        return 1

    @workflow
    def order(flow: Flow) -> None:
        flow.do("pack", pack if kind == "registered" else (lambda: 1), **options)

    run = order.run()
    assert _failed(run)["name"] == "WorkflowInputError"
    assert step_names(run.id) == []


@pytest.mark.parametrize("duration", ["soon", -1, None, float("nan")], ids=repr)
def test_a_sleep_without_a_duration_fails_the_run(duration: Any) -> None:
    @workflow
    def order(flow: Flow) -> None:
        flow.sleep("cool down", duration)

    run = order.run()
    assert "The sleep 'cool down': Invalid duration" in _failed(run)["message"]
    assert step_names(run.id) == []


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        (5, 1, "A state key is a text, not 5"),
        ("a\x00", 1, "$state (a key): text with a NUL"),
        ("a", float("nan"), "$state.a: nan is not a JSON number"),
        ("a", {"b": {1, 2}}, "$state.a.b: set is not JSON"),
    ],
    ids=ascii,
)
def test_state_that_cannot_be_stored_fails_the_run(key: Any, value: Any, problem: str) -> None:
    @workflow
    def order(flow: Flow) -> None:
        flow.set_state(key, value)

    run = order.run()
    assert problem in _failed(run)["message"]
    assert run.state == {}


# -- what a step function may do wrong ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"at": datetime(2026, 1, 1, tzinfo=UTC)}, "$result.at: datetime is not JSON; use .isoformat()"),
        (float("nan"), "$result: nan is not a JSON number"),
        (["a\x00"], "$result[0]: text with a NUL character"),
        (object(), "$result: object is not JSON"),
        ("x" * 10_000_000, "$result: 10,000,002 bytes of JSON"),
    ],
    ids=["datetime", "nan", "nul", "object", "10 MB"],
)
def test_a_result_that_cannot_be_stored_is_final_and_names_its_path(value: Any, problem: str) -> None:
    @function(retries=3, retry_delay=0)
    def pack() -> Any:
        return value

    @workflow
    def order(flow: Flow) -> Any:
        return flow.do("pack", pack)

    run = order.run()

    error = _failed(run)
    assert problem in error["message"]
    assert outcomes(run.id, "pack") == ["failed"], "trying again would give the same"
    (step,) = run.steps()
    assert step.error is not None
    assert step.error["code"] == "NOT_SERIALIZABLE"
    assert problem in step.error["message"]


class HoldsAnOpenFile(Exception):
    """Cannot be pickled: it holds something of this process, and its arguments do not make it again."""

    def __init__(self, path: str, *, handle: Any) -> None:
        super().__init__(path)
        self.handle = handle

    def __reduce__(self) -> Any:
        raise TypeError("cannot pickle")


def test_an_exception_that_cannot_be_pickled_is_text_like_any_other() -> None:
    def read() -> None:
        raise HoldsAnOpenFile("orders.csv", handle=iter([]))

    @workflow
    def order(flow: Flow) -> None:
        flow.do("read", read, retries=0)

    run = order.run()

    assert _failed(run)["message"] == "orders.csv"
    (step,) = run.steps()
    assert step.error is not None
    assert (step.error["name"], step.error["message"]) == ("HoldsAnOpenFile", "orders.csv")


@pytest.mark.parametrize("status", [0, 1, None, "bye"], ids=repr)
def test_a_function_that_calls_exit_fails_its_step_and_not_the_worker(status: Any) -> None:
    def leave() -> None:
        raise SystemExit(status)

    @workflow
    def order(flow: Flow) -> None:
        flow.do("leave", leave, retries=1, retry_delay=0)

    run = order.run()

    assert run.status == "failed"
    assert outcomes(run.id, "leave") == ["failed", "failed"]
    (step,) = run.steps()
    assert step.error is not None
    assert step.error["name"] == "SystemExit"
