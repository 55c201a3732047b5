"""MongoDB, through django-mongodb-backend.

Only a write to one document is atomic here. So a chain of operations is the write that decides, and that document then
carries what must follow (`_follows`) until it is done. If the process dies in between, the next round of the relay does
it (`recover`). What follows may thus happen late, and twice: every follower is an insert under an id that the
application made, which the second time is there already, or a guarded update, which the second time matches nothing.

MongoDB's own transactions are not used: a claim that loses its race inside one raises instead of matching nothing, and
a standalone server has none. Inside a `django_mongodb_backend.transaction.atomic` block our writes take part in it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias
from uuid import uuid4

from bson import decode, encode
from django.db import DatabaseError, IntegrityError, OperationalError, connections, models
from pymongo import UpdateOne, WriteConcern
from pymongo.collection import Collection
from pymongo.errors import (
    BulkWriteError,
    ConnectionFailure,
    DocumentTooLarge,
    DuplicateKeyError,
    ExecutionTimeout,
    OperationFailure,
    PyMongoError,
    WTimeoutError,
)

from pikku_storage.db.base import Engine, utc
from pikku_storage.db.fields import PayloadField, field_of
from pikku_storage.db.operations import (
    ABSENT,
    NOT_NULL,
    Conditions,
    Delete,
    Expired,
    Guard,
    Insert,
    InsertMany,
    KeepOr,
    Operation,
    OrNull,
    Swap,
    Update,
    Values,
    columns_of,
)
from pikku_storage.exceptions import PayloadError

logger = logging.getLogger(__name__)

FOLLOWS = "_follows"
"""The field of a document that carries what must follow its last write: a list of `{id, at, writes}`."""
GRACE = timedelta(seconds=5)
"""How long the process that decided has for what follows, before somebody else does it."""
BATCH = 100

_DUPLICATE_KEY = 11000
_TOO_LARGE = frozenset({10334, 17419, 17420})
_TOO_LARGE_REASON = "the document that holds it would be larger than the 16 MB that MongoDB takes"
_UNACKNOWLEDGED = WriteConcern(w=0)

Document: TypeAlias = dict[str, Any]


class MongodbEngine(Engine):
    """One document at a time; see the module."""

    @property
    def connection(self) -> Any:
        """See `Engine.connection`: the backend's own, which has more than Django's interface."""
        return connections[self.using]

    def server_time(self) -> datetime:
        """See `Engine.server_time`."""
        with _translated():
            told: datetime = self.connection.database.command("hello")["localTime"]
        return utc(told.replace(tzinfo=UTC))

    def release(self) -> None:
        """See `Engine.release`: nobody holds a connection between two operations."""

    def savepoint(self) -> AbstractContextManager[Any]:
        """See `Engine.savepoint`: an operation that fails leaves nothing behind that would have to be undone."""
        return nullcontext()

    def subquery(self, rows: models.QuerySet[Any, Any]) -> Any:
        """See `Engine.subquery`: a join or a subquery would walk through the whole collection."""
        return list(rows)

    def referred_to(self, rows: models.QuerySet[Any, Any], column: str) -> models.Q:
        """See `Engine.referred_to`."""
        return models.Q(pk__in=list(rows.order_by().values_list(column, flat=True).distinct()))

    def apply(self, first: Operation, *rest: Operation, durable: bool = True) -> tuple[int, ...]:
        """See `Engine.apply`. `durable` makes no difference: the write concern is the connection's."""
        if any(isinstance(operation, Guard) for operation in rest) or (isinstance(first, Guard) and not rest):
            raise ValueError("A guard stands first, and decides about the write after it")
        with _translated():
            if not isinstance(first, Guard):
                return self._chain(first, rest)
            if not self._holds(first):
                return (0,) * (1 + len(rest))
            counts = self._chain(rest[0], rest[1:])
            return (counts[0], *counts)

    def swap(self, model: type[models.Model], column: str, swaps: Sequence[Swap], common: Values) -> int:
        """See `Engine.swap`."""
        if not swaps:
            return 0
        columns_of(swaps)
        shared, primary_key = self._document(model, common), model._meta.pk
        updates = []
        for swap in swaps:
            key = primary_key.get_db_prep_value(swap.pk, self.connection)
            own = {_column(model, name): value for name, value in swap.values.items()}
            updates.append(
                UpdateOne(
                    {_column(model, primary_key.attname): key, _column(model, column): swap.seen},
                    {"$set": {**own, **shared}},
                )
            )
        with _translated():
            return int(self._call(model._meta.db_table, "bulk_write", updates, ordered=False).matched_count)

    def merge_json_key(self, model: type[models.Model], pk: str, field: str, key: str, value: Any, at: datetime) -> int:
        """See `Engine.merge_json_key`."""
        column, updated_at = _column(model, field), _column(model, "updated_at")
        merged = {
            "$setField": {
                "field": {"$literal": key},
                "input": {"$ifNull": [f"${column}", {}]},
                "value": {"$literal": value},
            }
        }
        with _translated():
            change = [{"$set": {column: merged, updated_at: self._value(model, "updated_at", at)}}]
            return int(self._call(model._meta.db_table, "update_one", {"_id": pk}, change).matched_count)

    def prepare(self, *tables: type[models.Model]) -> None:
        """See `Engine.prepare`: indexes that a migration cannot state.

        What follows must be found, and django-mongodb-backend's unique indexes are partial, so no read can use them.
        """
        with _translated():
            for model in tables:
                collection: Collection[Document] = Collection(self.connection.database, model._meta.db_table)
                collection.create_index([(f"{FOLLOWS}.at", 1)], name="pikku_follows", sparse=True)
                for constraint in model._meta.total_unique_constraints:
                    keys = [(_column(model, name), 1) for name in constraint.fields]
                    collection.create_index(keys, name=f"{constraint.name}_read")

    def recover(self, *tables: type[models.Model]) -> int:
        """See `Engine.recover`: carries out what followed a write whose process died."""
        with _translated():
            return sum(self._recover(model._meta.db_table) for model in tables)

    # -- chains --------------------------------------------------------------------------------------------------------

    def _chain(self, decisive: Operation, followers: Sequence[Operation]) -> tuple[int, ...]:
        writes = [self._write(follower) for follower in followers]
        if isinstance(decisive, Insert | InsertMany):
            # Its followers are inserts too, of rows that nobody can find without it: it comes last. If the process dies
            # before, it has never been.
            counts = [self._carry_out(write) for write in reversed(writes)]
            return (self._carry_out(self._write(decisive), once=True), *reversed(counts))
        if not writes or not isinstance(decisive, Update) or self.connection.in_atomic_block_mongo:
            touched = self._carry_out(self._write(decisive))
            return (touched, *(self._carry_out(write) if touched else 0 for write in writes))
        ticket = {"id": uuid4().hex, "at": self.now(), "writes": encode({"writes": writes})}
        touched = self._carry_out(self._write(decisive, ticket))
        if not touched:
            return (0,) * (1 + len(writes))
        try:
            counts = [self._carry_out(write) for write in writes]
            self._forget(decisive, ticket)
        except ConnectionFailure:
            # It is decided, and no failure of this call any more.
            logger.warning(
                "What follows a write to %s is left to the relay", decisive.model._meta.db_table, exc_info=True
            )
            counts = [1] * len(writes)
        return (touched, *counts)

    def _forget(self, decisive: Update, ticket: Document) -> None:
        """Nobody waits for this: if it is lost, what followed is done a second time, which changes nothing."""
        where = {**self._filter(decisive.model, _key_of(decisive)), f"{FOLLOWS}.id": ticket["id"]}
        # If an earlier ticket is there as well, its process may have died: `recover` sees to both.
        where[FOLLOWS] = {"$size": 1}
        table = decisive.model._meta.db_table
        self._call(table, "update_many", where, {"$unset": {FOLLOWS: ""}}, write_concern=_UNACKNOWLEDGED)

    def _recover(self, table: str) -> int:
        late = {f"{FOLLOWS}.at": {"$lte": self.now() - GRACE}}
        found = list(self._call(table, "find", late, {FOLLOWS: 1}, limit=BATCH))
        for document in found:
            tickets = document[FOLLOWS]
            for ticket in tickets:
                for write in decode(ticket["writes"])["writes"]:
                    self._carry_out(write)
            # Unless another one was added meanwhile: then all of them wait for the next round.
            seen = {"_id": document["_id"], FOLLOWS: {"$size": len(tickets)}}
            self._call(table, "update_one", seen, {"$unset": {FOLLOWS: ""}})
        return len(found)

    # -- single writes, as documents that a ticket can carry -----------------------------------------------------------

    def _write(self, operation: Operation, ticket: Document | None = None) -> Document:
        model = operation.model
        if isinstance(operation, Insert):
            return {"table": model._meta.db_table, "documents": [self._document(model, operation.values)]}
        if isinstance(operation, InsertMany):
            rows = [self._document(model, {**operation.common, **row}) for row in operation.rows]
            return {"table": model._meta.db_table, "documents": rows}
        where = self._filter(model, operation.where)
        if isinstance(operation, Delete):
            return {"table": model._meta.db_table, "remove": where}
        assert isinstance(operation, Update)  # noqa: S101 - a guard can only stand first
        change = self._change(model, operation.values, ticket)
        return {"table": model._meta.db_table, "where": where, "change": change}

    def _carry_out(self, write: Document, *, once: bool = False) -> int:
        """Do it; answers with the number of documents it matched. `once`: a document that is there already is an
        error."""
        if "documents" in write:
            return self._insert(write["table"], write["documents"], once=once)
        if "remove" in write:
            return int(self._call(write["table"], "delete_many", write["remove"]).deleted_count)
        # The server repeats a write to one document by itself when a connection breaks, and never does it twice.
        is_one = isinstance(write["where"].get("_id"), str)
        method = "update_one" if is_one else "update_many"
        return int(self._call(write["table"], method, write["where"], write["change"]).matched_count)

    def _insert(self, table: str, documents: list[Document], *, once: bool) -> int:
        try:
            if len(documents) == 1:
                self._call(table, "insert_one", documents[0])
            else:
                self._call(table, "insert_many", documents, ordered=once)
        except (DuplicateKeyError, BulkWriteError) as error:
            if once or not (_is_duplicate(error) and self._are_there(table, documents)):
                raise
        return len(documents)

    def _are_there(self, table: str, documents: list[Document]) -> bool:
        """Whether they were written before, under these ids."""
        ids = [document["_id"] for document in documents]
        return bool(self._call(table, "count_documents", {"_id": {"$in": ids}}) == len(ids))

    def _holds(self, guard: Guard) -> bool:
        where = self._filter(guard.model, guard.where)
        return self._call(guard.model._meta.db_table, "find_one", where, {"_id": 1}) is not None

    def _document(self, model: type[models.Model], values: Values) -> Document:
        return {_column(model, name): self._value(model, name, value) for name, value in values.items()}

    def _change(self, model: type[models.Model], values: Values, ticket: Document | None) -> Document | list[Document]:
        if not any(isinstance(value, KeepOr) for value in values.values()):
            absent = {name for name, value in values.items() if value is ABSENT}
            sets = {name: value for name, value in values.items() if name not in absent}
            change: Document = {"$set": self._document(model, sets)}
            if absent:
                change["$unset"] = dict.fromkeys((_column(model, name) for name in absent), "")
            return change if ticket is None else {**change, "$push": {FOLLOWS: ticket}}
        sets = {}
        for name, value in values.items():
            column = _column(model, name)
            if isinstance(value, KeepOr):
                sets[column] = {"$ifNull": [f"${column}", {"$literal": value.value}]}
            else:
                sets[column] = {"$literal": self._value(model, name, value)}
        if ticket is not None:
            sets[FOLLOWS] = {"$concatArrays": [{"$ifNull": [f"${FOLLOWS}", []]}, [{"$literal": ticket}]]}
        return [{"$set": sets}]

    def _filter(self, model: type[models.Model], where: Conditions) -> Document:
        """Equality with null also matches a field that is missing, as it may be in what another program wrote."""
        conditions: Document = {}
        either: list[Document] = []
        for name, value in where.items():
            column = _column(model, name)
            if isinstance(value, Expired):
                at = self._value(model, name, value.at)
                either.append({"$or": [{column: None}, {column: {"$lte": at}}]})
            elif isinstance(value, OrNull):
                conditions[column] = {"$in": [None, self._value(model, name, value.value)]}
            elif value is NOT_NULL:
                conditions[column] = {"$ne": None}
            elif isinstance(value, list | tuple):
                conditions[column] = {"$in": [self._value(model, name, item) for item in value]}
            else:
                conditions[column] = self._value(model, name, value)
        return {**conditions, "$and": either} if either else conditions

    def _value(self, model: type[models.Model], name: str, value: Any) -> Any:
        field = field_of(model, name)
        # A payload is plain JSON already, which is what MongoDB stores.
        if value is None or isinstance(field, PayloadField):
            return value
        return field.get_db_prep_save(value, self.connection)

    # -- the driver ----------------------------------------------------------------------------------------------------

    def _call(
        self, table: str, method: str, *arguments: Any, write_concern: WriteConcern | None = None, **options: Any
    ) -> Any:
        connection = self.connection
        call = getattr(Collection(connection.database, table, write_concern=write_concern), method)
        if not connection.queries_logged:
            return call(*arguments, session=connection.session, **options)
        # As the backend logs its own calls, of which these are none.
        began = time.monotonic()
        try:
            return call(*arguments, session=connection.session, **options)
        finally:
            text = f"db.{table}.{method}({', '.join(map(repr, arguments))})"
            connection.queries_log.append({"sql": text, "time": f"{time.monotonic() - began:.3f}"})


