"""System checks of the audit app."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig, apps
from django.core import checks
from django.db import connections, router


@checks.register("pikku", checks.Tags.database)
def check_table(
    *, app_configs: Sequence[AppConfig] | None = None, databases: Sequence[str] | None = None, **options: Any
) -> list[checks.CheckMessage]:
    """`pikku.E302`: the table of the trail is missing, so its events are lost. Asks the given databases."""
    entry = apps.get_model("pikku_audit", "AuditEntry")
    using = router.db_for_write(entry)
    if using not in (databases or ()) or entry._meta.db_table in connections[using].introspection.table_names():
        return []
    text = f"The database {using!r} has no table {entry._meta.db_table!r}: no event of the audit trail can be kept."
    return [checks.Error(text, hint="Run `manage.py migrate`.", id="pikku.E302")]
