"""System checks of the access app."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig
from django.contrib.auth import get_backends
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.db import connections, router

from pikku_storage.access.backends import ScopeBackend
from pikku_storage.access.declarations import declarations

TAG = "pikku_access"


@checks.register(TAG)
def check_backend(*, app_configs: Sequence[AppConfig] | None = None, **options: Any) -> list[checks.CheckMessage]:
    """`pikku.W201`: `has_perm` does not know scopes."""
    try:
        if any(isinstance(backend, ScopeBackend) for backend in get_backends()):
            return []
    except ImproperlyConfigured:
        # There is no backend at all.
        pass
    return [
        checks.Warning(
            "No backend in AUTHENTICATION_BACKENDS answers for scopes: user.has_perm('pikku.…') is false for all but "
            "superusers.",
            hint="Add 'pikku_storage.access.backends.ScopeBackend'. If you never ask that way, silence pikku.W201.",
            id="pikku.W201",
        )
    ]


@checks.register(TAG)
def check_declarations(*, app_configs: Sequence[AppConfig] | None = None, **options: Any) -> list[checks.CheckMessage]:
    """`pikku.E201` declarations that contradict, `pikku.E202` a role with a scope that nobody declares."""
    hint = "Declare it once, or with the same words. `manage.py sync_scopes` does nothing until then."
    found: list[checks.CheckMessage] = [
        checks.Error(problem, hint=hint, id="pikku.E201") for problem in declarations.problems
    ]
    for role, scopes in declarations.undeclared_scopes().items():
        text = f"The role {role!r} names scopes that nobody declares: {', '.join(scopes)}."
        found.append(checks.Error(text, hint="Declare them in a scopes.py with declare_scopes.", id="pikku.E202"))
    return found


@checks.register(TAG, checks.Tags.database)
def check_shadowed_roles(
    *, app_configs: Sequence[AppConfig] | None = None, databases: Sequence[str] | None = None, **options: Any
) -> list[checks.CheckMessage]:
    """`pikku.W202`: code declares a role whose name an administrator has given to another one. Asks the database, if it
    is one of the given ones."""
    from pikku_storage.access.models import Role

    using = router.db_for_read(Role)
    if using not in (databases or ()) or Role._meta.db_table not in connections[using].introspection.table_names():
        return []
    shadowed = Role.objects.using(using).filter(name__in=list(declarations.roles), system=False).order_by("name")
    return [
        checks.Warning(
            f"The role {name!r} is declared in code, and an administrator has made one of that name.",
            hint="The next sync_scopes gives its users the scopes of the declared one. Rename one of them if they are "
            "not meant to be the same.",
            id="pikku.W202",
        )
        for name in shadowed.values_list("name", flat=True)
    ]
