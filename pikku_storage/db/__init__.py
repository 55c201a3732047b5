"""What differs between databases, behind one interface.

`engine("default")` answers with the `Engine` of that connection's vendor. Application code states *what* must happen
together (`operations`); how many statements and transactions that takes is the engine's business.
"""

from __future__ import annotations

from importlib import import_module

from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from pikku_storage.db import documents  # noqa: F401 - names our models on MongoDB, before any of them is made
from pikku_storage.db.base import Engine

_ENGINES = {
    "djongo": "pikku_storage.db.djongo.DjongoEngine",
    "mysql": "pikku_storage.db.mysql.MysqlEngine",
    "sqlite": "pikku_storage.db.sqlite.SqliteEngine",
    "postgresql": "pikku_storage.db.postgresql.PostgresqlEngine",
    "mongodb": "pikku_storage.db.mongodb.MongodbEngine",
}
_made: dict[str, tuple[str, Engine]] = {}


def engine(using: str) -> Engine:
    """The engine of the database alias `using`. Raises `ImproperlyConfigured` for a vendor without one."""
    connection = connections[using]
    # A backend of our own may name another engine than its vendor's.
    kind = getattr(connection, "pikku_engine", connection.vendor)
    made = _made.get(using)
    if made is None or made[0] != kind:
        if kind not in _ENGINES:
            raise ImproperlyConfigured(
                f"DATABASES[{using!r}]: Pikku Storage has no engine for {kind!r}; "
                f"it runs on {', '.join(sorted(_ENGINES))}."
            )
        module, _, name = _ENGINES[kind].rpartition(".")
        made = _made[using] = (kind, getattr(import_module(module), name)(using))
    return made[1]


__all__ = ["Engine", "engine"]