def _column(model: type[models.Model], name: str) -> str:
    return str(field_of(model, name).column)


def _key_of(update: Update) -> Conditions:
    """The condition on the primary key, which every update with followers has."""
    name = update.model._meta.pk.attname
    return {name: update.where[name]}


def _is_duplicate(error: DuplicateKeyError | BulkWriteError) -> bool:
    """Whether a key that is there already is all that is wrong."""
    details = error.details or {}
    return all(found.get("code") == _DUPLICATE_KEY for found in details.get("writeErrors", [details]))


@contextmanager
def _translated() -> Iterator[None]:
    """The driver's errors as Django's."""
    try:
        yield
    except DuplicateKeyError as error:
        raise IntegrityError(str(error)) from error
    except BulkWriteError as error:
        raise (IntegrityError if _is_duplicate(error) else DatabaseError)(str(error)) from error
    except DocumentTooLarge as error:
        raise PayloadError("$", _TOO_LARGE_REASON) from error
    except (ConnectionFailure, ExecutionTimeout, WTimeoutError) as error:
        raise OperationalError(str(error)) from error
    except OperationFailure as error:
        if error.code in _TOO_LARGE:
            raise PayloadError("$", _TOO_LARGE_REASON) from error
        if error.has_error_label("RetryableWriteError") or error.has_error_label("TransientTransactionError"):
            raise OperationalError(str(error)) from error
        raise DatabaseError(str(error)) from error
    except PyMongoError as error:
        raise DatabaseError(str(error)) from error
