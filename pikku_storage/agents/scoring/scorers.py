"""Declaring scorers, and the ones that this process knows."""

from __future__ import annotations

import inspect
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Literal, TypeAlias, overload

from pikku_storage.agents.scoring.grades import Grade, grade_of
from pikku_storage.agents.scoring.turns import Turn
from pikku_storage.exceptions import ScorerNotFoundError, ScoringError
from pikku_storage.json import to_text

Snapshot: TypeAlias = "Literal['whole'] | int | None"
"""How much of the conversation is kept with a grade: nothing, all of it, or at most that many characters."""
Answer: TypeAlias = "float | tuple[float, str] | Grade"
WHOLE = "whole"


class Scorer(ABC):
    """Something that grades turns. `queue` is the broker queue of its live grades."""

    needs_key = False
    """Whether it compares with a key, the answer that was expected; then it cannot grade live."""

    def __init__(self, name: str, *, queue: str | None = None, snapshot: Snapshot = None) -> None:
        self.name = to_text(name, root="name")
        self.queue = queue
        is_bound = isinstance(snapshot, int) and not isinstance(snapshot, bool) and snapshot > 0
        if not (snapshot is None or snapshot == WHOLE or is_bound):
            raise ScoringError(f"snapshot is None, 'whole' or a number of characters, not {snapshot!r}")
        self.snapshot = snapshot

    @property
    @abstractmethod
    def source_place(self) -> str:
        """Where it stands in the code."""

    def grade(self, turn: Turn, key: Any = None) -> Grade:
        """Grade a turn, here and now; nothing is stored. Raises `ScoringError` without a key that it needs, and if the
        answer is no number, and whatever the scorer raises."""
        if self.needs_key and key is None:
            raise ScoringError(f"The scorer {self.name!r} compares with a key, and was given none")
        return grade_of(self._answer(turn, key), self.name)

    @abstractmethod
    def _answer(self, turn: Turn, key: Any) -> Answer: ...

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


class FunctionScorer(Scorer):
    """A plain function of a turn; one with a second parameter `key` compares."""

    def __init__(self, func: Callable[..., Answer], *, name: str | None = None, **options: Any) -> None:
        super().__init__(func.__name__ if name is None else name, **options)
        self.func = func
        parameters = list(inspect.signature(func).parameters)
        if not parameters or parameters[1:] not in ([], ["key"]):
            raise ScoringError(f"{self.source_place}: a scorer is a function of a turn, or of a turn and a key")
        self.needs_key = len(parameters) > 1

    @property
    def source_place(self) -> str:
        """See `Scorer.source_place`."""
        return f"{self.func.__module__}.{self.func.__qualname__}"

    def __call__(self, *args: Any, **kwargs: Any) -> Answer:
        """Call the function itself."""
        return self.func(*args, **kwargs)

    def _answer(self, turn: Turn, key: Any) -> Answer:
        return self.func(turn, key) if self.needs_key else self.func(turn)


class Scorers:
    """The scorers of this process, by name."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.by_name: dict[str, Scorer] = {}

    def add(self, scorer: Scorer) -> None:
        """Register a scorer; raises `ScoringError` if the name is taken."""
        with self._lock:
            known = self.by_name.get(scorer.name)
            # The same place again is a reloaded module.
            if known is not None and known.source_place != scorer.source_place:
                raise ScoringError(
                    f"The scorer {scorer.name!r} is declared twice: by {known.source_place} and by "
                    f"{scorer.source_place}. Give one of them another name"
                )
            self.by_name[scorer.name] = scorer

    def get(self, name: str) -> Scorer:
        """The scorer of that name; raises `ScorerNotFoundError`."""
        try:
            return self.by_name[name]
        except KeyError:
            raise ScorerNotFoundError(name) from None


scorers = Scorers()


@overload
def scorer(func: Callable[..., Answer], /) -> FunctionScorer: ...


@overload
def scorer(
    *, name: str | None = None, queue: str | None = None, snapshot: Snapshot = None
) -> Callable[[Callable[..., Answer]], FunctionScorer]: ...


def scorer(func: Any = None, /, **options: Any) -> Any:
    """Declare a scorer: a function that grades a `Turn` with a number from 0 to 1, a number and a reason, or a `Grade`.

    With a second parameter `key` it compares with the answer that was expected. The `scorers.py` of each installed app
    is found by itself. Raises `ScoringError` for a name that is taken and a signature that cannot work.
    """

    def declare(func: Callable[..., Answer]) -> FunctionScorer:
        made = FunctionScorer(func, **options)
        scorers.add(made)
        return made

    return declare if func is None else declare(func)
