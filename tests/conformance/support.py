"""Small helpers that make the behaviours read like sentences."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import pytest
from django.db import connections, router
from django.test.utils import CaptureQueriesContext
from django.utils.connection import ConnectionProxy

from pikku_storage.workflows.models import WorkflowRun, WorkflowStep, WorkflowStepHistory, WorkflowVersion
from pikku_storage.workflows.records import HistoryEntry, StepState
from pikku_storage.workflows.registry import registry
from pikku_storage.workflows.runs import WorkflowRunService
from pikku_storage.workflows.service import WorkflowService

T = TypeVar("T")

DATABASE = router.db_for_write(WorkflowRun)
"""Alias of the database that the behaviours are shown on."""
connection: Any = ConnectionProxy(connections, DATABASE)
"""Its connection, as `django.db.connection` is the default one's."""

MIRROR = "mirror"
"""Alias of the database that the fixture `mirror` fills, in a module that uses `mirrored`."""
mirrored = [
    pytest.mark.usefixtures("mirror_database"),
    pytest.mark.django_db(transaction=True, databases=[DATABASE, MIRROR]),
]

needs_transactions = pytest.mark.skipif(connection.vendor == "mongodb", reason="the database has no transactions")
about_sql = pytest.mark.skipif(
    connection.vendor == "mongodb", reason="about the text of SQL; tests/cost has what MongoDB is told"
)

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)

_TRANSACTION = re.compile(
    r"^(BEGIN|COMMIT|ROLLBACK|SAVEPOINT|RELEASE SAVEPOINT|ROLLBACK TO SAVEPOINT)\b", re.IGNORECASE
)


def step_of(run_id: str, step_name: str) -> StepState:
    """The step as it is now."""
    return WorkflowService().get_step_state(run_id, step_name)


def attempts_of(run_id: str, step_name: str) -> list[HistoryEntry]:
    """The attempts of a step, oldest first."""
    return [entry for entry in WorkflowRunService().get_run_history(run_id) if entry.step_name == step_name]


def outcomes(run_id: str, step_name: str) -> list[str]:
    """The statuses of a step's attempts, oldest first."""
    return [entry.status for entry in attempts_of(run_id, step_name)]


def step_names(run_id: str) -> list[str]:
    """The names of a run's steps, oldest first."""
    return [step.step_name for step in WorkflowService().list_step_states(run_id)]


def noting(notes: list[Any], entry: Any, answer: T) -> T:
    """Add to the notes, and answer: what a lambda that is a step does."""
    notes.append(entry)
    return answer


def nothing_is_stored() -> bool:
    """Whether there is no run, step, attempt or version at all."""
    return not any(
        model._default_manager.exists() for model in (WorkflowRun, WorkflowStep, WorkflowStepHistory, WorkflowVersion)
    )


def data_statements(seen: CaptureQueriesContext) -> list[str]:
    """The statements of a block without those that begin and end transactions."""
    return [query["sql"] for query in seen.captured_queries if not _TRANSACTION.match(query["sql"])]


def transactions(seen: CaptureQueriesContext) -> int:
    """How many transactions a block took, counting a statement outside of any as one."""
    count, inside = 0, False
    for query in seen.captured_queries:
        text = query["sql"]
        if text.upper().startswith("BEGIN"):
            count, inside = count + 1, True
        elif text.upper().startswith(("COMMIT", "ROLLBACK")):
            inside = False
        elif not inside:
            count += 1
    return count


@contextmanager
def undeployed(name: str) -> Iterator[Callable[[], None]]:
    """This process does not know the function or workflow of that name, until the block ends or what it is given is
    called."""
    known: Any
    room: dict[str, Any]
    room = registry.functions if name in registry.functions else registry.workflows
    known = room.pop(name)

    def deploy() -> None:
        room[name] = known

    try:
        yield deploy
    finally:
        deploy()
