"""The checkpoints of graphs, in threads of one owner. Knows nothing of LangGraph: what is kept is text.

A thread of somebody else looks as if it were empty, and nothing can be written into it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import current_thread, main_thread
from typing import Any

from django.db import connections
from django.db.models import Q

from pikku_storage.access.ownership import Ownership
from pikku_storage.agents import reads
from pikku_storage.agents.access import AgentAccess
from pikku_storage.agents.models import AgentCheckpoint, AgentCheckpointWrite, AgentThread
from pikku_storage.agents.service import AgentStorageService
from pikku_storage.db import engine
from pikku_storage.exceptions import ForbiddenError, ThreadExistsError, ThreadNotFoundError

PAGE = 100
"""How many checkpoints are read, copied or deleted at once."""
COLUMNS = ("key", "thread_id", "namespace", "checkpoint_id", "parent_id", "state", "metadata")
_NEWEST = ("-checkpoint_id", "-key")

Row = Mapping[str, Any]


class Checkpoints:
    """Those that `storage` reaches: an `AgentAccess` knows whose they are, `AgentStorageService` has to be told."""

    def __init__(self, storage: AgentAccess | AgentStorageService, owner: str | None) -> None:
        if isinstance(storage, AgentAccess) == (owner is not None):
            raise TypeError("AgentAccess knows itself whose threads it reaches; AgentStorageService needs an owner")
        self.using = storage.using
        self._storage = storage
        self._owner = owner or ""

    @property
    def _ownership(self) -> Ownership:
        # Not before it is asked for: it may have to be read.
        return self._storage.ownership if isinstance(self._storage, AgentAccess) else Ownership.given([self._owner])

    # -- reading -------------------------------------------------------------------------------------------------------

    def find(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> Row | None:
        """The checkpoint, or the last one of the namespace. Two reads."""
        if not self._owns(thread_id):
            return None
        rows = self._rows.filter(line=AgentCheckpoint.line_of(thread_id, namespace))
        if checkpoint_id is not None:
            rows = rows.filter(checkpoint_id=checkpoint_id)
        found: Row | None = rows.order_by("-checkpoint_id").values(*COLUMNS).first()
        return found

    def pages(
        self,
        thread_id: str | None,
        namespace: str | None,
        checkpoint_id: str | None,
        *,
        before: str | None,
        size: int = PAGE,
    ) -> Iterator[list[Row]]:
        """Checkpoints of a thread, or of all threads of the owner; the newest first."""
        rows = self._rows
        if thread_id is None:
            owned = reads.threads(self.using, self._ownership).order_by().values_list("pk", flat=True)
            rows = rows.filter(thread_id__in=engine(self.using).subquery(owned))
        elif self._owns(thread_id):
            rows = rows.filter(thread_id=thread_id)
        else:
            return
        if thread_id is not None and namespace is not None:
            rows = rows.filter(line=AgentCheckpoint.line_of(thread_id, namespace))
        if checkpoint_id is not None:
            rows = rows.filter(checkpoint_id=checkpoint_id)
        if before is not None:
            rows = rows.filter(checkpoint_id__lt=before)
        seen = Q()
        while page := list(rows.filter(seen).order_by(*_NEWEST).values(*COLUMNS)[:size]):
            yield page
            last = page[-1]
            same = Q(checkpoint_id=last["checkpoint_id"], key__lt=last["key"])
            seen = Q(checkpoint_id__lt=last["checkpoint_id"]) | same

    def namespaces(self, thread_id: str) -> list[str]:
        """All namespaces of a thread."""
        if not self._owns(thread_id):
            return []
        return sorted(set(self._rows.filter(thread_id=thread_id).order_by().values_list("namespace", flat=True)))

    def writes(self, keys: Sequence[str]) -> dict[str, list[Row]]:
        """What was written after each of these checkpoints. One read."""
        found: dict[str, list[Row]] = defaultdict(list)
        for write in self._writes.filter(checkpoint_key__in=keys).order_by().values() if keys else ():
            found[write["checkpoint_key"]].append(write)
        return found

    # -- writing -------------------------------------------------------------------------------------------------------

    def put(self, thread_id: str, namespace: str, checkpoint_id: str, values: Mapping[str, Any]) -> None:
        """Store a checkpoint, which changes the thread. Raises `ForbiddenError`."""
        self._need_thread(thread_id)
        at = engine(self.using).now()
        if not AgentThread.everyones.using(self.using).write(thread_id, at=at):
            raise ThreadNotFoundError(thread_id)
        line = AgentCheckpoint.line_of(thread_id, namespace)
        new = {"thread_id": thread_id, "line": line, "namespace": namespace, "checkpoint_id": checkpoint_id}
        self._rows.put(AgentCheckpoint.key_of(line, checkpoint_id), {**values, "created_at": at}, new=new)

    def put_writes(
        self, thread_id: str, namespace: str, checkpoint_id: str, task_id: str, writes: Iterable[Mapping[str, Any]]
    ) -> None:
        """Store what a task wrote. The first write of a place stays; where that is below 0, the last one counts. Raises
        `ForbiddenError`."""
        self._need_thread(thread_id)
        checkpoint_key = AgentCheckpoint.key_of(AgentCheckpoint.line_of(thread_id, namespace), checkpoint_id)
        common = {"thread_id": thread_id, "checkpoint_key": checkpoint_key, "task_id": task_id}
        rows = [
            {**common, **write, "key": AgentCheckpointWrite.key_of(checkpoint_key, task_id, write["place"])}
            for write in writes
        ]
        self._writes.add([row for row in rows if row["place"] >= 0])
        for row in rows:
            if row["place"] < 0:
                new = {name: value for name, value in row.items() if name not in {"key", "value"}}
                self._writes.put(row["key"], {"value": row["value"]}, new=new)

    def copy(self, source_id: str, target_id: str) -> None:
        """Copy the checkpoints of a thread, with what was written after them. Raises `ForbiddenError`."""
        for page in self.pages(source_id, None, None, before=None):
            self._need_thread(target_id)
            originals = self._rows.filter(pk__in=[row["key"] for row in page]).order_by().values()
            copies = {row["key"]: _copied(row, target_id) for row in originals}
            writes = [
                _copied_write(write, copies[key]) for key, found in self.writes(list(copies)).items() for write in found
            ]
            self._writes.add(writes)
            self._rows.add(list(copies.values()))

    # -- deleting ------------------------------------------------------------------------------------------------------

    def remove_of_thread(self, thread_id: str) -> None:
        """Delete the checkpoints of a thread, and not the thread."""
        if self._owns(thread_id):
            self._writes.remove_of_thread(thread_id)
            self._rows.remove_of_thread(thread_id)

    def remove_of_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints that these runs of graphs made."""
        of_runs = self._rows.filter(run_id__in=list(run_ids))
        for thread_id in set(of_runs.order_by().values_list("thread_id", flat=True)):
            if self._owns(thread_id):
                self._remove(of_runs.filter(thread_id=thread_id))

    def remove_before(self, thread_id: str, namespace: str, checkpoint_id: str) -> None:
        """Delete the checkpoints of a namespace that are older than this one."""
        if self._owns(thread_id):
            line = AgentCheckpoint.line_of(thread_id, namespace)
            self._remove(self._rows.filter(line=line, checkpoint_id__lt=checkpoint_id))

    def _remove(self, rows: Any) -> None:
        while keys := list(rows.order_by("checkpoint_id").values_list("key", flat=True)[:PAGE]):
            self._writes.remove_of_checkpoints(keys)
            self._rows.remove_these(keys)

    # ------------------------------------------------------------------------------------------------------------------

    @property
    def _rows(self) -> Any:
        return AgentCheckpoint.everyones.using(self.using)

    @property
    def _writes(self) -> Any:
        return AgentCheckpointWrite.everyones.using(self.using)

    def _owns(self, thread_id: str) -> bool:
        thread = reads.thread(self.using, thread_id)
        return thread is not None and self._ownership.covers(thread.resource_id)

    def _need_thread(self, thread_id: str) -> None:
        """See to it that there is the thread, and that it is the owner's."""
        if self._owns(thread_id):
            return
        try:
            if isinstance(self._storage, AgentAccess):
                self._storage.create_thread(thread_id=thread_id)
            else:
                self._storage.create_thread(self._owner, thread_id=thread_id)
        except ThreadExistsError:
            # Somebody else's, unless somebody makes it at this moment.
            if not self._owns(thread_id):
                raise ForbiddenError("Not authorized to access this thread") from None


@contextmanager
def leaving_no_connection(using: str) -> Iterator[None]:
    """In a side thread that has no connection yet, close it afterwards: LangGraph's own threads end without a word."""
    connection = connections[using]
    stays = connection.connection is not None or current_thread() is main_thread()
    try:
        yield
    finally:
        if not stays:
            connection.close()


def _copied(row: Mapping[str, Any], target_id: str) -> dict[str, Any]:
    line = AgentCheckpoint.line_of(target_id, row["namespace"])
    return {**row, "key": AgentCheckpoint.key_of(line, row["checkpoint_id"]), "thread_id": target_id, "line": line}


def _copied_write(write: Row, checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    key = AgentCheckpointWrite.key_of(checkpoint["key"], write["task_id"], write["place"])
    return {**write, "key": key, "checkpoint_key": checkpoint["key"], "thread_id": checkpoint["thread_id"]}
