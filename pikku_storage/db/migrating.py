"""Migrations that are the same on every database.

MongoDB needs none to hold documents, and what a migration would do there (make a collection, add an index or a field)
fails or does harm where another program has been first. So there a migration only brings Django's idea of the models up
to date, and `MongodbEngine.prepare` makes the indexes that the models have now.
"""

from __future__ import annotations

from typing import Any

from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.state import ProjectState

from pikku_storage.db.documents import VENDOR


class Migration(migrations.Migration):
    """A migration of our tables."""

    def apply(
        self, project_state: ProjectState, schema_editor: BaseDatabaseSchemaEditor, collect_sql: bool = False
    ) -> Any:
        """See `Migration.apply`."""
        if schema_editor.connection.vendor != VENDOR:
            return super().apply(project_state, schema_editor, collect_sql)
        return self.mutate_state(project_state, preserve=False)

    def unapply(
        self, project_state: ProjectState, schema_editor: BaseDatabaseSchemaEditor, collect_sql: bool = False
    ) -> Any:
        """See `Migration.unapply`. The documents stay: others may use them."""
        if schema_editor.connection.vendor != VENDOR:
            return super().unapply(project_state, schema_editor, collect_sql)
        return project_state
