"""The virtual users app."""

from __future__ import annotations

from django.apps import AppConfig
from django.db.models.signals import post_migrate
from django.utils.translation import gettext_lazy as _

from pikku_storage.db.preparing import prepare_tables


class VirtualUsersConfig(AppConfig):
    """Runs of personas, and when they run next."""

    name = "pikku_storage.virtual_users"
    label = "pikku_virtual_users"
    verbose_name = _("Virtual users")

    def ready(self) -> None:
        """Import what registers itself."""
        import pikku_storage.checks  # noqa: F401

        post_migrate.connect(prepare_tables, sender=self)
