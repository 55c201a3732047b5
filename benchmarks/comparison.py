"""Two figures that belong side by side."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two figures in the same unit; `ratio` is the second by the first, at most `goal` if all is well."""

    title: str
    unit: str
    first: float
    second: float
    goal: float | None = None
    ratio: float | None = None

    @property
    def growth(self) -> float:
        """The ratio; the one that is given where the figures themselves were taken at different times."""
        return self.second / self.first if self.ratio is None else self.ratio

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {**asdict(self), "ratio": self.growth}
