"""What the querysets of all apps share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from django.db import IntegrityError, models

from pikku_storage.db import Engine, engine
from pikku_storage.db.operations import Insert, InsertMany, Update

Row = TypeVar("Row", bound=models.Model)

_TRIES = 10


class EngineQuerySet(models.QuerySet[Row]):
    """Changes rows through the engine of their database."""

    @property
    def engine(self) -> Engine:
        """The engine of the database this queryset writes to."""
        self._for_write = True
        return engine(self.db)

    def insert(self, rows: Insert | InsertMany) -> bool:
        """Add rows; `False` if one of their keys is taken. On a database without transactions others of them may then
        be there."""
        try:
            with self.engine.savepoint():
                self.engine.apply(rows)
        except IntegrityError:
            return False
        return True

    def upsert(self, where: Mapping[str, Any], values: Mapping[str, Any], *, new: Mapping[str, Any]) -> None:
        """Set `values` on the row that meets `where`, or insert it with those and `new`: all of it changes in one
        write. `where` is equality, and at most one row meets it."""
        update = Update(self.model, where, values)
        insert = Insert(self.model, {**where, **values, **new})
        for _ in range(_TRIES):
            if self.engine.apply(update)[0]:
                return
            if self.insert(insert):
                return
            # Somebody else was first, so there is something to change; unless it is deleted again meanwhile.
        # It is something else, and the database says what.
        self.engine.apply(insert)
