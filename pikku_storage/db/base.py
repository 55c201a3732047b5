"""The interface of an engine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from typing import Any, TypeVar

from django.db import connections, models, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models.fields.json import KT
from django.db.models.functions import Cast, Left, Substr

from pikku_storage.db.clock import Clock
from pikku_storage.db.fields import cut
from pikku_storage.db.operations import NOT_NULL, Conditions, Expired, Operation, OrNull, Swap, Update, Values
from pikku_storage.db.parts import Part, Parts

T = TypeVar("T")


class Engine(ABC):
    """One per database alias. Stateless but for its clock, so threads share it."""

    def __init__(self, using: str) -> None:
        self.using = using
        self.clock = Clock(self.server_time)

    @property
    def connection(self) -> BaseDatabaseWrapper:
        """The calling thread's connection."""
        return connections[self.using]

    def now(self) -> datetime:
        """The server's time in UTC, cut to milliseconds. Every due time and lease is written and compared with it."""
        return self.clock.now()

    def server_time(self) -> datetime | None:
        """The server's time, asked for; `None` where the server is this machine."""
        return None

    def release(self) -> None:
        """Give the thread's connection back to its pool, if it has one and no transaction is open: user code is about
        to run."""
        connection = self.connection
        if connection.settings_dict.get("OPTIONS", {}).get("pool") and not connection.in_atomic_block:
            connection.close()

    def savepoint(self) -> AbstractContextManager[Any]:
        """Lets an `IntegrityError` be caught: a savepoint inside a transaction, nothing (and no round trip) outside of
        one."""
        return transaction.atomic(using=self.using) if self.connection.in_atomic_block else nullcontext()

    def subquery(self, rows: models.QuerySet[Any, Any]) -> Any:
        """What to compare with `__in`: the query itself, or what it finds, on an engine that cannot join cheaply."""
        return rows

    def referred_to(self, rows: models.QuerySet[Any, Any], column: str) -> models.Q:
        """The condition that at least one of `rows` refers to a row by that column. A page in some other order then
        looks at one row after the other until it is full, and need not find everything first."""
        return models.Q(models.Exists(rows.filter(**{column: models.OuterRef("pk")})))

    def json_beginning(self, column: str, length: int) -> Any:
        """The expression for the first characters of a JSON column as text, so that no more of a large value is sent;
        `None` on an engine that cannot cut one, where the column is read as it is."""
        return Left(Cast(column, models.TextField()), length)

    def prepare(self, *tables: type[models.Model]) -> None:  # noqa: B027 - most engines need nothing
        """Make what these tables need beside their migrations; again after every `migrate`."""

    def recover(self, *tables: type[models.Model]) -> int:
        """Finish the calls of `apply` that were cut short after their decisive write; answers how many rows had one.

        The relay asks for it. An engine with transactions never has any.
        """
        return 0

    def retrying(self, write: Callable[[], T]) -> T:
        """Do a write, as one transaction, and again if the server undid it to break a deadlock."""
        return write()

    @abstractmethod
    def apply(self, first: Operation, *rest: Operation, durable: bool = True) -> tuple[int, ...]:
        """Do the operations as one, in order; the `rest` only if `first` matched. Answers with the number of rows each
        one touched.

        A `Guard` may stand first; it and the operation after it decide together, and have the same count. All zeros
        mean that these matched nothing and nothing was written. On engines with transactions either all of it is
        written or none; elsewhere the operation that decides is atomic, and what a crash then cuts off is done later,
        by `recover`. No row may be touched by two of the operations. An `Insert` that decides is followed by inserts
        only, of rows that nobody can find without it; an `Update` that decides and is followed names its primary key. A
        `Delete` stands alone.

        With `durable=False` a crash of the database server may undo the write, whole, within its first moments; an
        engine that gains nothing by that, and one inside a transaction, ignores it. It is for what does no harm when
        lost, such as a lease, or the start of a step that may be carried out again; never for an outcome. What is
        written durably later also keeps what was written before it.
        """

    def at_least(self, count: int, model: type[models.Model], where: Conditions) -> int:
        """A number of rows that a column of another table keeps: `count`, or how many there are if that is more, on a
        database that may be shared with programs that add rows and do not keep it."""
        return count

    def found_by(self, own: Conditions, others: Conditions) -> Conditions:
        """How to find a row: by the id that it has from us, or by `others`, on a database that may be shared with
        programs that give their rows other ids."""
        return own

    def take(self, update: Update, columns: Sequence[str], *, durable: bool = True) -> dict[str, Any] | None:
        """Apply an update that names one row by its `id`; answers with these columns as they are after it, or `None` if
        it matched nothing. It is for updates that make the row the caller's own; `durable` as in `apply`."""
        if not self.apply(update, durable=durable)[0]:
            return None
        rows = self.read(update.model, {"id": update.where["id"]}, columns)
        return rows[0] if rows else None

    def read(
        self,
        model: type[models.Model],
        where: Conditions,
        columns: Sequence[str],
        *,
        order_by: Sequence[str] = (),
        limit: int | None = None,
    ) -> list[dict[str, Any]]:
        """These columns of the rows (or the first of them) that meet `where`, in ascending order. `run__status` is a
        column of the row that the foreign key `run` names.

        What the hot path reads: an engine may do it without the ORM, which takes longer to write a query than the
        database to answer it.
        """
        return list(self._rows(model, where).order_by(*order_by).values(*columns)[:limit])

    def read_parts(
        self,
        model: type[models.Model],
        where: Conditions,
        columns: Sequence[str],
        parts: Parts,
        *,
        order_by: Sequence[str] = (),
    ) -> list[dict[str, Any]]:
        """As `read`, and beside the columns some `parts` of JSON: large payloads stay where they are."""
        wanted = {name: _first_of(each) for name, each in parts.items()}
        return list(self._rows(model, where).order_by(*order_by).annotate(**wanted).values(*columns, *parts))

    def _rows(self, model: type[models.Model], where: Conditions) -> models.QuerySet[Any, Any]:
        return model._default_manager.using(self.using).filter(*[_condition(*each) for each in where.items()])

    @abstractmethod
    def merge_json_key(self, model: type[models.Model], pk: str, field: str, key: str, value: Any, at: datetime) -> int:
        """Set one literal key of the JSON object in `field` to `value`, and `updated_at`, in one statement.

        Concurrent writers of different keys never lose each other. Answers with the number of rows touched.
        """

    @abstractmethod
    def swap(self, model: type[models.Model], column: str, swaps: Sequence[Swap], common: Values) -> int:
        """Give each row its own values and the `common` ones, if its text `column` still holds what was seen; answers
        how many did. Each row is decided by itself, and each is one write; on engines with transactions all of them
        are one transaction."""


def _first_of(parts: Sequence[Part]) -> Any:
    if not any(part.where for part in parts):
        return _text_of(parts[0])
    return models.Case(
        *[
            models.When(models.Q(*[_condition(*each) for each in part.where.items()]), then=_text_of(part))
            for part in parts
        ]
    )


def _text_of(part: Part) -> Any:
    text = KT(f"{part.column}__{part.key}")
    return text if part.most is None else Substr(text, 1, part.most)


def _condition(name: str, value: Any) -> models.Q:
    if value is None or value is NOT_NULL:
        return models.Q((f"{name}__isnull", value is None))
    if isinstance(value, list | tuple):
        return models.Q((f"{name}__in", list(value)))
    if isinstance(value, Expired):
        return models.Q((f"{name}__isnull", True)) | models.Q((f"{name}__lte", value.at))
    if isinstance(value, OrNull):
        return models.Q((f"{name}__isnull", True)) | models.Q((name, value.value))
    return models.Q((name, value))


def utc(moment: datetime) -> datetime:
    """`moment` in UTC, cut to milliseconds, as MongoDB would store it."""
    return cut(moment.astimezone(UTC))
