"""The workflows app."""

from __future__ import annotations

from django.apps import AppConfig
from django.db.models.signals import post_migrate
from django.utils.module_loading import autodiscover_modules
from django.utils.translation import gettext_lazy as _

from pikku_storage.db.preparing import prepare_tables


class WorkflowsConfig(AppConfig):
    """Registers the `workflows.py` of every installed app, and the system checks."""

    name = "pikku_storage.workflows"
    label = "pikku_workflows"
    verbose_name = _("Workflows")

    def ready(self) -> None:
        """Import what registers itself."""
        import pikku_storage.checks
        import pikku_storage.workflows.checks
        import pikku_storage.workflows.schedules.checks  # noqa: F401

        post_migrate.connect(prepare_tables, sender=self)
        autodiscover_modules("workflows")
