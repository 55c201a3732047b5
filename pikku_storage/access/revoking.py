"""Whoever is deleted loses everything (contract tables.md §3, 27 and 28: there a foreign key does it)."""

from __future__ import annotations

from typing import Any

from django.apps import apps
from django.contrib.auth import get_user_model
from django.db import models, router, transaction
from django.db.models.signals import post_delete


def revoke_with_the_user() -> None:
    """From now on, who deletes a user also deletes their grants and their session."""
    # Not of every model: one that has a listener is deleted row by row.
    concrete = get_user_model()._meta.concrete_model
    for model in apps.get_models():
        if model._meta.concrete_model is concrete:
            post_delete.connect(_revoke, sender=model, dispatch_uid=f"pikku_revoke_{model._meta.label}")


def _revoke(instance: models.Model, using: str, **kwargs: Any) -> None:
    from pikku_storage.access.models import Scope
    from pikku_storage.access.service import ScopeService

    user_id = str(instance.pk)
    if router.db_for_write(Scope) == using:
        ScopeService(using).revoke_user(user_id)
    else:
        # Another database does not roll back with the deletion.
        transaction.on_commit(lambda: ScopeService().revoke_user(user_id), using=using)
