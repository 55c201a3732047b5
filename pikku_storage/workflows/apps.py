"""The workflows app."""

from __future__ import annotations

from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules
from django.utils.translation import gettext_lazy as _


class WorkflowsConfig(AppConfig):
    """Registers the `workflows.py` of every installed app, and the system checks."""

    name = "pikku_storage.workflows"
    label = "pikku_workflows"
    verbose_name = _("Workflows")

    def ready(self) -> None:
        """Import what registers itself."""
        from pikku_storage.workflows import checks  # noqa: F401

        autodiscover_modules("workflows")
