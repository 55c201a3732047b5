"""What LangGraph's checkpoints cost, counted: statements, on every database, however many checkpoints there are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test.utils import CaptureQueriesContext
from langgraph.checkpoint.base import empty_checkpoint

from pikku_storage.agents.access import AgentAccess
from pikku_storage.agents.adapters.langgraph import PikkuSaver
from pikku_storage.db import engine
from tests.conformance.support import DATABASE, connection
from tests.cost.test_statements import CONTROL

pytestmark = pytest.mark.django_db(transaction=True)


def statements(work: Callable[[], Any]) -> int:
    """How many it takes, without those that begin and end transactions."""
    # The clock asks the server for its time once a minute, which is no part of any operation.
    engine(DATABASE).now()
    with CaptureQueriesContext(connection) as seen:
        work()
    return sum(not query["sql"].startswith(CONTROL) for query in seen.captured_queries)


@pytest.mark.parametrize("earlier", [1, 5])
def test_what_a_checkpoint_costs(earlier: int) -> None:
    saver = PikkuSaver(AgentAccess("ada"))
    config: Any = {"configurable": {"thread_id": "t1", "checkpoint_ns": ""}}
    for _ in range(earlier):
        config = saver.put(config, empty_checkpoint(), {}, {})
        saver.put_writes(config, [("a", 1)], "task")
    # Whose thread it is, that it changed, whether the checkpoint is there, and the checkpoint.
    assert statements(lambda: saver.put(config, empty_checkpoint(), {}, {})) == 4
    # Whose thread it is, what of it is there, and all of what is not.
    assert statements(lambda: saver.put_writes(config, [("a", 1), ("b", 2)], "another task")) == 3
    # Whose thread it is, the checkpoint, and what was written after it.
    assert statements(lambda: saver.get_tuple(config)) == 3
    assert statements(lambda: list(saver.list(config))) == 3
