"""Databases of the TypeScript packages, each kind behind the interface of `base.Source`."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from pikku_storage.importing.sources.base import Row, Source, SourceError

SCHEMES = ("sqlite", "postgres", "postgresql", "mongodb", "mongodb+srv")


def open_source(address: str, *, schema: str | None = None) -> Source:
    """The database of that address: `sqlite:///file` or the path of a file, `postgres://…`, `mongodb://…/name`.
    `schema` is PostgreSQL's. Raises `SourceError`, which does not show the address."""
    scheme, separator, rest = address.partition("://")
    if not separator:
        scheme, rest = "sqlite", address
    elif scheme == "sqlite":
        rest = unquote(rest.removeprefix("/"))
    if scheme == "sqlite":
        from pikku_storage.importing.sources.sqlite import SqliteSource

        return SqliteSource(Path(rest))
    if scheme in ("postgres", "postgresql"):
        from pikku_storage.importing.sources.postgresql import PostgresqlSource

        return PostgresqlSource(address, schema)
    if scheme in ("mongodb", "mongodb+srv"):
        try:
            from pikku_storage.importing.sources.mongodb import MongodbSource
        except ImportError:
            raise SourceError("To read MongoDB takes pymongo: pip install 'django-pikku-storage[mongodb]'") from None
        return MongodbSource(address, unquote(urlsplit(address).path.strip("/")))
    raise SourceError(f"There is no source of the scheme {scheme!r}; there are {', '.join(SCHEMES)}")


__all__ = ["Row", "Source", "SourceError", "open_source"]
