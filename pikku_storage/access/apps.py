"""The access app."""

from __future__ import annotations

from django.apps import AppConfig
from django.db.models.signals import post_migrate
from django.utils.module_loading import autodiscover_modules
from django.utils.translation import gettext_lazy as _

from pikku_storage.db.preparing import prepare_tables


class AccessConfig(AppConfig):
    """Registers the `scopes.py` of every installed app, the system checks, and what becomes of a deleted user."""

    name = "pikku_storage.access"
    label = "pikku_access"
    verbose_name = _("Access")

    def ready(self) -> None:
        """Import what registers itself."""
        import pikku_storage.access.builtin
        import pikku_storage.access.checks
        import pikku_storage.checks  # noqa: F401
        from pikku_storage.access.revoking import revoke_with_the_user

        revoke_with_the_user()
        post_migrate.connect(prepare_tables, sender=self)
        autodiscover_modules("scopes")
