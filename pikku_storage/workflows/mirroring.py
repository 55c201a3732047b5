"""Passing on to the mirror what the engine wrote (contract services.md §3).

Every write of runs, steps, attempts and versions comes by here, once it has landed. The mirror is told after the
commit, in the process that wrote, and whatever goes wrong with it is logged and nothing else.
"""

from __future__ import annotations

import logging
import time
from copy import deepcopy
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache, partial
from typing import Protocol

from django.db import DatabaseError, InterfaceError, OperationalError, connections, models, router, transaction
from django.utils.module_loading import import_string

from pikku_storage.conf import settings
from pikku_storage.db import Engine
from pikku_storage.db.operations import Merge, Operation
from pikku_storage.exceptions import StepTimeoutError

logger = logging.getLogger(__name__)

PAUSE, LONGEST_PAUSE = 2.0, 60.0
"""Seconds for which a mirror that is down is left alone: ten times as long as it took to see that, within these
bounds."""


@dataclass(frozen=True, slots=True)
class Write:
    """What the engine wrote as one to the database `using`, and how many rows each operation touched there."""

    using: str
    operations: tuple[Operation | Merge, ...]
    counts: tuple[int, ...]

    def again(self, engine: Engine) -> tuple[int, ...]:
        """Do the same in another database; answers with the number of rows touched there."""
        first, *rest = self.operations
        if isinstance(first, Merge):
            return (engine.merge_json_key(first.model, first.id, first.field, first.key, first.value, first.at),)
        # A mirror need not wait for its disk: what its crash loses can be brought over again.
        return engine.apply(first, *rest, durable=False)  # type: ignore[arg-type]


class Mirror(Protocol):
    """What repeats writes; `PIKKU_STORAGE["MIRROR"]` names the class, or the database alias of a `WorkflowMirror`."""

    def repeat(self, write: Write) -> None:
        """Repeat a write that landed. What this raises is logged; an `OperationalError`, `InterfaceError` or `OSError`
        means that the mirror is down."""


def pass_on(using: str, operations: tuple[Operation | Merge, ...], counts: tuple[int, ...]) -> None:
    """Tell the mirror of a write to the database `using`, once it is committed: of what it did to mirrored tables.
    Nothing without a mirror."""
    named = settings.MIRROR
    if named is None or using == named or using != router.db_for_write(operations[0].model):
        return
    written = [pair for pair in zip(operations, counts, strict=True) if pair[0].model in mirrored()]
    if not written:
        return
    operations, counts = zip(*written, strict=True)
    if connections[using].in_atomic_block:
        # Until the commit, a body may change what its step has answered with.
        operations = deepcopy(operations)
    transaction.on_commit(partial(mirror(named).repeat, Write(using, operations, counts)), using=using)


@cache
def mirrored() -> frozenset[type[models.Model]]:
    """What a mirror has. Schedules and answers to approvals are not in it, but a run that a schedule starts is, and the
    outcome of an approval; the rest, such as who goes next under a limit, is for the engine."""
    from pikku_storage.workflows.models import WorkflowRun, WorkflowStep, WorkflowStepHistory, WorkflowVersion

    return frozenset((WorkflowRun, WorkflowStep, WorkflowStepHistory, WorkflowVersion))


class Careful:
    """A mirror that is never an error, and never waited for again and again."""

    def __init__(self, named: str) -> None:
        self.named = named
        self._down_until = 0.0
        self._missed = 0

    @cached_property
    def _mirror(self) -> Mirror:
        from pikku_storage.workflows.mirror import WorkflowMirror

        if self.named in connections:
            return WorkflowMirror(self.named)
        made: Mirror = import_string(self.named)()
        return made

    def repeat(self, write: Write) -> None:
        """See `Mirror.repeat`; only a step's time limit passes through."""
        began = time.monotonic()
        if began < self._down_until:
            self._missed += 1
            return
        try:
            self._mirror.repeat(write)
        except StepTimeoutError:
            raise
        except Exception as error:
            logger.warning("The mirror %r misses a write of %s", self.named, _subject(write), exc_info=True)
            if isinstance(error, OperationalError | InterfaceError | OSError):
                now = time.monotonic()
                self._down_until = now + min(max(PAUSE, 10 * (now - began)), LONGEST_PAUSE)
                self._missed += 1
        else:
            if self._missed:
                logger.warning(
                    "The mirror %r answers again. It missed %s writes of this process; "
                    "`manage.py mirror --catch-up` brings them over",
                    self.named,
                    self._missed,
                )
                self._missed = 0


@lru_cache(maxsize=8)
def mirror(named: str) -> Careful:
    """The mirror of that name in this process."""
    return Careful(named)


def _subject(write: Write) -> str:
    from pikku_storage.workflows.mirror import runs_of

    try:
        return f"run {', '.join(runs_of(write))}"
    except DatabaseError:
        return f"{write.operations[0]}"[:200]
