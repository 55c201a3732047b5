"""Indexes that serve the same reads on every database."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.models import Q


class SparseIndex(models.Index):
    """An index of the rows where the field `present` is not null; of all rows where a database has no such indexes.

    The condition is no attribute of it: Django warns about each condition that a database ignores (models.W037), and
    here nothing is lost but space.
    """

    def __init__(self, *expressions: Any, present: str, **options: Any) -> None:
        self.present = present
        super().__init__(*expressions, **options)

    def deconstruct(self) -> Any:
        """See `Index.deconstruct`."""
        path, expressions, options = super().deconstruct()
        return path, expressions, {**options, "present": self.present}

    def create_sql(
        self, model: type[models.Model], schema_editor: BaseDatabaseSchemaEditor, using: str = "", **options: Any
    ) -> Any:
        """See `Index.create_sql`."""
        if not schema_editor.connection.features.supports_partial_indexes:
            return super().create_sql(model, schema_editor, using, **options)
        condition = Q((f"{self.present}__isnull", False))
        partial = models.Index(fields=self.fields, name=self.name, condition=condition)
        return partial.create_sql(model, schema_editor, using, **options)
