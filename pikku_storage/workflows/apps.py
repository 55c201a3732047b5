"""The workflows app."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.db import router
from django.db.models.signals import post_migrate
from django.utils.module_loading import autodiscover_modules
from django.utils.translation import gettext_lazy as _

from pikku_storage.db import engine


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

        post_migrate.connect(_prepare_tables, sender=self)
        autodiscover_modules("workflows")


def _prepare_tables(sender: AppConfig, using: str, **kwargs: Any) -> None:
    tables = [model for model in sender.get_models() if router.allow_migrate_model(using, model)]
    if tables:
        engine(using).prepare(*tables)
