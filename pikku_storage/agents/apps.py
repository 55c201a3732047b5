"""The agents app."""

from __future__ import annotations

from django.apps import AppConfig
from django.db.models.signals import post_migrate
from django.utils.module_loading import autodiscover_modules
from django.utils.translation import gettext_lazy as _

from pikku_storage.db.preparing import prepare_tables


class AgentsConfig(AppConfig):
    """Registers the `scorers.py` of every installed app."""

    name = "pikku_storage.agents"
    label = "pikku_agents"
    verbose_name = _("Agents")

    def ready(self) -> None:
        """Import what registers itself."""
        import pikku_storage.checks  # noqa: F401

        post_migrate.connect(prepare_tables, sender=self)
        autodiscover_modules("scorers")
