"""Tables and their indexes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db import models
from djongo import schema

from pikku_storage.db.fields import field_of


class DatabaseSchemaEditor(schema.DatabaseSchemaEditor):
    """Makes fields and indexes itself: djongo knows not every type, reads no descending column, and passes over
    constraints."""

    connection: Any

    def create_model(self, model: type[models.Model]) -> None:
        """See `BaseDatabaseSchemaEditor.create_model`."""
        super().create_model(model)
        for index in model._meta.indexes:
            self.add_index(model, index)
        for constraint in model._meta.constraints:
            self.add_constraint(model, constraint)

    def add_field(self, model: type[models.Model], field: Any) -> None:
        """See `BaseDatabaseSchemaEditor.add_field`."""
        if field.many_to_many and field.remote_field.through._meta.auto_created:
            self.create_model(field.remote_field.through)
        if field.column is None:
            return
        default = {field.column: self.effective_default(field)}
        self._collection(model).update_many({field.column: {"$exists": False}}, {"$set": default})
        self._index_field(model, field)

    def remove_field(self, model: type[models.Model], field: Any) -> None:
        """See `BaseDatabaseSchemaEditor.remove_field`."""
        if field.many_to_many and field.remote_field.through._meta.auto_created:
            self.delete_model(field.remote_field.through)
        if field.column is None:
            return
        collection = self._collection(model)
        for name, index in collection.index_information().items():
            if any(column == field.column for column, _ in index["key"]):
                collection.drop_index(name)
        collection.update_many({}, {"$unset": {field.column: ""}})

    def _model_indexes_sql(self, model: type[models.Model]) -> list[Any]:
        for field in model._meta.local_fields:
            # What is unique is so since the table was made.
            if not field.unique:
                self._index_field(model, field)
        return []

    def _index_field(self, model: type[models.Model], field: Any) -> None:
        if field.unique or self._field_should_be_indexed(model, field):
            name = self._create_index_name(model._meta.db_table, [field.column])
            self._collection(model).create_index([(field.column, 1)], name=name, unique=field.unique)

    def add_index(self, model: type[models.Model], index: models.Index) -> None:
        """See `BaseDatabaseSchemaEditor.add_index`."""
        self._make_index(model, index.name, index.fields_orders)

    def remove_index(self, model: type[models.Model], index: models.Index) -> None:
        """See `BaseDatabaseSchemaEditor.remove_index`."""
        self._collection(model).drop_index(index.name)

    def add_constraint(self, model: type[models.Model], constraint: models.BaseConstraint) -> None:
        """Unique ones; one with a condition is left out, as Django says in `models.W036`."""
        if isinstance(constraint, models.UniqueConstraint) and constraint.fields and constraint.condition is None:
            self._make_index(model, constraint.name, [(name, "") for name in constraint.fields], unique=True)

    def remove_constraint(self, model: type[models.Model], constraint: models.BaseConstraint) -> None:
        """See `BaseDatabaseSchemaEditor.remove_constraint`."""
        collection = self._collection(model)
        if constraint.name in collection.index_information():
            collection.drop_index(constraint.name)

    def _make_index(
        self, model: type[models.Model], name: str, fields: Sequence[tuple[str, str]], *, unique: bool = False
    ) -> None:
        keys = [(field_of(model, field).column, -1 if order == "DESC" else 1) for field, order in fields]
        self._collection(model).create_index(keys, name=name, unique=unique)

    def _collection(self, model: type[models.Model]) -> Any:
        return self.connection.database[model._meta.db_table]
