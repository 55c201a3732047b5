"""The system checks that every app of this package registers."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

from django.apps import AppConfig, apps
from django.conf import settings as django_settings
from django.core import checks
from django.db import connections, router
from django.db.migrations.loader import MigrationLoader
from django.utils.module_loading import import_string

from pikku_storage.conf import APP_LABELS, KEYS, settings


@checks.register("pikku")
def check_settings(*, app_configs: Sequence[AppConfig] | None = None, **options: Any) -> list[checks.CheckMessage]:
    """`pikku.E001` unknown key, `pikku.E002` a value that cannot be used."""
    found: list[checks.CheckMessage] = []
    given = getattr(django_settings, "PIKKU_STORAGE", {})
    for key in sorted(set(given) - KEYS):
        hint = f"The keys are {', '.join(sorted(KEYS))}."
        found.append(checks.Error(f"PIKKU_STORAGE has the unknown key {key!r}.", hint=hint, id="pikku.E001"))
    for key in sorted(KEYS):
        try:
            getattr(settings, key)
        except (TypeError, ValueError) as error:
            found.append(
                checks.Error(
                    f"PIKKU_STORAGE[{key!r}] cannot be used: {error}",
                    hint="See docs/reference/settings.md.",
                    id="pikku.E002",
                )
            )
    return found


@checks.register("pikku", checks.Tags.database)
def check_tables(
    *, app_configs: Sequence[AppConfig] | None = None, databases: Sequence[str] | None = None, **options: Any
) -> list[checks.CheckMessage]:
    """`pikku.W005`: tables are missing that `migrate` would make. `pikku.E009`: tables are missing that it thinks it
    has made. Asks the given databases, and changes nothing."""
    # Whoever runs `migrate` need not be told to, before it begins.
    if sys.argv[1:2] == ["migrate"]:
        return []
    return [_missing(config, using, names) for using in databases or () for config, names in _incomplete(using)]


def _incomplete(using: str) -> Iterator[tuple[AppConfig, list[str]]]:
    there = set(connections[using].introspection.table_names())
    for config in apps.get_app_configs():
        missing = _tables(config, using) - there if config.label.startswith(APP_LABELS) else ()
        if missing:
            yield config, sorted(missing)


def _tables(config: AppConfig, using: str) -> set[str]:
    # `migrate` makes no table of a model that the router keeps away.
    return {
        model._meta.db_table
        for model in config.get_models()
        if router.db_for_write(model) == using and router.allow_migrate_model(using, model)
    }


def _missing(config: AppConfig, using: str, names: Sequence[str]) -> checks.CheckMessage:
    text = f"{config.name} has no tables {', '.join(names)} in the database {using!r}."
    migrations = MigrationLoader(connections[using])
    if {key for key in migrations.disk_migrations if key[0] == config.label} - set(migrations.applied_migrations):
        # No error, because that would keep a `migrate` that is called in another way from making them.
        return checks.Warning(text, hint=f"Run `manage.py migrate --database {using}`.", id="pikku.W005")
    hint = "Its migrations are recorded as done. Restore the tables, or migrate the app to zero and anew."
    return checks.Error(text, hint=hint, id="pikku.E009")


@checks.register("pikku")
def check_sink(*, app_configs: Sequence[AppConfig] | None = None, **options: Any) -> list[checks.CheckMessage]:
    """`pikku.E301`: the sink of the audit trail cannot be called, so nothing reaches it."""
    path = settings.AUDIT_SINK
    try:
        if path is not None and not callable(import_string(path)):
            raise TypeError(f"{path} cannot be called")
    except (ImportError, TypeError, AttributeError, RuntimeError) as error:
        # A `RuntimeError` is Django's, for a model whose app is not installed.
        hint = "Name a callable that takes a pikku_storage.auditing.AuditEvent, or None to keep nothing."
        return [checks.Error(f"PIKKU_STORAGE['AUDIT_SINK']: {error}", hint=hint, id="pikku.E301")]
    return []
