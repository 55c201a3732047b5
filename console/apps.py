"""The console app."""

from __future__ import annotations

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class ConsoleConfig(AppConfig):
    """Pages for operators inside the Django admin."""

    name = "console"
    label = "pikku_console"
    verbose_name = _("Pikku console")
