"""What scorers answer with."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from pikku_storage.exceptions import ScoringError
from pikku_storage.json import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Grade:
    """A grade that is not stored yet: from 0 to 1, why, and what there is to know about it (of a judge its `model`,
    `inputTokens`, `outputTokens` and `cost`)."""

    score: float
    reason: str | None = None
    metadata: dict[str, Json] = field(default_factory=dict)


def grade_of(given: Any, scorer_name: str) -> Grade:
    """The grade that was meant: a number, a number and a reason, or a `Grade`. What is beyond 0 and 1 counts as these.
    Raises `ScoringError` for what is no number."""
    if isinstance(given, Grade):
        return Grade(score=_within(given.score, scorer_name), reason=given.reason, metadata=given.metadata)
    score, reason = given if isinstance(given, tuple) and len(given) == 2 else (given, None)
    return Grade(score=_within(score, scorer_name), reason=None if reason is None else str(reason))


def _within(score: Any, scorer_name: str) -> float:
    if isinstance(score, bool) or not isinstance(score, int | float) or math.isnan(score):
        raise ScoringError(f"The scorer {scorer_name!r} must answer with a number from 0 to 1, not {score!r:.80}")
    return float(min(max(score, 0), 1))
