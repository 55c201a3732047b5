"""What tables need beside their migrations."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.db import router

from pikku_storage.db import engine


def prepare_tables(sender: AppConfig, using: str, **kwargs: Any) -> None:
    """After each `migrate`: what the engine needs for the tables of an app (a receiver of `post_migrate`)."""
    tables = [model for model in sender.get_models() if router.allow_migrate_model(using, model)]
    if tables:
        engine(using).prepare(*tables)
