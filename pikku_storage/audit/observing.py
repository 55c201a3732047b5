"""Seeing the statements that audited code makes.

On SQL a wrapper of Django's own (`connection.execute_wrappers`) on each connection, from the moment it is made; on
MongoDB a listener of pymongo's. Both do nothing but look whether the code that runs is audited. A context variable
says so, which async code takes along into the threads where its queries run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.util import find_spec
from typing import Any, Protocol

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

from pikku_storage.audit.statements import Statement, of_sql
from pikku_storage.db.documents import VENDOR, are_kept_in


class Observer(Protocol):
    """Whoever wants to know."""

    def saw(self, statement: Statement) -> None:
        """That statement succeeded, or on MongoDB begins."""


observer: ContextVar[Observer | None] = ContextVar("pikku_audit_observer", default=None)


@contextmanager
def observed_by(who: Observer | None) -> Iterator[None]:
    """Only `who` sees the statements inside the block."""
    token = observer.set(who)
    try:
        yield
    finally:
        observer.reset(token)


def begin() -> None:
    """Look at every connection that is made from now on."""
    connection_created.connect(_wrap, dispatch_uid="pikku_audit")
    if find_spec("pymongo") is not None and any(are_kept_in(alias) for alias in connections):
        from pikku_storage.audit.mongodb import register

        register()


def _wrap(connection: BaseDatabaseWrapper, **kwargs: Any) -> None:
    # The listener sees what djongo makes of SQL. The connection itself is asked: that by which databases are made has
    # an alias that nobody finds.
    if connection.vendor != VENDOR and _look not in connection.execute_wrappers:
        connection.execute_wrappers.append(_look)


def _look(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]) -> Any:
    answer = execute(sql, params, many, context)
    looking = observer.get()
    if looking is not None:
        statement = of_sql(str(sql), params if many else [params])
        if statement is not None:
            with observed_by(None):
                looking.saw(statement)
    return answer
