"""Events as CSV and as JSON lines, a row at a time."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder

from pikku_storage.audit.records import AuditRecord

MOST_EXPORTED = 10_000
CONTENT_TYPES = {"csv": "text/csv", "jsonl": "application/x-ndjson"}
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


class _Line:
    """What a CSV writer writes to: it answers with the line."""

    def write(self, line: str) -> str:
        return line


def lines_of(rows: Iterable[Mapping[str, Any]], form: str) -> Iterator[str]:
    """The rows as lines of that form (`csv` or `jsonl`), with the columns of an `AuditRecord`."""
    return _csv(rows) if form == "csv" else _jsonl(rows)


def _csv(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    writer = csv.writer(_Line())
    yield writer.writerow(AuditRecord.COLUMNS)
    for row in rows:
        yield writer.writerow([_cell(row[name]) for name in AuditRecord.COLUMNS])


def _cell(value: Any) -> str:
    text = "" if value is None else value.isoformat() if hasattr(value, "isoformat") else str(value)
    # A program for tables would take it for a formula, and calculate.
    return f"'{text}" if text.startswith(_FORMULA) else text


def _jsonl(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    for row in rows:
        record = AuditRecord.from_row(row)
        values = {name: getattr(record, name) for name in AuditRecord.COLUMNS}
        yield json.dumps(values, ensure_ascii=False, cls=DjangoJSONEncoder) + "\n"
