"""The secrets app."""

from __future__ import annotations

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class SecretsConfig(AppConfig):
    """Registers the system checks."""

    name = "pikku_storage.secrets"
    label = "pikku_secrets"
    verbose_name = _("Secrets")

    def ready(self) -> None:
        """Import what registers itself."""
        import pikku_storage.checks
        import pikku_storage.secrets.checks  # noqa: F401
