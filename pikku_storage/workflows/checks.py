"""System checks of the workflows app."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from celery import current_app
from django.apps import AppConfig
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.db import connections, router
from django.utils.module_loading import import_string

from pikku_storage.conf import settings
from pikku_storage.db import documents, engine
from pikku_storage.workflows.routing import RELAY_TASK


@checks.register("pikku")
def check_dispatcher(*, app_configs: Sequence[AppConfig] | None = None, **options: Any) -> list[checks.CheckMessage]:
    """`pikku.E003`: no such dispatcher."""
    try:
        if settings.DISPATCHER is not None and not callable(getattr(import_string(settings.DISPATCHER), "send", None)):
            raise TypeError(f"{settings.DISPATCHER} has no method send")
    except (ImportError, TypeError, AttributeError) as error:
        hint = "Name a class with a send(messages) method, or None to run every workflow inline."
        return [checks.Error(f"PIKKU_STORAGE['DISPATCHER']: {error}", hint=hint, id="pikku.E003")]
    return []


@checks.register("pikku")
def check_authenticators(
    *, app_configs: Sequence[AppConfig] | None = None, **options: Any
) -> list[checks.CheckMessage]:
    """`pikku.E008`: something that shall say who sends a request cannot be asked."""
    found: list[checks.CheckMessage] = []
    try:
        paths = settings.HTTP_AUTHENTICATORS
    except TypeError:
        # `pikku.E002` says so.
        return found
    for path in paths:
        try:
            if not callable(import_string(path)):
                raise TypeError(f"{path} cannot be called")
        except (ImportError, TypeError, AttributeError) as error:
            hint = "Name callables that take a request, and answer with a user or None."
            found.append(checks.Error(f"PIKKU_STORAGE['HTTP_AUTHENTICATORS']: {error}", hint=hint, id="pikku.E008"))
    return found


@checks.register("pikku")
def check_relay(*, app_configs: Sequence[AppConfig] | None = None, **options: Any) -> list[checks.CheckMessage]:
    """`pikku.W002`: no scheduler of this project's Celery app calls the relay, so sleeps and retries may wait for
    ever."""
    if settings.DISPATCHER is None:
        return []
    entries = current_app.conf.beat_schedule or {}
    if any(entry.get("task") == RELAY_TASK for entry in entries.values()):
        return []
    return [
        checks.Warning(
            "The Celery app of this project does not schedule the relay: sleeps, retries and lost messages would wait "
            "for ever.",
            hint="Call pikku_storage.workflows.routing.configure(app) where the Celery app is made, import that module "
            "in the project's __init__.py, and run `celery beat`. If you run `manage.py relay` instead, silence "
            "pikku.W002.",
            id="pikku.W002",
        )
    ]


@checks.register("pikku")
def check_engine(*, app_configs: Sequence[AppConfig] | None = None, **options: Any) -> list[checks.CheckMessage]:
    """`pikku.E004`: the database that runs are kept in has no engine."""
    from pikku_storage.workflows.models import WorkflowRun

    try:
        engine(router.db_for_write(WorkflowRun))
    except ImproperlyConfigured as error:
        return [checks.Error(str(error), hint="See docs/how-to/configure-databases.md.", id="pikku.E004")]
    return []


@checks.register("pikku")
def check_naming(*, app_configs: Sequence[AppConfig] | None = None, **options: Any) -> list[checks.CheckMessage]:
    """`pikku.E005`: runs are routed to MongoDB, or away from it, and `PIKKU_STORAGE["DATABASE"]` says otherwise."""
    from pikku_storage.workflows.models import WorkflowRun

    routed = router.db_for_write(WorkflowRun)
    named = settings.DATABASE
    if named in connections and documents.are_kept_in(routed) == documents.are_kept_in(named):
        return []
    return [
        checks.Error(
            f"PIKKU_STORAGE['DATABASE'] is {named!r}, and the routers send runs to {routed!r}.",
            hint="The name decides how keys are called. Set it to the alias of the database that holds the runs, and "
            "use pikku_storage.db.router.PikkuRouter.",
            id="pikku.E005",
        )
    ]


@checks.register("pikku")
def check_mirror(*, app_configs: Sequence[AppConfig] | None = None, **options: Any) -> list[checks.CheckMessage]:
    """`pikku.E006`: a mirror that cannot be one."""
    from pikku_storage.workflows.models import WorkflowRun

    named = settings.MIRROR
    if named is None:
        return []
    try:
        if named in connections:
            engine(named)
        elif not callable(getattr(import_string(named), "repeat", None)):
            raise TypeError(f"{named} has no method repeat")
        if named == router.db_for_write(WorkflowRun):
            raise TypeError(f"{named} is the database that runs are kept in")
    except (ImportError, ImproperlyConfigured, TypeError, AttributeError) as error:
        hint = "Name an alias in DATABASES that holds no runs of its own, or a class with a repeat(write) method."
        return [checks.Error(f"PIKKU_STORAGE['MIRROR']: {error}", hint=hint, id="pikku.E006")]
    return []


@checks.register("pikku")
def check_sqlite(*, app_configs: Sequence[AppConfig] | None = None, **options: Any) -> list[checks.CheckMessage]:
    """`pikku.W001`: SQLite whose transactions can fail at once instead of waiting for the other writer."""
    from pikku_storage.workflows.models import WorkflowRun

    connection = connections[router.db_for_write(WorkflowRun)]
    options_given = connection.settings_dict.get("OPTIONS", {})
    if connection.vendor != "sqlite" or options_given.get("transaction_mode") in {"IMMEDIATE", "EXCLUSIVE"}:
        return []
    return [
        checks.Warning(
            "SQLite is used with deferred transactions: with several workers some will fail with 'database is locked'.",
            hint='Set OPTIONS = {"transaction_mode": "IMMEDIATE", "timeout": 30, '
            '"init_command": "PRAGMA journal_mode=WAL"}.',
            id="pikku.W001",
        )
    ]


@checks.register("pikku")
def check_mariadb(*, app_configs: Sequence[AppConfig] | None = None, **options: Any) -> list[checks.CheckMessage]:
    """`pikku.W003`: MariaDB with another isolation level than the one that Django itself takes."""
    from pikku_storage.workflows.models import WorkflowRun

    connection = connections[router.db_for_write(WorkflowRun)]
    # None leaves it to the server, whose own default is REPEATABLE READ.
    level = connection.settings_dict.get("OPTIONS", {}).get("isolation_level", "read committed")
    if connection.vendor != "mysql" or str(level).lower() == "read committed":
        return []
    return [
        checks.Warning(
            "MariaDB is not used with READ COMMITTED: writes lock more rows than they change, and a transaction does "
            "not see what others committed since it began.",
            hint='Set OPTIONS = {"isolation_level": "read committed"}, which is also the default.',
            id="pikku.W003",
        )
    ]


@checks.register("pikku")
def check_djongo(*, app_configs: Sequence[AppConfig] | None = None, **options: Any) -> list[checks.CheckMessage]:
    """`pikku.W006`: runs are kept in MongoDB through djongo."""
    from pikku_storage.workflows.models import WorkflowRun

    using = router.db_for_write(WorkflowRun)
    if getattr(connections[using], "pikku_engine", None) != "djongo":
        return []
    return [
        checks.Warning(
            f"The database {using!r} is reached through djongo, which has no transactions and translates only a part "
            "of what Django asks for.",
            hint="Use django-mongodb-backend if you can: the documents are the same. Otherwise silence pikku.W006.",
            id="pikku.W006",
        )
    ]
