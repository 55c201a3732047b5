"""System checks of the audit app."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig, apps
from django.core import checks
from django.db import connections, router
from django.utils.module_loading import import_string

from pikku_storage.conf import settings


@checks.register("pikku")
def check_sink(*, app_configs: Sequence[AppConfig] | None = None, **options: Any) -> list[checks.CheckMessage]:
    """`pikku.E301`: the sink cannot be called, so nothing reaches the trail."""
    path = settings.AUDIT_SINK
    try:
        if path is not None and not callable(import_string(path)):
            raise TypeError(f"{path} cannot be called")
    except (ImportError, TypeError, AttributeError) as error:
        hint = "Name a callable that takes a pikku_storage.auditing.AuditEvent, or None to keep nothing."
        return [checks.Error(f"PIKKU_STORAGE['AUDIT_SINK']: {error}", hint=hint, id="pikku.E301")]
    return []


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
