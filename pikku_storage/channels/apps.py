"""The channels app."""

from __future__ import annotations

from django.apps import AppConfig
from django.db.models.signals import post_migrate
from django.utils.translation import gettext_lazy as _

from pikku_storage.db.preparing import prepare_tables


class ChannelsConfig(AppConfig):
    """Connected channels and the topics they subscribe to."""

    name = "pikku_storage.channels"
    label = "pikku_channels"
    verbose_name = _("Channels")

    def ready(self) -> None:
        """Import what registers itself."""
        import pikku_storage.channels.checks
        import pikku_storage.checks  # noqa: F401

        post_migrate.connect(prepare_tables, sender=self)
