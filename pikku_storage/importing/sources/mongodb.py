"""MongoDB: documents, as rows of the tables they stand for (contract tables.md §4)."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from bson import DatetimeConversion, Decimal128, Int64, ObjectId
from bson.codec_options import CodecOptions
from pymongo import MongoClient
from pymongo.errors import PyMongoError

from pikku_storage.db.documents import COLLECTIONS
from pikku_storage.importing.sources.base import Row, Source, SourceError

_CAPITAL = re.compile("([A-Z])")
_WORD = re.compile("_([a-z])")
_IDS = {
    "agent_message": "id",
    "agent_run": "run_id",
    "agent_run_score": "id",
    "agent_threads": "id",
    "agent_tool_call": "id",
    "channels": "channel_id",
    "pikku_deployments": "deployment_id",
    "pikku_user_sessions": "pikku_user_id",
    "secret_kek_salts": "key_version",
    "secrets": "key",
    "secrets_audit": "id",
    "workflow_runs": "workflow_run_id",
    "workflow_step": "workflow_step_id",
    "workflow_step_history": "history_id",
}
"""By table, the column that is a document's `_id`. Elsewhere that is the driver's, and nobody's key."""
_NAMES = {collection: table for table, collection in COLLECTIONS.items()}


class MongodbSource(Source):
    """One database of a server."""

    kind = "MongoDB"
    json_is_text = False

    def __init__(self, url: str, name: str) -> None:
        if not name:
            raise SourceError("The address names no database: mongodb://host/name")
        # A time that Python does not have must cost its own row, not the query.
        options: CodecOptions[Any] = CodecOptions(datetime_conversion=DatetimeConversion.DATETIME_AUTO)
        with _translated():
            self._client: MongoClient[Any] = MongoClient(url, appname="import_pikku")
            self._database = self._client.get_database(name, codec_options=options)

    def tables(self) -> frozenset[str]:
        """See `Source.tables`."""
        with _translated():
            return frozenset(_NAMES.get(name, name) for name in self._database.list_collection_names())

    def count(self, table: str) -> int:
        """See `Source.count`."""
        with _translated():
            return int(self._collection(table).count_documents({}))

    def rows(self, table: str, order: Sequence[str]) -> Iterator[Row]:
        """See `Source.rows`."""
        sort = [(_field(table, column), 1) for column in order]
        with _translated(), self._collection(table).find({}, sort=sort, allow_disk_use=True) as cursor:
            for document in cursor:
                yield _row(table, document)

    def find(self, table: str, column: str, values: Sequence[Any], columns: Sequence[str]) -> list[Row]:
        """See `Source.find`."""
        shown = {"_id": False, **{_field(table, name): True for name in columns}}
        with _translated():
            found = self._collection(table).find({_field(table, column): {"$in": list(values)}}, shown)
            return [_row(table, document) for document in found]

    def close(self) -> None:
        """See `Source.close`."""
        self._client.close()

    def _collection(self, table: str) -> Any:
        return self._database[COLLECTIONS.get(table, table)]


def _field(table: str, column: str) -> str:
    if column == _IDS.get(table):
        return "_id"
    return _WORD.sub(lambda match: match[1].upper(), column)


def _row(table: str, document: Mapping[str, Any]) -> Row:
    row = {
        _CAPITAL.sub(lambda match: f"_{match[1].lower()}", name): _plain(value)
        for name, value in document.items()
        if name != "_id"
    }
    if "_id" in document and table in _IDS:
        row[_IDS[table]] = _plain(document["_id"])
    return row


def _plain(value: Any, *, inside: bool = False) -> Any:
    """The driver's types as those of JSON, as `JSON.stringify` writes them. A time that is a value of its own stays."""
    if isinstance(value, Mapping):
        return {name: _plain(item, inside=True) for name, item in value.items()}
    if isinstance(value, list):
        return [_plain(item, inside=True) for item in value]
    if isinstance(value, Int64):
        return int(value)
    if isinstance(value, ObjectId | Decimal128):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if inside and isinstance(value, datetime):
        return value.replace(tzinfo=UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return value


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except PyMongoError as error:
        raise SourceError(f"MongoDB: {error}") from error
