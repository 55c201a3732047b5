"""The mirror: another database that has what the engine wrote (contract services.md §3).

It is never a source of truth. A write that landed is repeated as it was, guards and all, so that writes of two workers
that come in the wrong order do not undo each other. One that does not touch the same rows as in its own database tells
that the mirror has missed something, or is ahead: then the run is compared, and brought over as it is now. So is every
run that ends, because what was missed must not stay missing, and every row that was written without a guard.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from django.core.exceptions import ImproperlyConfigured
from django.db import IntegrityError, InterfaceError, OperationalError, connections, router

from pikku_storage.conf import settings
from pikku_storage.db import engine
from pikku_storage.db.operations import Insert, InsertMany, Merge, Operation, Update
from pikku_storage.workflows.catch_up import Pair
from pikku_storage.workflows.mirroring import Write
from pikku_storage.workflows.models import WorkflowRun, WorkflowStep, WorkflowStepHistory, WorkflowVersion
from pikku_storage.workflows.statuses import TERMINAL_RUN_STATUSES
from pikku_storage.workflows.storage import WorkflowStorage


class WorkflowMirror(WorkflowStorage):
    """Repeats writes in the database alias `using`, by default the one that `PIKKU_STORAGE["MIRROR"]` names.

    Its tables are the workflow service's, so it has the same row operations; give them the engine's ids.
    """

    def __init__(self, using: str | None = None) -> None:
        alias = using or settings.MIRROR
        if alias is None or alias not in connections:
            raise ImproperlyConfigured(f"The mirror {alias!r} is no alias in DATABASES.")
        super().__init__(alias)

    @property
    def pair(self) -> Pair:
        """The database that the routers send runs to, and this one."""
        return Pair(engine(router.db_for_write(WorkflowRun)), self._runtime.engine)

    def catch_up(self, since: datetime | None = None) -> int:
        """Bring over what was missed and remove what is gone, of everything or of what may have changed since then;
        answers how many rows that took. Safe beside workers, and as often as it is called."""
        return self.pair.copy(since)

    def repeat(self, write: Write) -> None:
        """Repeat a write that landed. Raises what the database raises."""
        mine = self._runtime.engine
        try:
            pair = Pair(engine(write.using), mine)
            if not self._is_the_same(write) or _ends_a_run(write):
                pair.copy_rows(WorkflowVersion, _named(write, WorkflowVersion, "id"))
                pair.copy_runs(runs_of(write))
            elif not _has_guard(write):
                model = write.operations[0].model
                pair.copy_rows(model, _named(write, model, "id"))
        except (OperationalError, InterfaceError):
            if not mine.connection.in_atomic_block:
                # It is of no use any more, and the next write needs one.
                mine.connection.close()
            raise
        mine.release()

    def _is_the_same(self, write: Write) -> bool:
        mine = self._runtime.engine
        try:
            with mine.savepoint():
                return write.again(mine) == write.counts
        except IntegrityError:
            return False


def _has_guard(write: Write) -> bool:
    """Whether the write would touch nothing if it came too late."""
    first = write.operations[0]
    return not isinstance(first, Merge) and not (isinstance(first, Update) and first.where.keys() == {"id"})


def _ends_a_run(write: Write) -> bool:
    return any(
        isinstance(operation, Update)
        and operation.model is WorkflowRun
        and operation.values.get("status") in TERMINAL_RUN_STATUSES
        for operation in write.operations
    )


def runs_of(write: Write) -> list[str]:
    """Ids of the runs that a write belongs to. A read, where it names only steps."""
    run_ids = [*_named(write, WorkflowRun, "id"), *_named(write, WorkflowStep, "run_id")]
    if not run_ids:
        step_ids = [*_named(write, WorkflowStep, "id"), *_named(write, WorkflowStepHistory, "step_id")]
        steps = WorkflowStep.objects.using(write.using).filter(pk__in=step_ids)
        run_ids = list(steps.order_by().values_list("run_id", flat=True))
    return list(dict.fromkeys(run_ids))


def _named(write: Write, model: type, column: str) -> list[str]:
    """The values of a column that the operations on that model name."""
    return [value for operation in write.operations if operation.model is model for value in _values(operation, column)]


def _values(operation: Operation | Merge, column: str) -> Iterator[str]:
    if isinstance(operation, Merge):
        yield from [operation.id] if column == "id" else []
    elif isinstance(operation, InsertMany):
        yield from (value for row in operation.rows for value in [{**operation.common, **row}.get(column)] if value)
    else:
        value = (operation.values if isinstance(operation, Insert) else operation.where).get(column)
        yield from [value] if isinstance(value, str) else value or []
