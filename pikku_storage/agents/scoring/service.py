"""Grading stored runs: now, or by workers after the run (contract SR-04, SR-07)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from django.db import transaction

from pikku_storage.agents import reads
from pikku_storage.agents.records import AgentRun, Score
from pikku_storage.agents.scoring.sampling import is_sampled
from pikku_storage.agents.scoring.scorers import Scorer, scorers
from pikku_storage.agents.scoring.snapshots import snapshot_of
from pikku_storage.agents.scoring.turns import Turn
from pikku_storage.agents.service import AgentStorageService
from pikku_storage.async_twins import AsyncTwins
from pikku_storage.conf import settings
from pikku_storage.exceptions import AgentRunNotFoundError, ScorerNotFoundError, ScoringError
from pikku_storage.ids import derived_id

logger = logging.getLogger(__name__)

HISTORY = 50
"""How many messages a scorer sees at most."""


class ScoringService(AsyncTwins):
    """Grades the runs of one database. Every method has an async twin."""

    def __init__(self, using: str | None = None) -> None:
        self._given = using
        self._storage = AgentStorageService(using)
        self.using = self._storage.using

    def get_turn(self, run_id: str) -> Turn:
        """What a scorer sees of a run: the last messages up to the next run of its thread. Raises
        `AgentRunNotFoundError`."""
        return self._turn(self._run(run_id))

    def grade_run(self, run_id: str, scorer: Scorer | str, *, key: Any = None) -> Score:
        """Grade a run, here and now, and store the grade; earlier ones stay. Raises `AgentRunNotFoundError`,
        `ScorerNotFoundError`, `ScoringError`, and whatever the scorer raises."""
        return self._store(self._run(run_id), _found(scorer), key)

    def send(self, run_id: str, names: Iterable[str] | Mapping[str, float]) -> list[str]:
        """Have workers grade a run live: one message for each of these scorers, to the queue of each; answers with the
        names of those that are asked, once the surrounding transaction commits.

        A mapping says which fraction of all runs each scorer grades: the same run is always answered alike. Nothing
        here fails for the sake of a grade: a scorer that is not known or that needs a key is left out with a warning,
        and so is one whose message the broker did not take. Raises `ScoringError` for a fraction that is none.
        """
        rates = names if isinstance(names, Mapping) else dict.fromkeys(names, 1.0)
        asked = [found for name, rate in rates.items() if (found := _live(name, run_id, rate)) is not None]
        if not asked:
            return []
        if settings.DISPATCHER is None:
            logger.warning(
                "Run %s is not graded live: PIKKU_STORAGE['DISPATCHER'] is None, so there are no workers to ask. "
                "Grade it with ScoringService.grade_run, or configure Celery",
                run_id,
            )
            return []
        transaction.on_commit(partial(_send, run_id, asked, self._given), using=self.using)
        return [scorer.name for scorer in asked]

    def grade_live(self, run_id: str, name: str) -> Score | None:
        """What a worker does with a message: grade the run once, however often the message arrives. `None` if the run
        is gone. Raises as `grade_run` does."""
        scorer = scorers.get(name)
        score_id = derived_id("live score", run_id, name)
        # Looked up first: a judge costs money.
        known = reads.score(self.using, score_id)
        if known is not None:
            return known
        try:
            return self._store(self._run(run_id), scorer, None, score_id=score_id)
        except AgentRunNotFoundError:
            logger.info("Run %s is gone, so the scorer %s does not grade it", run_id, name)
            return None

    def _store(self, run: AgentRun, scorer: Scorer, key: Any, score_id: str | None = None) -> Score:
        turn = self._turn(run)
        grade = scorer.grade(turn, key)
        metadata = {**grade.metadata, **({} if score_id is None else {"live": True})}
        snapshot = snapshot_of(turn.messages, scorer.snapshot)
        if snapshot is not None:
            metadata["snapshot"] = snapshot
        return self._storage.save_score(
            run.run_id, scorer.name, grade.score, reason=grade.reason, metadata=metadata, score_id=score_id
        )

    def _run(self, run_id: str) -> AgentRun:
        run = reads.run(self.using, run_id)
        if run is None:
            raise AgentRunNotFoundError(run_id)
        return run

    def _turn(self, run: AgentRun) -> Turn:
        until = reads.next_run_at(self.using, run)
        return Turn.of(reads.messages(self.using, run.thread_id, last=HISTORY, until=until), run)


def _found(scorer: Scorer | str) -> Scorer:
    return scorers.get(scorer) if isinstance(scorer, str) else scorer


def _live(name: str, run_id: str, rate: Any) -> Scorer | None:
    """The scorer, if it is to grade this run."""
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 <= rate <= 1:
        raise ScoringError(f"The scorer {name!r} is to grade a fraction of all runs from 0 to 1, not {rate!r}")
    try:
        scorer = scorers.get(name)
    except ScorerNotFoundError as error:
        logger.warning("Run %s is not graded: %s", run_id, error)
        return None
    if scorer.needs_key:
        logger.warning("The scorer %s compares with a key, and there is none for live runs", name)
        return None
    return scorer if is_sampled(run_id, name, rate) else None


def _send(run_id: str, asked: Sequence[Scorer], using: str | None) -> None:
    from pikku_storage.agents.tasks import score_run

    named = {} if using is None else {"using": using}
    for scorer in asked:
        try:
            score_run.apply_async((run_id, scorer.name), named, queue=scorer.queue or settings.QUEUE)
        except Exception:
            # The run is over and well; a grade that is missing is no reason to say anything else.
            logger.exception("Run %s is not graded by %s: its message could not be sent", run_id, scorer.name)
