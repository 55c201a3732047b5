"""System checks of the webhooks app."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

from celery import current_app
from django.apps import AppConfig
from django.core import checks

from pikku_storage.conf import settings

TAG = "pikku_webhooks"
RELAY_TASK = "pikku.webhooks.relay"


@checks.register(TAG)
def check_library(*, app_configs: Sequence[AppConfig] | None = None, **options: Any) -> list[checks.CheckMessage]:
    """`pikku.E401`: there is nothing to send webhooks with."""
    if find_spec("urllib3") is not None:
        return []
    hint = "Install the extra: pip install 'django-pikku-storage[webhooks]'."
    return [checks.Error("Webhooks are sent with urllib3, which is not installed.", hint=hint, id="pikku.E401")]


@checks.register(TAG)
def check_relay(*, app_configs: Sequence[AppConfig] | None = None, **options: Any) -> list[checks.CheckMessage]:
    """`pikku.W401`: nothing looks for webhooks that are due, so lost messages and late retries would wait for ever."""
    entries = current_app.conf.beat_schedule or {}
    if settings.DISPATCHER is None or any(entry.get("task") == RELAY_TASK for entry in entries.values()):
        return []
    hint = (
        f"Add {{'task': '{RELAY_TASK}', 'schedule': 5}} to CELERY_BEAT_SCHEDULE. If you run `manage.py relay_webhooks` "
        "instead, silence pikku.W401."
    )
    text = "The Celery app of this project does not schedule the relay of webhooks: retries may wait for ever."
    return [checks.Warning(text, hint=hint, id="pikku.W401")]
