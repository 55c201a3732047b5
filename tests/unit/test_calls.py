"""Calling a step function, whatever it does."""

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from pikku_storage.exceptions import (
    FinalError,
    PassLostError,
    PayloadError,
    WorkflowAsyncException,
    WorkflowError,
    WorkflowInputError,
    WorkflowSuspendedException,
)
from pikku_storage.workflows import StepContext, current_step
from pikku_storage.workflows.engine.calls import Outcome, call

CONTEXT = StepContext(
    run_id="run",
    step_id="step-id",
    step_name="step",
    invocation_id="invocation",
    from_invocation_id=None,
    attempt=1,
    owner_id="user-1",
)


def called(func: Callable[..., Any], timeout_ms: int | None = None, **data: Any) -> Outcome:
    return call(func, data, CONTEXT, timeout_ms)


def called_in_a_thread(func: Callable[..., Any], timeout_ms: int | None = None, **data: Any) -> Outcome:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(called, func, timeout_ms, **data).result()


@pytest.fixture(params=[called, called_in_a_thread], ids=["main thread", "other thread"])
def anywhere(request: pytest.FixtureRequest) -> Callable[..., Outcome]:
    """Calls a function in the main thread, where it can be interrupted, and in another one, where it cannot."""
    caller: Callable[..., Outcome] = request.param
    return caller


# -- what comes back ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("timeout_ms", [None, 5_000])
def test_data_become_keyword_arguments_and_the_return_value_the_result(
    anywhere: Callable[..., Outcome], timeout_ms: int | None
) -> None:
    assert anywhere(lambda a, b: {"sum": a + b}, timeout_ms, a=1, b=2) == Outcome(result={"sum": 3})


@pytest.mark.parametrize("timeout_ms", [None, 5_000])
def test_an_async_function_is_awaited(anywhere: Callable[..., Outcome], timeout_ms: int | None) -> None:
    async def double(n: int) -> int:
        await asyncio.sleep(0.001)
        return 2 * n

    assert anywhere(double, timeout_ms, n=4) == Outcome(result=8)


def test_an_awaitable_that_a_plain_function_returns_is_awaited() -> None:
    async def double(n: int) -> int:
        return 2 * n

    assert called(lambda n: double(n), n=4) == Outcome(result=8)


@pytest.mark.parametrize("value", [0, False, "", [], {}, None], ids=repr)
def test_a_falsy_result_is_a_result(value: Any) -> None:
    outcome = called(lambda: value)

    assert outcome == Outcome(result=value)
    assert type(outcome.result) is type(value)


def test_the_result_is_a_plain_copy() -> None:
    kept = [1]
    outcome = called(lambda: {"kept": kept, "pair": (1, 2)})
    kept.append(2)

    assert outcome.result == {"kept": [1], "pair": [1, 2]}


# -- where it is -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("timeout_ms", [None, 5_000])
def test_a_function_knows_where_it_is(anywhere: Callable[..., Outcome], timeout_ms: int | None) -> None:
    assert anywhere(lambda: current_step().invocation_id, timeout_ms).result == "invocation"


@pytest.mark.parametrize("timeout_ms", [None, 5_000])
def test_an_async_function_knows_where_it_is(anywhere: Callable[..., Outcome], timeout_ms: int | None) -> None:
    async def where() -> str:
        await asyncio.sleep(0)
        return current_step().step_name

    assert anywhere(where, timeout_ms).result == "step"


def test_outside_of_a_step_there_is_no_current_step() -> None:
    called(lambda: None)
    with pytest.raises(WorkflowError, match=r"current_step\(\) was called outside of a step function"):
        current_step()


# -- failures ----------------------------------------------------------------------------------------------------------


def _raise(error: BaseException) -> Callable[[], None]:
    def fails() -> None:
        raise error

    return fails


