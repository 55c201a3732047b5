"""System checks of the audit app."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig
from django.core import checks
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
