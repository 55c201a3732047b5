"""The connection."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper

from pikku_storage.db.backends.djongo import distribution

distribution.require_one()

from djongo import base  # noqa: E402 - not before it is known whose it is
from pymongo import MongoClient  # noqa: E402
from pymongo.database import Database  # noqa: E402

from pikku_storage.db.backends.djongo import translator  # noqa: E402
from pikku_storage.db.backends.djongo.creation import DatabaseCreation  # noqa: E402
from pikku_storage.db.backends.djongo.cursor import Cursor  # noqa: E402
from pikku_storage.db.backends.djongo.features import DatabaseFeatures  # noqa: E402
from pikku_storage.db.backends.djongo.operations import DatabaseOperations  # noqa: E402
from pikku_storage.db.backends.djongo.schema import DatabaseSchemaEditor  # noqa: E402

logger = logging.getLogger("django.db.backends.base")

translator.install()

_clients: dict[tuple[int, str], MongoClient[dict[str, Any]]] = {}
"""One for each alias, with connections for all threads; a process that was forked makes its own."""
_lock = threading.Lock()


class DatabaseWrapper(base.DatabaseWrapper):
    """See the package.

    `HOST` is a host or an address that begins with `mongodb://`. `OPTIONS`, and `CLIENT` as djongo calls it, are what
    `MongoClient` is told.
    """

    data_types = {
        **base.DatabaseWrapper.data_types,
        "JSONField": "object",
        "PositiveBigIntegerField": "long",
        "SmallAutoField": "int",
    }
    data_types_suffix = {**base.DatabaseWrapper.data_types_suffix, "SmallAutoField": "AUTOINCREMENT"}
    # The server and the documents are the same, and what is said of the one holds for the other.
    vendor = "mongodb"
    display_name = "MongoDB through djongo"
    pikku_engine = "djongo"
    SchemaEditorClass = DatabaseSchemaEditor
    creation_class = DatabaseCreation
    features_class = DatabaseFeatures
    ops_class = DatabaseOperations

    connection: Any
    # As in django-mongodb-backend, whose transactions have no counterpart here.
    session = None
    in_atomic_block_mongo = False

    @property
    def driver(self) -> MongoClient[dict[str, Any]]:
        """This process's client of the alias."""
        key = os.getpid(), self.alias
        with _lock:
            if key not in _clients:
                _clients[key] = MongoClient(**self.get_connection_params())
            return _clients[key]

    @property
    def database(self) -> Database[dict[str, Any]]:
        """The database, connected to."""
        self.ensure_connection()
        database: Database[dict[str, Any]] = self.connection
        return database

    def get_connection_params(self) -> dict[str, Any]:
        """What `MongoClient` is told."""
        names = {"HOST": "host", "PORT": "port", "USER": "username", "PASSWORD": "password"}
        given = {word: self.settings_dict[name] for name, word in names.items() if self.settings_dict.get(name)}
        if "port" in given:
            given["port"] = int(given["port"])
        others = {**self.settings_dict.get("CLIENT", {}), **self.settings_dict["OPTIONS"]}
        return {"uuidRepresentation": "standard", **given, **others}

    # Django's own, which djongo replaces by what reopens a client that was closed.
    connect = BaseDatabaseWrapper.connect
    temporary_connection = BaseDatabaseWrapper.temporary_connection

    def get_new_connection(self, connection_params: dict[str, Any]) -> Database[dict[str, Any]]:
        """See `BaseDatabaseWrapper.get_new_connection`."""
        self.client_connection = self.driver
        database = self.client_connection[self.settings_dict["NAME"]]
        self.djongo_connection = base.DjongoClient(database, enforce_schema=False)
        return database

    def create_cursor(self, name: str | None = None) -> Cursor:
        """See `BaseDatabaseWrapper.create_cursor`."""
        return Cursor(self.client_connection, self.connection, self.djongo_connection)

    def close(self) -> None:
        """Forget the connection. The client keeps its own: it is everybody's, and could not be opened again."""
        self.validate_thread_sharing()
        self.connection = None

    def close_pool(self) -> None:
        """Forget the client that a process was forked with."""
        self.connection = None
        _clients.pop((os.getpid(), self.alias), None)

    # -- transactions, of which there are none -------------------------------------------------------------------------

    def set_autocommit(self, autocommit: bool, force_begin_transaction_with_broken_autocommit: bool = False) -> None:
        """Say so to Django, which asks whether it is inside of `atomic`."""
        self.autocommit = autocommit

    def _commit(self) -> None:
        pass

    def _rollback(self) -> None:
        pass

    def validate_no_broken_transaction(self) -> None:
        """An error within `atomic` breaks nothing."""

    def on_commit(self, func: Callable[[], object], robust: bool = False) -> None:
        """Call it at once: what it waits for is written."""
        if not callable(func):
            raise TypeError("on_commit()'s callback must be a callable.")
        try:
            func()
        except Exception:
            if not robust:
                raise
            logger.exception("Error calling %s in on_commit().", func)
