"""MariaDB. (MySQL has the same vendor in Django; it is not tested.)"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

from django.db import OperationalError, models, transaction

from pikku_storage.db.base import utc
from pikku_storage.db.fields import encode
from pikku_storage.db.operations import Operation
from pikku_storage.db.sql import SqlEngine

T = TypeVar("T")

DEADLOCK = 1213
TRIES, PAUSE = 10, 0.02
"""Most tries of a write that ends in deadlocks, and the longest pause between two, in seconds."""
LEVELS = 31
"""How deep JSON may be for MariaDB's functions. JSON_VALID denies what is deeper."""


class MysqlEngine(SqlEngine):
    """InnoDB, as Django sets it up: READ COMMITTED, and an UPDATE counts the rows it matched, changed or not.

    InnoDB may end any transaction to break a deadlock, even one of a single statement: two updates that come to the
    same row by different indexes can wait for each other. Nothing of it is written then, so it is done again.
    """

    def server_time(self) -> datetime:
        """See `Engine.server_time`."""
        with self.connection.cursor() as cursor:
            cursor.execute("SELECT UTC_TIMESTAMP(6)")
            row = cursor.fetchone()
        assert row is not None  # noqa: S101 - for the type checker
        return utc(row[0].replace(tzinfo=UTC))

    def retrying(self, write: Callable[[], T]) -> T:
        """See `Engine.retrying`."""
        # Inside a transaction the server undid all of it, and only its owner can do that again.
        if not self.connection.get_autocommit():
            return write()
        for _ in range(TRIES - 1):
            try:
                return write()
            except OperationalError as error:
                if error.args[0] != DEADLOCK:
                    raise
            time.sleep(random.uniform(0, PAUSE))  # noqa: S311 - no secret
        return write()

    def apply(self, first: Operation, *rest: Operation, durable: bool = True) -> tuple[int, ...]:
        """See `Engine.apply`."""
        return self.retrying(lambda: super(MysqlEngine, self).apply(first, *rest, durable=durable))

    def merge_json_key(self, model: type[models.Model], pk: str, field: str, key: str, value: Any, at: datetime) -> int:
        """See `Engine.merge_json_key`.

        The key is named by patches and never by a path: JSON_MERGE_PATCH takes it out, null being its word for that,
        and JSON_MERGE_PRESERVE puts a key that is not there as it is.

        Neither bears more than 31 levels of nesting on MariaDB. What has more is merged here, under a lock.
        """
        return self.retrying(
            lambda: (
                (_levels(value) < LEVELS and self._merge_there(model, pk, field, key, value, at))
                or self._merge_here(model, pk, field, key, value, at)
            )
        )

    def _merge_there(self, model: type[models.Model], pk: str, field: str, key: str, value: Any, at: datetime) -> int:
        column = self.column(model, field)
        stored = f"COALESCE({column}, '{{}}')"
        merged = f"{column} = JSON_MERGE_PRESERVE(JSON_MERGE_PATCH({stored}, %s), %s)"
        patches = [encode({key: None}), encode({key: value})]
        return self.set_by_key(model, pk, merged, patches, at, condition=f"JSON_VALID({stored})")

    def _merge_here(self, model: type[models.Model], pk: str, field: str, key: str, value: Any, at: datetime) -> int:
        with transaction.atomic(using=self.using):
            rows = model._default_manager.using(self.using).filter(pk=pk)
            for stored in rows.select_for_update().values_list(field, flat=True):
                return rows.update(**{field: {**(stored or {}), key: value}, "updated_at": at})
        return 0


def _levels(value: Any) -> int:
    """How many arrays and objects are around the innermost value."""
    if not isinstance(value, dict | list):
        return 0
    return 1 + max(map(_levels, value.values() if isinstance(value, dict) else value), default=0)
