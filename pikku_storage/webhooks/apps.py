"""The webhooks app."""

from __future__ import annotations

from django.apps import AppConfig
from django.db.models.signals import post_migrate
from django.utils.translation import gettext_lazy as _

from pikku_storage.db.preparing import prepare_tables


class WebhooksConfig(AppConfig):
    """Outgoing webhooks and their attempts."""

    name = "pikku_storage.webhooks"
    label = "pikku_webhooks"
    verbose_name = _("Webhooks")

    def ready(self) -> None:
        """Import what registers itself."""
        import pikku_storage.checks
        import pikku_storage.webhooks.checks  # noqa: F401

        post_migrate.connect(prepare_tables, sender=self)
