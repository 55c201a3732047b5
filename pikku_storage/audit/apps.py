"""The audit app."""

from __future__ import annotations

from django.apps import AppConfig
from django.db.models.signals import post_migrate
from django.utils.translation import gettext_lazy as _

from pikku_storage.db.preparing import prepare_tables


class AuditConfig(AppConfig):
    """Keeps the audit trail in a table."""

    name = "pikku_storage.audit"
    label = "pikku_audit"
    verbose_name = _("Audit")

    def ready(self) -> None:
        """Import what registers itself, and look at statements from now on."""
        import pikku_storage.checks  # noqa: F401
        from pikku_storage.audit import observing

        post_migrate.connect(prepare_tables, sender=self)
        observing.begin()
