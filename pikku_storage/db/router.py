"""Keeps our tables in a database of their own."""

from __future__ import annotations

from typing import Any

from django.db import models

from pikku_storage.conf import APP_LABELS, settings

WORKFLOWS = f"{APP_LABELS}workflows"
AGENTS = f"{APP_LABELS}agents"


class PikkuRouter:
    """`DATABASE_ROUTERS = ["pikku_storage.db.router.PikkuRouter"]` sends the models of this package to the alias that
    `PIKKU_STORAGE["DATABASE"]` names, and migrates nothing else there, nor in the mirror."""

    @property
    def alias(self) -> str:
        """Where our tables are."""
        return settings.DATABASE

    def db_for_read(self, model: type[models.Model], **hints: Any) -> str | None:
        """Our alias for our models; no opinion on others."""
        return self.alias if model._meta.app_label.startswith(APP_LABELS) else None

    db_for_write = db_for_read

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool | None:
        """Our apps on our alias only, workflows in the mirror, and agents on the databases that are named for some of
        them; nothing else on our alias and the mirror if it is not the project's own database."""
        if app_label.startswith(APP_LABELS):
            others = {WORKFLOWS: {settings.MIRROR}, AGENTS: {*settings.AGENT_DATABASES.values()}}
            return db == self.alias or db in others.get(app_label, ())
        return False if db in {self.alias, settings.MIRROR} - {"default"} else None
