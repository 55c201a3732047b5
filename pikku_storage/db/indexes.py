"""Indexes that serve the same reads on every database."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.models import Q


class SparseIndex(models.Index):
    """An index on one field, of the rows where it is not null; of all rows where a database has no partial indexes.

    The condition is no attribute of it: Django warns about each condition that a database ignores (models.W037), and
    here nothing is lost but space.
    """

    def create_sql(
        self, model: type[models.Model], schema_editor: BaseDatabaseSchemaEditor, using: str = "", **options: Any
    ) -> Any:
        """See `Index.create_sql`."""
        if not schema_editor.connection.features.supports_partial_indexes:
            return super().create_sql(model, schema_editor, using, **options)
        (field,) = self.fields
        partial = models.Index(fields=self.fields, name=self.name, condition=Q((f"{field}__isnull", False)))
        return partial.create_sql(model, schema_editor, using, **options)
