"""Where the running step function is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol

from pikku_storage.access.acting import acting_as
from pikku_storage.async_twins import AsyncTwins
from pikku_storage.exceptions import PayloadError, WorkflowError, WorkflowInputError
from pikku_storage.json import Json, to_text

_LONGEST_KEY = 255


class RunState(Protocol):
    """The state of one run, in the database."""

    def read(self) -> dict[str, Json]:
        """All of it."""
        ...

    def write(self, key: str, value: Any) -> None:
        """Set one key."""
        ...


class KeptState(dict[str, Json]):
    """The state of a step that is of no run, as in a test of its function alone."""

    def read(self) -> dict[str, Json]:
        """See `RunState`."""
        return dict(self)

    def write(self, key: str, value: Any) -> None:
        """See `RunState`."""
        self[key] = value


@dataclass(frozen=True, kw_only=True)
class StepContext(AsyncTwins):
    """The step whose function is running."""

    run_id: str
    step_id: str
    step_name: str
    invocation_id: str
    """The same in every attempt: use it as the idempotency key of what the step does to the world."""
    from_invocation_id: str | None
    """The invocation id of the step the run came from."""
    attempt: int
    """1 for the first try."""
    owner_id: str | None
    """The owner of the run."""
    _state: RunState = field(default_factory=KeptState, repr=False, compare=False)
    _chosen: list[str] = field(default_factory=list, init=False, repr=False, compare=False)

    def branch(self, key: str) -> None:
        """Choose the way on from this node of a graph, by the key in its `next`; the last choice counts.

        It is recorded with the step's result. Elsewhere than in a graph it is recorded only. Raises
        `WorkflowInputError`.
        """
        try:
            self._chosen.append(to_text(key, root="$branch", longest=_LONGEST_KEY))
        except PayloadError as error:
            raise WorkflowInputError(f"{key!r:.80} is no key of a branch: it {error.reason}") from None

    @property
    def branch_taken(self) -> str | None:
        """The branch that was chosen, if any."""
        return self._chosen[-1] if self._chosen else None

    def set_state(self, key: str, value: Any) -> None:
        """Set one key of the run's state, now; parallel steps that set different keys do not lose each other's. Raises
        `PayloadError` for what is not JSON. In an `async def`: `await step.aset_state(…)`."""
        self._state.write(key, value)

    def get_state(self, key: str, default: Any = None) -> Any:
        """What is stored in the run's state now, else `default`. In an `async def`: `await step.aget_state(…)`."""
        return self._state.read().get(key, default)


running_step: ContextVar[StepContext] = ContextVar("pikku_running_step")


@contextmanager
def inside(step: StepContext) -> Iterator[None]:
    """Inside the block this step is running, and the owner of its run acts."""
    token = running_step.set(step)
    try:
        with acting_as(step.owner_id):
            yield
    finally:
        running_step.reset(token)


def current_step() -> StepContext:
    """The step that is running in this thread or task; raises `WorkflowError` outside of a step function."""
    try:
        return running_step.get()
    except LookupError:
        raise WorkflowError("current_step() was called outside of a step function") from None