@pytest.mark.parametrize("timeout_ms", [None, 5_000])
def test_what_a_function_raises_becomes_the_error(anywhere: Callable[..., Outcome], timeout_ms: int | None) -> None:
    outcome = anywhere(_raise(ValueError("no such courier")), timeout_ms)

    assert outcome.error is not None
    assert (outcome.error["name"], outcome.error["message"]) == ("ValueError", "no such courier")
    assert "in fails" in outcome.error["stack"]
    assert not outcome.is_final


@pytest.mark.parametrize("timeout_ms", [None, 5_000])
@pytest.mark.parametrize(
    "error", [StopIteration("end"), GeneratorExit(), asyncio.CancelledError(), RecursionError()], ids=repr
)
def test_odd_exceptions_are_errors_too(
    anywhere: Callable[..., Outcome], timeout_ms: int | None, error: BaseException
) -> None:
    outcome = anywhere(_raise(error), timeout_ms)

    assert outcome.error is not None
    assert outcome.error["name"] == type(error).__name__


@pytest.mark.parametrize("error", [FinalError("no"), PayloadError("$", "no"), WorkflowInputError("no")], ids=repr)
def test_an_error_that_a_retry_would_not_mend_is_final(error: Exception) -> None:
    assert called(_raise(error)).is_final


def test_a_subclass_of_the_final_error_is_final() -> None:
    class CardDeclined(FinalError): ...

    outcome = called(_raise(CardDeclined("no funds")))

    assert outcome.is_final
    assert outcome.error is not None
    assert outcome.error["name"] == "CardDeclined"


@pytest.mark.parametrize(
    ("value", "path"),
    [({"at": datetime(2026, 1, 1, tzinfo=UTC)}, "$result.at"), (float("nan"), "$result"), ([{1}], "$result[0]")],
    ids=str,
)
def test_a_result_that_cannot_be_stored_is_a_final_error_with_its_path(value: Any, path: str) -> None:
    outcome = called(lambda: value)

    assert outcome.is_final
    assert outcome.error is not None
    assert outcome.error["code"] == "NOT_SERIALIZABLE"
    assert outcome.error["message"].startswith(f"{path}: ")


@pytest.mark.parametrize("timeout_ms", [None, 5_000])
@pytest.mark.parametrize("status", [0, 1, "farewell", None], ids=repr)
def test_a_function_that_calls_exit_fails_and_the_worker_goes_on(
    anywhere: Callable[..., Outcome], timeout_ms: int | None, status: Any
) -> None:
    outcome = anywhere(_raise(SystemExit(status)), timeout_ms)

    assert outcome.error is not None
    assert outcome.error["name"] == "SystemExit"
    assert not outcome.is_final


class WorkerShutdown(SystemExit):
    """As Celery's, which it raises to stop a worker."""


@pytest.mark.parametrize("error", [KeyboardInterrupt(), WorkerShutdown()], ids=repr)
def test_the_end_of_the_process_passes_through(anywhere: Callable[..., Outcome], error: BaseException) -> None:
    with pytest.raises(type(error)):
        anywhere(_raise(error))
    with pytest.raises(WorkflowError):
        current_step()


@pytest.mark.parametrize(
    "error",
    [PassLostError(), WorkflowAsyncException(), WorkflowSuspendedException({"message": "no"})],
    ids=lambda error: type(error).__name__,
)
def test_what_leaves_a_body_is_an_ordinary_failure_of_a_function(
    anywhere: Callable[..., Outcome], error: BaseException
) -> None:
    """A function may carry out a run of its own; what that one's body is left by is no business of this step's run."""
    outcome = anywhere(_raise(error))

    assert outcome.error is not None
    assert outcome.error["name"] == type(error).__name__


# -- the time limit ----------------------------------------------------------------------------------------------------


def test_a_function_that_takes_too_long_fails(anywhere: Callable[..., Outcome]) -> None:
    begun = time.monotonic()
    outcome = anywhere(lambda: time.sleep(1), 30)

    assert outcome.error is not None
    assert outcome.error["code"] == "STEP_TIMEOUT"
    assert outcome.error["message"] == "The step ran longer than its timeout of 30 ms"
    assert not outcome.is_final
    assert anywhere is called_in_a_thread or time.monotonic() - begun < 0.9


