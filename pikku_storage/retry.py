"""How often and how soon something that failed is tried again (contract services.md §1.9, "step job options")."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from pikku_storage.durations import Duration, to_milliseconds

DEFAULT_RETRIES = 5
EXPONENTIAL = "exponential"
EXPONENTIAL_BASE_MS = 1_000
EXPONENTIAL_CEILING_MS = 600_000


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """`retries` extra attempts, so `retries + 1` in all; a fixed delay, or one that doubles from a second to ten
    minutes.

    `delay` is kept as the text that the `retry_delay` column holds: `"exponential"`, `"500"` (milliseconds), `"15s"`,
    or `None`.
    """

    retries: int | None = None
    delay: str | None = None

    @classmethod
    def of(cls, retries: int | None, delay: Duration | None) -> RetryPolicy:
        """A policy from what a user wrote; raises `ValueError` for what is no number of retries or no duration."""
        if retries is not None and (type(retries) is not int or retries < 0):
            raise ValueError(f"retries must be a whole number of at least 0, not {retries!r}")
        if isinstance(delay, str) and delay.isascii() and delay.isdigit():
            return cls(retries, delay)
        if delay is not None and delay != EXPONENTIAL:
            milliseconds = to_milliseconds(delay)
            return cls(retries, delay if isinstance(delay, str) else str(milliseconds))
        return cls(retries, None if delay is None else EXPONENTIAL)

    def overridden(self, retries: int | None, delay: Duration | None) -> RetryPolicy:
        """This policy with what is given put in its place; raises `ValueError` as `of`."""
        given = RetryPolicy.of(retries, delay)
        return RetryPolicy(
            self.retries if given.retries is None else given.retries,
            self.delay if given.delay is None else given.delay,
        )

    @property
    def max_attempts(self) -> int:
        """Attempts in all."""
        return (DEFAULT_RETRIES if self.retries is None else self.retries) + 1

    @property
    def fixed_delay_ms(self) -> int | None:
        """The fixed delay; `None` if it grows."""
        if self.delay is None or self.delay == EXPONENTIAL:
            return None
        return int(self.delay) if self.delay.isdigit() else to_milliseconds(self.delay)

    def delay_after(self, attempt: int) -> timedelta:
        """How long to wait after that attempt (1-based) failed."""
        fixed = self.fixed_delay_ms
        if fixed is None:
            fixed = min(EXPONENTIAL_BASE_MS << min(attempt - 1, 20), EXPONENTIAL_CEILING_MS)
        return timedelta(milliseconds=fixed)
