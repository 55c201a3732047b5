"""The secrets app."""

from __future__ import annotations

from django.apps import AppConfig
from django.db.models.signals import post_migrate
from django.utils.translation import gettext_lazy as _

from pikku_storage.db.preparing import prepare_tables


class SecretsConfig(AppConfig):
    """Registers the system checks."""

    name = "pikku_storage.secrets"
    label = "pikku_secrets"
    verbose_name = _("Secrets")

    def ready(self) -> None:
        """Import what registers itself."""
        import pikku_storage.checks
        import pikku_storage.secrets.checks  # noqa: F401

        post_migrate.connect(prepare_tables, sender=self)
