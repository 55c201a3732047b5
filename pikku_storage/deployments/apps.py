"""The deployments app."""

from __future__ import annotations

from django.apps import AppConfig
from django.db.models.signals import post_migrate
from django.utils.translation import gettext_lazy as _

from pikku_storage.db.preparing import prepare_tables


class DeploymentsConfig(AppConfig):
    """Which processes of a system are up, and calls between them."""

    name = "pikku_storage.deployments"
    label = "pikku_deployments"
    verbose_name = _("Deployments")

    def ready(self) -> None:
        """Import what registers itself."""
        import pikku_storage.checks
        import pikku_storage.deployments.checks  # noqa: F401

        post_migrate.connect(prepare_tables, sender=self)