def test_in_the_main_thread_the_function_is_interrupted() -> None:
    reached: list[str] = []

    def slow() -> None:
        time.sleep(0.3)
        reached.append("end")

    called(slow, 20)
    time.sleep(0.4)

    assert reached == []


def test_a_function_that_swallows_the_interruption_is_interrupted_again() -> None:
    def stubborn() -> None:
        for _ in range(2):
            with suppress(Exception):
                time.sleep(5)

    begun = time.monotonic()
    called(stubborn, 20)

    assert time.monotonic() - begun < 3


def test_an_async_function_that_takes_too_long_fails(anywhere: Callable[..., Outcome]) -> None:
    async def slow() -> None:
        await asyncio.sleep(1)

    outcome = anywhere(slow, 30)

    assert outcome.error is not None
    assert outcome.error["code"] == "STEP_TIMEOUT"


def test_an_async_function_that_takes_too_long_is_cancelled(anywhere: Callable[..., Outcome]) -> None:
    reached = threading.Event()

    async def slow() -> None:
        await asyncio.sleep(0.2)
        reached.set()

    anywhere(slow, 20)

    assert not reached.wait(0.5)


def test_a_function_within_its_limit_leaves_no_alarm_behind() -> None:
    assert called(lambda: 1, 50) == Outcome(result=1)
    time.sleep(0.1)


def test_a_limit_works_in_many_threads_at_once() -> None:
    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(lambda n: called(lambda: n, 2_000), range(32)))

    assert [outcome.result for outcome in outcomes] == list(range(32))


def test_the_thread_of_a_limited_function_ends_with_it() -> None:
    before = set(threading.enumerate())
    called_in_a_thread(lambda: None, 2_000)

    assert not set(threading.enumerate()) - before


# -- limits within limits ----------------------------------------------------------------------------------------------


def test_a_limit_inside_of_a_limit_ends_what_is_inside_only() -> None:
    def outer() -> str:
        inner = called(lambda: time.sleep(5), 30)
        assert inner.error is not None
        return str(inner.error["message"])

    assert called(outer, 5_000) == Outcome(result="The step ran longer than its timeout of 30 ms")


def test_the_outer_limit_holds_again_after_the_inner_one() -> None:
    reached: list[str] = []

    def outer() -> None:
        called(lambda: time.sleep(0.05), 5_000)
        reached.append("inner")
        time.sleep(5)

    begun = time.monotonic()
    outcome = called(outer, 200)

    assert outcome.error is not None
    assert outcome.error["message"] == "The step ran longer than its timeout of 200 ms"
    assert reached == ["inner"]
    assert time.monotonic() - begun < 3


def test_an_outer_limit_that_ran_out_inside_of_an_inner_one_ends_the_outer_right_after_it() -> None:
    reached: list[str] = []

    def outer() -> None:
        called(lambda: time.sleep(0.2), 5_000)
        time.sleep(5)
        reached.append("end")

    begun = time.monotonic()
    outcome = called(outer, 50)

    assert outcome.error is not None
    assert outcome.error["code"] == "STEP_TIMEOUT"
    assert reached == []
    assert time.monotonic() - begun < 3


def test_nested_limits_leave_no_alarm_behind() -> None:
    def outer() -> int:
        called(lambda: None, 80)
        return 1

    assert called(outer, 60) == Outcome(result=1)
    time.sleep(0.15)


def test_the_step_inside_is_another_one_and_the_outer_one_is_there_again_after_it() -> None:
    inside = replace(CONTEXT, step_name="inside", invocation_id="other")

    def outer() -> list[str]:
        inner = call(lambda: current_step().step_name, {}, inside, None)
        return [inner.result, current_step().step_name]

    assert called(outer) == Outcome(result=["inside", "step"])
