"""What is timed. A scenario says what must be done; how a system does it is the system's business."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """The shapes of work."""

    COMMITS = "commits"
    """Guarded UPDATEs of one row, each committed on its own: what the database gives to one client at best."""
    CHAIN = "chain"
    """Steps one after the other, each recorded before the next begins."""
    FANOUT = "fan-out"
    """Steps side by side, and one that waits for all of them."""
    BURST = "burst"
    """Many chains begun at once: what the workers get done when there is always something to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """`runs` runs of `steps` trivial steps each. A round takes the median of `repeats` goes, or of `quick_repeats`."""

    kind: Kind
    steps: int
    runs: int = 1
    repeats: int = 1
    quick_repeats: int = 1

    @property
    def key(self) -> str:
        """Its name in the JSON report, such as `chain-100` or `burst-20x10`."""
        return f"{self.kind}-{self.steps}" if self.runs == 1 else f"{self.kind}-{self.runs}x{self.steps}"

    @property
    def total_steps(self) -> int:
        """Steps (or commits) in one go."""
        return self.steps * self.runs


COMMITS = Scenario(kind=Kind.COMMITS, steps=1000)
CHAIN_1 = Scenario(kind=Kind.CHAIN, steps=1, repeats=10, quick_repeats=3)
CHAIN_10 = Scenario(kind=Kind.CHAIN, steps=10, repeats=3)
CHAIN_100 = Scenario(kind=Kind.CHAIN, steps=100)
FANOUT = Scenario(kind=Kind.FANOUT, steps=100)
BURST = Scenario(kind=Kind.BURST, steps=10, runs=20)

ALL = (CHAIN_1, CHAIN_10, COMMITS, CHAIN_100, BURST, FANOUT)
"""In the order of a round: commits stand beside what is compared with them."""
WARM_UP = frozenset({COMMITS, CHAIN_10, FANOUT})
"""What is done once before the first round; the shorter and longer ones take the same paths."""
