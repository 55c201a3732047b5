"""The system checks that every app of this package registers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig
from django.conf import settings as django_settings
from django.core import checks
from django.utils.module_loading import import_string

from pikku_storage.conf import KEYS, settings


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
