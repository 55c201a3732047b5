"""Setting up the benchmarks' Django project in this process."""

from __future__ import annotations

from benchmarks.environment import Environment

_prepared: set[str] = set()


def prepare_database(environment: Environment, alias: str) -> None:
    """Make the database behind `alias` (`default` is PostgreSQL, `sqlite` a file) and its tables, once.

    Raises `MissingError` without a server.
    """
    if alias in _prepared:
        return
    if alias == "default":
        environment.create_database("django")
    import django
    from django.core.management import call_command

    django.setup()
    # Sending messages from here goes through the application that our workers use.
    from benchmarks.project.celery import app

    app.set_current()
    app.set_default()
    call_command("migrate", database=alias, verbosity=0, interactive=False)
    _prepared.add(alias)


def close_connections() -> None:
    """Close this process's database connections, if Django was set up."""
    if _prepared:
        from django.db import connections

        connections.close_all()
