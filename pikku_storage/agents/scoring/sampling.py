"""Which runs are graded live."""

from __future__ import annotations

from hashlib import sha256

_BYTES = 8


def is_sampled(run_id: str, scorer_name: str, rate: float) -> bool:
    """Whether that scorer grades that run, if it grades that fraction of all runs (contract SR-05). The same run and
    scorer are answered alike each time, and scorers do not follow one another."""
    digest = sha256(f"{run_id}\x1f{scorer_name}".encode()).digest()[:_BYTES]
    return int.from_bytes(digest, "big") < rate * (1 << 8 * _BYTES)
