"""Workflows with limits, and a process that carries them out: `python -m tests.races.limited WORKFLOW COUNT < "go"`;
prints what it saw, as JSON."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any

import django
from django.utils import timezone

from pikku_storage.workflows import Limits, current_step, function, workflow
from tests.races.together import wait_for_the_word

if TYPE_CHECKING:
    from pikku_storage.workflows.flow import Flow

LIMIT = 3
PER_KEY = 2


def look_around(key: str) -> tuple[int, int]:
    """Come in, see how many are inside, altogether and with this key, and go; what was seen.

    All that is counted were inside at the moment of the read, so what is seen is never too much.
    """
    from pikku_storage.workflows.models import WorkflowVersion

    # A table that has nothing to do with limits.
    rows = WorkflowVersion.objects.using(WorkflowVersion.objects.db)
    at = {"graph": {}, "source": "inside", "created_at": timezone.now()}
    me = rows.create(id=current_step().invocation_id, workflow_name=key, graph_hash=current_step().run_id, **at)
    inside = [row.workflow_name for row in rows.filter(source="inside")]
    seen = len(inside), inside.count(key)
    me.delete()
    return seen


@function(name="limits.look", retries=2, retry_delay=0)
def look(key: str) -> Any:
    return look_around(key)


@function(name="limits.hang", retries=2, retry_delay=0)
def hang(hangs: bool) -> int:
    """The first attempt never ends, if it is to hang."""
    if hangs and current_step().attempt == 1:
        sys.stdout.write("hanging\n")
        sys.stdout.flush()
        time.sleep(600)
    return os.getpid()


@workflow(name="limits.all", limits=Limits(concurrency=LIMIT))
def limited(flow: Flow, key: str) -> Any:
    return flow.do("look", look, {"key": key})


@workflow(
    name="limits.keyed",
    limits=Limits(concurrency=LIMIT, concurrency_per_key=PER_KEY, concurrency_key=lambda key: key),
)
def keyed(flow: Flow, key: str) -> Any:
    return flow.do("look", look, {"key": key})


@workflow(name="limits.napping", limits=Limits(concurrency=LIMIT))
def napping(flow: Flow, key: str) -> Any:
    first = flow.do("look", look, {"key": key})
    flow.sleep("nap", 0)
    flow.sleep("longer", 1)
    return [max(pair) for pair in zip(first, flow.do("look again", look, {"key": key}), strict=True)]


@workflow(name="limits.rated", limits=Limits(rate_limit="5/1h"))
def rated(flow: Flow, key: str) -> Any:
    return flow.do("look", look, {"key": key})


@workflow(name="limits.hanging", limits=Limits(concurrency=LIMIT))
def hanging(flow: Flow, key: str) -> Any:
    return flow.do("hang", hang, {"hangs": key == "a"})


def main() -> None:
    """Say that this process is ready, wait for the word, then carry out runs."""
    name, count = sys.argv[1], int(sys.argv[2])
    django.setup()
    from pikku_storage.workflows.service import WorkflowService

    wait_for_the_word()
    service = WorkflowService()
    data: list[dict[str, Any]] = [{"key": "ab"[number % 2]} for number in range(count)]
    runs = [service.run_inline(name, each) for each in data]
    json.dump([run.output for run in runs], sys.stdout)


if __name__ == "__main__":
    main()
