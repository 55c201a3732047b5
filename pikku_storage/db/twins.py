"""Our models as another database names them.

A model class is named once, for the database that `PIKKU_STORAGE["DATABASE"]` names (see `documents`). Whoever reads
and writes a database of the other kind beside it needs classes with the names of that one.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

from django.apps import apps
from django.db import connections, models
from django.db.migrations.state import ModelState, ProjectState

from pikku_storage.conf import APP_LABELS, settings
from pikku_storage.db.documents import are_kept_in, naming_for
from pikku_storage.db.querysets import EngineQuerySet


def models_of_the_package() -> list[type[models.Model]]:
    """Every table of the package's installed apps, those that others refer to before them."""
    found = [
        model
        for config in apps.get_app_configs()
        if config.label.startswith(APP_LABELS)
        for model in config.get_models(include_auto_created=True)
        if model._meta.managed and not model._meta.proxy
    ]
    ordered: dict[type[models.Model], None] = {}

    def add(model: type[models.Model]) -> None:
        for field in model._meta.concrete_fields:
            target = field.related_model
            if isinstance(target, type) and target is not model and target in found and target not in ordered:
                add(target)
        ordered[model] = None

    for model in found:
        add(model)
    return list(ordered)


def model_on(model: type[models.Model], using: str) -> type[models.Model]:
    """The model, or its twin with the names that the database `using` has for its table and columns. Fields have the
    same attribute names; a twin has no managers of ours and no methods."""
    if are_kept_in(using) == are_kept_in(settings.DATABASE):
        return model
    return _twins(using, tuple(models_of_the_package()))[model]


def rows_on(model: type[models.Model], using: str) -> EngineQuerySet[Any]:
    """All rows of that table in the database `using`, whoever owns them."""
    return EngineQuerySet(model_on(model, using), using=using)


def missing_tables(using: str, wanted: Iterable[type[models.Model]]) -> list[str]:
    """The tables of these models that the database has not."""
    there = set(connections[using].introspection.table_names())
    return sorted({model_on(model, using)._meta.db_table for model in wanted} - there)


@cache
def _twins(using: str, originals: tuple[type[models.Model], ...]) -> dict[type[models.Model], type[models.Model]]:
    state = ProjectState()
    for model in originals:
        state.add_model(ModelState.from_model(model))
    with naming_for(using):
        made = state.apps
    return {model: made.get_model(model._meta.label) for model in originals}
