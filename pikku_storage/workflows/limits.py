"""How many runs of a workflow may be inside at once, how many may begin in a while, who goes first, and until when.

What is declared here holds unless operators have set something else in the database; see `engine/rules.py`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias
from uuid import UUID

from pikku_storage.durations import Duration, to_milliseconds
from pikku_storage.json import to_text

LAST, DEFAULT_PRIORITY, FIRST = 1, 5, 9
"""The range of priorities, and what a run has that was given none. A higher one goes first."""
MOST_SLOTS = 10_000
"""The largest concurrency limit."""
MOST_STARTS = 1_000
"""The most starts of a rate limit: its row keeps the time of each."""

KeyFunction: TypeAlias = Callable[..., Any]
"""Is given those of the run's input that it has parameters for; answers with a text, a number or a UUID, or with `None`
for a run that the limit does not concern."""
Priority: TypeAlias = int | Callable[..., int]
"""A number from 1 to 9, or a function of the input as a `KeyFunction` that answers with one."""
Deadline: TypeAlias = Duration | datetime
"""A duration from the start, or an aware time."""


@dataclass(frozen=True, slots=True)
class RateLimit:
    """At most `starts` in any `period`."""

    starts: int
    period: timedelta
    text: str

    @classmethod
    def of(cls, text: str) -> RateLimit:
        """From a text such as `"100/1m"`, `"100/m"` or `"5/10s"`; raises `ValueError`."""
        number, slash, period = str(text).partition("/")
        if not (slash and number.isascii() and number.isdigit() and 0 < int(number) <= MOST_STARTS):
            raise ValueError(f"a rate limit is a text like '100/1m', of 1 to {MOST_STARTS} starts; not {text!r}")
        milliseconds = to_milliseconds(period if period[:1].isdigit() else f"1{period}")
        if not milliseconds:
            raise ValueError(f"the rate limit {text!r} has a period of 0")
        return cls(int(number), timedelta(milliseconds=milliseconds), text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What `@workflow(limits=…)` declares. Raises `ValueError` for what cannot be meant."""

    concurrency: int | None = None
    """The most runs of the workflow that are inside at once."""
    concurrency_per_key: int | None = None
    """The most runs with the same key that are inside at once."""
    concurrency_key: KeyFunction | None = None
    """Computes that key from the input, once, when the run is started."""
    rate_limit: str | None = None
    """The most runs that begin in a period, such as `"100/1m"`; with `rate_limit_key`, for each of its keys."""
    rate_limit_key: KeyFunction | None = None
    """As `concurrency_key`."""
    keep_while_waiting: bool = False
    """Whether a run that sleeps, waits for a retry or is suspended keeps its slots, so that no other run comes between.
    Otherwise it gives them back, and must be let in again."""

    def __post_init__(self) -> None:
        check_slots("concurrency", self.concurrency)
        check_slots("concurrency_per_key", self.concurrency_per_key)
        if self.concurrency_per_key is not None and self.concurrency_key is None:
            raise ValueError("concurrency_per_key needs a concurrency_key")
        if self.rate_limit is not None:
            RateLimit.of(self.rate_limit)
        for name in ("concurrency_key", "rate_limit_key"):
            if not (getattr(self, name) is None or callable(getattr(self, name))):
                raise ValueError(f"{name} is a function of the input, not {getattr(self, name)!r}")


def check_slots(name: str, value: int | None) -> None:
    """Raise `ValueError` unless this is a limit of concurrency, or none."""
    if value is not None and (type(value) is not int or not 0 < value <= MOST_SLOTS):
        raise ValueError(f"{name} is a whole number from 1 to {MOST_SLOTS}, not {value!r}")


def check_priority(value: Any) -> int:
    """The priority, if it is one; raises `ValueError`."""
    if type(value) is not int or not LAST <= value <= FIRST:
        raise ValueError(f"a priority is a whole number from {LAST} (last) to {FIRST} (first), not {value!r}")
    return value


def deadline_of(deadline: Deadline, at: datetime) -> datetime:
    """The time that a run started at `at` must have ended by; raises `ValueError`."""
    if isinstance(deadline, datetime):
        if deadline.tzinfo is None:
            raise ValueError(f"a deadline that is a time has a time zone, unlike {deadline}")
        return deadline.astimezone(UTC)
    milliseconds = to_milliseconds(deadline)
    if not milliseconds:
        raise ValueError("a deadline of 0 leaves no time; leave it out for none")
    return at + timedelta(milliseconds=milliseconds)


def not_after(moment: datetime, deadline_at: datetime | None) -> datetime:
    """The moment, or the deadline if that is earlier."""
    return moment if deadline_at is None else min(moment, deadline_at)


def key_of(name: str, function: KeyFunction | None, values: Mapping[str, Any]) -> str | None:
    """The key of a run with these values of its parameters; raises `ValueError` if the function's answer is none, and
    whatever the function raises."""
    key = None if function is None else call_with(function, values)
    if key is None:
        return None
    if not isinstance(key, str | int | UUID) or isinstance(key, bool):
        raise ValueError(f"{name} answered with {key!r:.80}, which is no text, number or UUID")
    return to_text(str(key), root=f"${name}")


def call_with(function: Callable[..., Any], values: Mapping[str, Any]) -> Any:
    """Call a function with those of the values that it has parameters for."""
    names, is_open = parameters_of(function)
    return function(**{name: value for name, value in values.items() if is_open or name in names})


def parameters_of(function: Callable[..., Any]) -> tuple[dict[str, inspect.Parameter], bool]:
    """The parameters of a function by name, and whether it takes any others as well."""
    parameters = inspect.signature(function).parameters
    is_open = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    return {name: found for name, found in parameters.items() if found.kind is not found.VAR_KEYWORD}, is_open
