"""Calling a step function: sync or async, with a time limit, whatever it does."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any, NoReturn

from asgiref.sync import async_to_sync
from billiard import common as pool
from django.db import connections

from pikku_storage.exceptions import FinalError, PayloadError, StepTimeoutError, WorkflowInputError
from pikku_storage.json import Json, to_json
from pikku_storage.workflows.context import StepContext, inside
from pikku_storage.workflows.errors import describe_error

_FINAL = (FinalError, PayloadError, WorkflowInputError)
_was_told: list[bool] = pool._should_have_exited  # type: ignore[attr-defined] # its stubs lack it
"""Whether a signal has told this pool process to stop, as billiard notes it."""
_CAN_INTERRUPT = hasattr(signal, "setitimer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What an attempt came to: a result, or an error; `is_final` if trying again would not help."""

    result: Json = None
    branch: str | None = None
    """The branch that the function chose, if it did."""
    error: dict[str, Json] | None = None
    is_final: bool = False
    exception: BaseException | None = None
    """What was raised, for the log; only `error` is stored."""


def call(func: Callable[..., Any], data: dict[str, Json], context: StepContext, timeout_ms: int | None) -> Outcome:
    """Run a step function with `data` as its keyword arguments; whatever it raises becomes the outcome.

    Only the end of the whole process passes through (`ends_the_process`).
    """
    try:
        with inside(context):
            if inspect.iscoroutinefunction(func):
                value = _awaited(lambda: func(**data), timeout_ms)
            else:
                value = _limited(lambda: func(**data), timeout_ms)
                if inspect.isawaitable(value):
                    value = _awaited(lambda: value, timeout_ms)
        return Outcome(result=to_json(value, root="$result"), branch=context.branch_taken)
    except BaseException as error:
        if ends_the_process(error):
            raise
        return Outcome(error=describe_error(error), is_final=isinstance(error, _FINAL), exception=error)


def ends_the_process(error: BaseException) -> bool:
    """Whether this is no failure of user code, but the process being told to stop.

    That is `KeyboardInterrupt`, and a worker's own subclasses of `SystemExit`; a plain one is user code that called
    `sys.exit()`. But a pool process of Celery that gets a signal raises a plain one too, after noting that it did:
    whatever is raised from then on comes of that.
    """
    return (
        isinstance(error, KeyboardInterrupt)
        or (isinstance(error, SystemExit) and type(error) is not SystemExit)
        or _was_told[0]
    )


def _awaited(start: Callable[[], Awaitable[Any]], timeout_ms: int | None) -> Any:
    @async_to_sync
    async def bounded() -> Any:
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000) as limit:
                return await start()
        except TimeoutError:
            if not limit.expired():
                raise
            raise _timed_out(timeout_ms or 0) from None

    return bounded()


def _limited(work: Callable[[], Any], timeout_ms: int | None) -> Any:
    if timeout_ms is None:
        return work()
    if _CAN_INTERRUPT and threading.current_thread() is threading.main_thread():
        with _alarm(timeout_ms):
            return work()
    return _in_thread(work, timeout_ms)


def _timed_out(timeout_ms: int) -> StepTimeoutError:
    return StepTimeoutError(f"The step ran longer than its timeout of {timeout_ms} ms")


@contextmanager
def _alarm(timeout_ms: int) -> Iterator[None]:
    """Interrupt the main thread, also inside a blocking call."""

    def ring(signum: int, frame: FrameType | None) -> NoReturn:
        raise _timed_out(timeout_ms)

    began = time.monotonic()
    before = signal.signal(signal.SIGALRM, ring)
    # A step around this one (a run inside a step) has a limit of its own, which may end sooner.
    remaining, interval = signal.getitimer(signal.ITIMER_REAL)
    seconds = min(timeout_ms / 1000, remaining or float("inf"))
    # Again each second, for a function that swallows the first one.
    signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if remaining:
            signal.setitimer(signal.ITIMER_REAL, max(remaining - (time.monotonic() - began), 0.001), interval)


def _in_thread(work: Callable[[], Any], timeout_ms: int) -> Any:
    """Elsewhere than in the main thread nothing can be interrupted: the attempt ends at the limit, and what the
    function does afterwards is ignored."""
    ended: list[tuple[bool, Any]] = []
    context = contextvars.copy_context()

    def body() -> None:
        try:
            ended.append((True, context.run(work)))
        except BaseException as error:  # noqa: BLE001 - handed to the waiting thread
            ended.append((False, error))
        finally:
            connections.close_all()

    thread = threading.Thread(target=body, name="pikku-step", daemon=True)
    thread.start()
    thread.join(timeout_ms / 1000)
    if not ended:
        raise _timed_out(timeout_ms)
    succeeded, value = ended[0]
    if succeeded:
        return value
    raise value
