"""Somebody's data: handed out whole, and erased whole.

It is what belongs to one owner and to the partitions of that owner: threads with everything in them, and the working
memory of the owner. What somebody decided in a thread of another owner stays, without their id.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime
from typing import Any

from django.db.models import Q

from pikku_storage.access.actors import id_of
from pikku_storage.access.ownership import Ownership
from pikku_storage.agents import reads
from pikku_storage.agents.models import AgentCheckpoint, AgentCheckpointWrite, AgentThread, AgentToolCall
from pikku_storage.agents.models import AgentWorkingMemory as Memory
from pikku_storage.agents.records import AgentRun as Run
from pikku_storage.agents.records import Erased, Thread
from pikku_storage.agents.removal import remove_thread
from pikku_storage.agents.statuses import MemoryScope
from pikku_storage.json import Json

BATCH = 100


def export(using: str, owner: Any) -> Iterator[str]:
    """One JSON document in pieces: `{owner, workingMemory: [{id, data, updatedAt}], threads: [{…, messages, runs,
    checkpoints}]}`. What LangGraph's serializer made is as it is stored: `<type>:<base64>`.

    One thread at a time is in memory.
    """
    owner_id = id_of(owner, role="owner")
    yield f'{{"owner": {json.dumps(owner_id)}, "workingMemory": ['
    for place, memory in enumerate(_memories(using, owner_id).values("memory_id", "data", "updated_at").iterator()):
        row = {"id": memory["memory_id"], "data": memory["data"], "updatedAt": memory["updated_at"]}
        yield _separated(place, row)
    yield '], "threads": ['
    for place, thread in enumerate(_threads(using, owner_id)):
        yield _separated(place, _whole(using, thread))
    yield "]}\n"


def export_thread(using: str, thread: Thread) -> str:
    """A thread as it stands in the document of `export`."""
    return _text(_whole(using, thread))


def erase(using: str, owner: Any) -> Erased:
    """Delete all of it; answers how much there was. After a crash in the middle it is finished by asking again."""
    owner_id = id_of(owner, role="owner")
    threads = sum(remove_thread(using, thread.id) for thread in _threads(using, owner_id))
    memories = Memory.objects.using(using).remove(_resource_memories(owner_id))
    AgentToolCall.everyones.using(using).forget_who_resolved(owner_id)
    return Erased(threads=threads, memories=memories)


def _threads(using: str, owner_id: str) -> Iterator[Thread]:
    """In the order of their ids, page by page: what is deleted meanwhile does not shift the pages."""
    rows = AgentThread.everyones.using(using).filter(Ownership.given([owner_id]).condition("resource_id"))
    last = ""
    while page := list(rows.filter(id__gt=last).order_by("id").values(*Thread.COLUMNS)[:BATCH]):
        for row in page:
            yield Thread(**row)
        last = page[-1]["id"]


def _memories(using: str, owner_id: str) -> Any:
    return Memory.objects.using(using).filter(_resource_memories(owner_id)).order_by("memory_id")


def _resource_memories(owner_id: str) -> Q:
    return Ownership.given([owner_id]).condition("memory_id") & Q(scope=MemoryScope.RESOURCE)


def _whole(using: str, thread: Thread) -> dict[str, Json]:
    memory = Memory.objects.using(using).of(thread.id, MemoryScope.THREAD).values_list("data", flat=True).first()
    runs = [Run.from_row(row) for row in reads.runs(using, thread_id=thread.id).values(*Run.COLUMNS)]
    return {
        **asdict(thread),
        "workingMemory": memory,
        "messages": [asdict(message) for message in reads.messages(using, thread.id)],
        "runs": [whole for some in _batches(runs) for whole in _whole_runs(using, some)],
        "checkpoints": _checkpoints(using, thread.id),
    }


def _batches(runs: list[Run]) -> Iterator[list[Run]]:
    """So many at once as one statement may name."""
    return (runs[start : start + BATCH] for start in range(0, len(runs), BATCH))


def _whole_runs(using: str, runs: list[Run]) -> Iterator[dict[str, Json]]:
    run_ids = [run.run_id for run in runs]
    approvals, scores = reads.approvals_of_runs(using, run_ids), reads.scores_of_runs(using, run_ids)
    for run in runs:
        yield {
            **asdict(run),
            "approvals": [asdict(approval) for approval in approvals.get(run.run_id, [])],
            "scores": [asdict(score) for score in scores.get(run.run_id, [])],
        }


def _checkpoints(using: str, thread_id: str) -> list[dict[str, Json]]:
    writes: dict[str, list[dict[str, Json]]] = defaultdict(list)
    of_thread = AgentCheckpointWrite.everyones.using(using).filter(thread_id=thread_id).order_by("task_id", "place")
    for write in of_thread.values("checkpoint_key", "task_id", "channel", "value"):
        writes[write["checkpoint_key"]].append({name: write[name] for name in ("task_id", "channel", "value")})
    columns = ("namespace", "checkpoint_id", "parent_id", "state", "metadata", "created_at")
    rows = AgentCheckpoint.everyones.using(using).filter(thread_id=thread_id).order_by("checkpoint_id", "key")
    return [
        {**{name: row[name] for name in columns}, "writes": writes.get(row["key"], [])}
        for row in rows.values("key", *columns)
    ]


def _separated(place: int, row: dict[str, Json]) -> str:
    return ("" if place == 0 else ", ") + _text(row)


def _text(row: dict[str, Json]) -> str:
    return json.dumps(_camel(row), ensure_ascii=False, default=_plain)


def _camel(value: Any) -> Any:
    """Our own names in camel case, as everywhere in JSON. What was stored stays as it is."""
    if not isinstance(value, dict):
        return value
    return {
        _name(name): [_camel(each) for each in inner] if name in _LISTS else _camel(inner) if name == "usage" else inner
        for name, inner in value.items()
    }


_LISTS = ("messages", "runs", "approvals", "scores", "tool_calls", "tool_results", "checkpoints", "writes")


def _name(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


def _plain(value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} is not JSON")
