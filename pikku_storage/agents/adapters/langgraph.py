"""A checkpointer for LangGraph (`pip install "django-pikku-storage[langgraph]"`).

A thread of a graph is one of our threads and has an owner. Its checkpoints have tables of their own, are deleted with
the thread, and are handed out and erased with all that belongs to its owner.

A graph that is invoked synchronously saves from threads of its own, so on other connections than its caller: do not
invoke one inside a transaction.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any

from asgiref.sync import sync_to_async
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_checkpoint_id,
    get_checkpoint_metadata,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from pikku_storage.agents.access import AgentAccess
from pikku_storage.agents.checkpoints import PAGE, Checkpoints, Row, leaving_no_connection
from pikku_storage.agents.service import AgentStorageService
from pikku_storage.async_twins import AsyncTwins

_DELTAS = "counters_since_delta_snapshot"


class PikkuSaver(AsyncTwins, BaseCheckpointSaver[int]):
    """Keeps the checkpoints of graphs in threads of one owner.

    `storage` is an `AgentAccess`, which keeps to what its session may reach, or the `AgentStorageService` together with
    an `owner`. A thread that does not exist is made when something is saved, for that session or owner. A thread of
    somebody else looks as if it had no checkpoints; saving into it raises `ForbiddenError`.
    """

    def __init__(
        self,
        storage: AgentAccess | AgentStorageService,
        *,
        owner: str | None = None,
        serde: SerializerProtocol | None = None,
    ) -> None:
        super().__init__(serde=serde)
        self._checkpoints = Checkpoints(storage, owner)

    # -- reading -------------------------------------------------------------------------------------------------------

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The checkpoint that the config names, or the last one. Three reads."""
        with self._connection():
            row = self._checkpoints.find(*_place(config))
            return None if row is None else next(self._tuples([row]))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Checkpoints of the thread, or with `None` of all of the owner's, the newest first, page by page."""
        configurable = {} if config is None else config["configurable"]
        size = PAGE if limit is None or filter else min(limit, PAGE)
        pages = self._checkpoints.pages(
            str(configurable["thread_id"]) if configurable else None,
            configurable.get("checkpoint_ns"),
            get_checkpoint_id(config) if config is not None else None,
            before=get_checkpoint_id(before) if before is not None else None,
            size=size,
        )
        left = limit
        while left is None or left > 0:
            with self._connection():
                page = next(pages, [])
                wanted = [row for row in page if not filter or self._meets(row, filter)][:left]
                found = [*self._tuples(wanted)]
            yield from found
            left = None if left is None else left - len(found)
            if len(page) < size:
                return

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Async twin of `list`."""
        found = self.list(config, filter=filter, before=before, limit=limit)
        following = sync_to_async(lambda: next(found, None))
        while (each := await following()) is not None:
            yield each

    # -- writing -------------------------------------------------------------------------------------------------------

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Save a checkpoint, whole; the config may name its parent. It changes the thread. Raises `ForbiddenError`."""
        thread_id, namespace, parent_id = _place(config)
        told: Any = get_checkpoint_metadata(config, metadata)
        values = {
            "parent_id": parent_id,
            "run_id": None if told.get("run_id") is None else str(told["run_id"]),
            "state": self._pack(checkpoint),
            "metadata": self._pack(told),
        }
        with self._connection():
            self._checkpoints.put(thread_id, namespace, checkpoint["id"], values)
        return _config(thread_id, namespace, checkpoint["id"])

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Save what a task wrote after the checkpoint. The first write of a place stays, but for errors, interrupts and
        the like, of which the last one counts. Raises `ForbiddenError`."""
        thread_id, namespace, checkpoint_id = _place(config)
        rows = [
            {
                "place": WRITES_IDX_MAP.get(channel, place),
                "task_path": task_path,
                "channel": channel,
                "value": self._pack(value),
            }
            for place, (channel, value) in enumerate(writes)
        ]
        with self._connection():
            self._checkpoints.put_writes(thread_id, namespace, str(checkpoint_id), task_id, rows)

    # -- upkeep --------------------------------------------------------------------------------------------------------

    def delete_thread(self, thread_id: str) -> None:
        """Delete the checkpoints of a thread with what was written after them. The thread itself, with its messages,
        stays; `AgentAccess.delete_thread` deletes it with all of them."""
        with self._connection():
            self._checkpoints.remove_of_thread(str(thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints that these runs of graphs made."""
        with self._connection():
            self._checkpoints.remove_of_runs([str(run_id) for run_id in run_ids])

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy all checkpoints of a thread, with what was written after them, into another one, which is made if need
        be. Messages are not copied. Raises `ForbiddenError` for a target of somebody else."""
        with self._connection():
            self._checkpoints.copy(str(source_thread_id), str(target_thread_id))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Delete the checkpoints of these threads (`delete`), or all but the last one of each namespace
        (`keep_latest`). A namespace whose last checkpoint holds only changes of a `DeltaChannel`, and so needs the
        earlier ones, is left as it is."""
        if strategy not in {"keep_latest", "delete"}:
            raise ValueError(f"The strategy is keep_latest or delete, not {strategy!r}")
        for thread_id in map(str, thread_ids):
            if strategy == "delete":
                self.delete_thread(thread_id)
                continue
            with self._connection():
                for namespace in self._checkpoints.namespaces(thread_id):
                    last = self._checkpoints.find(thread_id, namespace, None)
                    if last is not None and not self._unpack(last["metadata"]).get(_DELTAS):
                        self._checkpoints.remove_before(thread_id, namespace, last["checkpoint_id"])

    # ------------------------------------------------------------------------------------------------------------------

    def _connection(self) -> Any:
        return leaving_no_connection(self._checkpoints.using)

    def _meets(self, row: Row, wanted: Mapping[str, Any]) -> bool:
        metadata = self._unpack(row["metadata"])
        return all(metadata.get(name) == value for name, value in wanted.items())

    def _tuples(self, rows: Sequence[Row]) -> Iterator[CheckpointTuple]:
        written = self._checkpoints.writes([row["key"] for row in rows])
        for row in rows:
            # The order in which a graph applies them while it runs.
            writes = sorted(written.get(row["key"], ()), key=itemgetter("task_path", "task_id", "place"))
            thread_id, namespace, parent_id = row["thread_id"], row["namespace"], row["parent_id"]
            yield CheckpointTuple(
                config=_config(thread_id, namespace, row["checkpoint_id"]),
                checkpoint=self._unpack(row["state"]),
                metadata=self._unpack(row["metadata"]),
                parent_config=None if parent_id is None else _config(thread_id, namespace, parent_id),
                pending_writes=[(each["task_id"], each["channel"], self._unpack(each["value"])) for each in writes],
            )

    def _pack(self, value: Any) -> str:
        """What the serializer makes of it, as text: `<type>:<base64>`."""
        kind, data = self.serde.dumps_typed(value)
        return f"{kind}:{base64.b64encode(data).decode()}"

    def _unpack(self, text: str) -> Any:
        kind, _, data = text.partition(":")
        return self.serde.loads_typed((kind, base64.b64decode(data)))


def _place(config: RunnableConfig) -> tuple[str, str, str | None]:
    """Thread, namespace, and checkpoint if one is named."""
    configurable = config["configurable"]
    return str(configurable["thread_id"]), configurable.get("checkpoint_ns") or "", get_checkpoint_id(config)


def _config(thread_id: str, namespace: str, checkpoint_id: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": namespace, "checkpoint_id": checkpoint_id}}
