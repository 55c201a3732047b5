"""How our models are kept on MongoDB: as the documents of the TypeScript packages (contract tables.md §4), so that both
may share a database.

One place decides it. A model gets its names when its class is made, so that migrations and models are the same on every
database: there the primary key is the document's `_id`, whatever its column is called in SQL, and the other fields are
named in camel case.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

from django.db import connections, models
from django.db.models.signals import class_prepared

from pikku_storage.conf import APP_LABELS, settings

VENDOR = "mongodb"
COLLECTIONS = {"pikku_user_sessions": "pikkuUserSessions"}
"""What the collection of a table is called, if not as the table."""
SHAPES: Mapping[str, Mapping[str, Any]] = {
    "workflow_runs": {
        "input": None,
        "output": None,
        "error": None,
        "state": {},
        "inline": False,
        "graphHash": None,
        "deterministic": False,
        "plannedSteps": [],
        "wire": None,
    },
    "workflow_step": {
        "rpcName": None,
        "data": None,
        "result": None,
        "error": None,
        "branchTaken": None,
        "retries": None,
        "retryDelay": None,
        "fromStepName": None,
    },
    "workflow_step_history": {
        "result": None,
        "error": None,
        "runningAt": None,
        "scheduledAt": None,
        "succeededAt": None,
        "failedAt": None,
    },
    "agent_threads": {"title": None, "metadata": None},
    "agent_message": {"content": None},
    "agent_tool_call": {
        "runId": None,
        "args": None,
        "result": None,
        "approvalStatus": None,
        "approvalType": None,
        "agentRunId": None,
        "displayToolName": None,
        "displayArgs": None,
    },
    "agent_run": {"errorMessage": None, "suspendReason": None, "missingRpcs": None},
    "agent_run_score": {"reason": None, "metadata": None},
    "channels": {"pikkuUserId": None},
    "secret_kek_salts": {},
}
"""By shared collection: what fields that may be without a value hold in a new document, if nothing else is known. A
null in any other field is left out there: the contract's documents have no such field before it has a value, and what
is ours they do not have at all."""
_WORD = re.compile("_([a-z])")
_named_for: ContextVar[str | None] = ContextVar("_named_for", default=None)


class Index(NamedTuple):
    """An index of a collection: its fields, each with 1 or -1, in order."""

    keys: tuple[tuple[str, int], ...]
    name: str
    is_unique: bool = False


def _index(*keys: tuple[str, int] | str, is_unique: bool = False) -> Index:
    directed = tuple((key, 1) if isinstance(key, str) else key for key in keys)
    return Index(directed, "_".join(f"{name}_{direction}" for name, direction in directed), is_unique)


SHARED_INDEXES: Mapping[str, tuple[Index, ...]] = {
    "workflow_runs": (_index("workflow"), _index("status"), _index(("createdAt", -1))),
    "workflow_step": (_index("workflowRunId", "stepName", is_unique=True), _index("workflowRunId")),
    "workflow_step_history": (_index("workflowStepId"), _index("createdAt")),
    "workflow_versions": (_index("workflowName", "graphHash", is_unique=True),),
    "agent_threads": (_index("resourceId"),),
    "agent_message": (_index("threadId", "createdAt"),),
    "agent_tool_call": (_index("threadId"), _index("messageId")),
    "agent_working_memory": (_index("id", "scope", is_unique=True),),
    "agent_run": (_index("threadId", "createdAt"),),
    "agent_run_score": (_index("runId", "createdAt"),),
    "channel_subscriptions": (_index("channelId", "topic", is_unique=True), _index("topic")),
    "pikku_deployments": (_index("lastHeartbeat"), _index("functions")),
    "secrets_audit": (_index("secretKey"),),
}
"""By collection: the indexes that the TypeScript services make when they start, under the names that MongoDB gives them
there. The server refuses a second index of the same fields under another name, so these must be the ones."""


def are_kept_in(alias: str) -> bool:
    """Whether the database of that alias holds documents."""
    return bool(connections[alias].vendor == VENDOR)


@contextmanager
def naming_for(alias: str) -> Iterator[None]:
    """Model classes that are made inside are named as the database of that alias names them."""
    token = _named_for.set(alias)
    try:
        yield
    finally:
        _named_for.reset(token)


def indexes_of(model: type[models.Model]) -> Iterator[Index]:
    """The indexes that the collection of a model has: first those that are shared, then those of the model's own that
    are not among them."""
    found = list(SHARED_INDEXES.get(model._meta.db_table, ()))
    for constraint in model._meta.total_unique_constraints:
        keys = tuple((_column(model, name), 1) for name in constraint.fields)
        found.append(Index(keys, str(constraint.name), is_unique=True))
    for index in model._meta.indexes:
        keys = tuple((_column(model, name), -1 if order else 1) for name, order in index.fields_orders)
        found.append(Index(keys, index.name))
    found += [
        _index(str(field.column), is_unique=field.unique)
        for field in model._meta.local_concrete_fields
        if not field.primary_key and (field.unique or field.db_index)  # type: ignore[attr-defined]
    ]
    # Of the same fields the first is enough: where one of them is unique, it comes first.
    seen: set[tuple[tuple[str, int], ...]] = set()
    for each in found:
        if each.keys not in seen:
            seen.add(each.keys)
            yield each


def completed(table: str, document: dict[str, Any]) -> dict[str, Any]:
    """A new document of that collection with the fields that it has there, and no others without a value."""
    shape = SHAPES.get(table)
    if shape is None:
        return document
    held = {name: value for name, value in document.items() if value is not None}
    return {**held, **{name: value for name, value in shape.items() if name not in held}}


def without_nulls(table: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a row, by the names of fields in SQL, with what its document holds where it may hold no null."""
    shape = SHAPES.get(table, {})
    return {name: shape.get(_camel(name)) if value is None else value for name, value in values.items()}


def _camel(name: str) -> str:
    return _WORD.sub(lambda match: match[1].upper(), name)


def _column(model: type[models.Model], name: str) -> str:
    return str(model._meta.get_field(name).column)  # type: ignore[union-attr]


def _name(sender: type[models.Model], **kwargs: Any) -> None:
    if not sender._meta.app_label.startswith(APP_LABELS) or not are_kept_in(_named_for.get() or settings.DATABASE):
        return
    for field in sender._meta.local_concrete_fields:
        field.column = _camel(str(field.column))
    sender._meta.pk.column = "_id"
    sender._meta.db_table = COLLECTIONS.get(sender._meta.db_table, sender._meta.db_table)


class_prepared.connect(_name)
