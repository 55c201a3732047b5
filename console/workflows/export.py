"""A run as one JSON document, written piece by piece: however large it is, little of it is in memory at once."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder
from django.db.models import Model, QuerySet

from pikku_storage.workflows.models import WorkflowAnswer, WorkflowRun, WorkflowStep
from pikku_storage.workflows.reads import attempts_of
from pikku_storage.workflows.timeline import TimelineEvent

FORMAT = "pikku-run/1"
_AT_ONCE = 50
"""Rows that are in memory at once; each may have payloads of a megabyte."""
_TOKENS = frozenset({"pass_token", "pass_until", "wake_token", "claim_token"})
"""What lets a worker write is nobody's business."""


def written(run: WorkflowRun, events: Iterable[TimelineEvent], *, using: str) -> Iterator[str]:
    """The document: the run's own columns, then its `steps`, `attempts`, `answers` and `events`."""
    yield f'{{"format": {json.dumps(FORMAT)}, "run": {_text(_columns(run))}'
    rows: Mapping[str, QuerySet[Any]] = {
        "steps": WorkflowStep.objects.using(using).filter(run_id=run.pk).order_by("created_at", "id"),
        "attempts": attempts_of(using, [run.pk]).order_by("created_at", "attempt", "step_id"),
        "answers": WorkflowAnswer.objects.using(using).filter(run_id=run.pk).order_by("step_name", "ordinal"),
    }
    for name, found in rows.items():
        yield from _listed(name, (_columns(row) for row in found.iterator(chunk_size=_AT_ONCE)))
    yield from _listed("events", map(_event, events))
    yield "\n}\n"


def _listed(name: str, items: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    yield f',\n"{name}": ['
    separator = "\n"
    for item in items:
        yield separator + _text(item)
        separator = ",\n"
    yield "]"


def _columns(row: Model) -> dict[str, Any]:
    return {
        field.attname: getattr(row, field.attname)
        for field in row._meta.concrete_fields
        if field.attname not in _TOKENS
    }


def _event(event: TimelineEvent) -> dict[str, Any]:
    return {
        "number": event.seq + 1,
        "at": event.at,
        "type": event.type,
        "step_name": event.step_name,
        "attempt": event.attempt_count,
        "from_step_name": event.from_step_name,
    }


def _text(value: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, cls=DjangoJSONEncoder)
