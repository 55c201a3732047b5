"""What the querysets of all apps share."""

from __future__ import annotations

from typing import TypeVar

from django.db import models

from pikku_storage.db import Engine, engine

Row = TypeVar("Row", bound=models.Model)


class EngineQuerySet(models.QuerySet[Row]):
    """Changes rows through the engine of their database."""

    @property
    def engine(self) -> Engine:
        """The engine of the database this queryset writes to."""
        self._for_write = True
        return engine(self.db)
