"""System checks of the channels app."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.db import router

from pikku_storage.channels.models import Channel
from pikku_storage.channels.transports import NAMES, transport


@checks.register("pikku")
def check_transport(*, app_configs: Sequence[AppConfig] | None = None, **options: Any) -> list[checks.CheckMessage]:
    """`pikku.E601`: events cannot travel as the settings say."""
    try:
        transport(router.db_for_write(Channel))
    except (ImportError, ImproperlyConfigured, TypeError) as error:
        hint = f"It is one of auto, {', '.join(NAMES)}, or the dotted path of a Transport; redis needs the extra redis."
        return [checks.Error(f"PIKKU_STORAGE['CHANNEL_TRANSPORT']: {error}", hint=hint, id="pikku.E601")]
    return []
