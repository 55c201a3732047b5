"""Writing many rows that are known by their keys, of which a few may be refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django.db import DatabaseError, InterfaceError, OperationalError, transaction

from pikku_storage.db.operations import Insert, InsertMany
from pikku_storage.db.querysets import EngineQuerySet
from pikku_storage.exceptions import PayloadError


def present(there: EngineQuerySet[Any], keys: Iterable[Any]) -> list[Any]:
    """Those of the keys that have a row."""
    return list(there.filter(pk__in=list(keys)).order_by().values_list("pk", flat=True))


def insert_rows(there: EngineQuerySet[Any], rows: Sequence[Mapping[str, Any]]) -> dict[Any, str]:
    """Insert rows with the same columns, all at once if that goes; answers with the keys of those that the database
    refuses, and why. Raises `OperationalError` or `InterfaceError` if it is the database that fails."""
    pk = there.model._meta.pk.attname
    if not rows or _insert(there, InsertMany(there.model, {}, rows)) is None:
        return {}
    # One of them is at fault, or somebody else wrote one. Without transactions some are there now.
    here = set(present(there, [row[pk] for row in rows]))
    one_by_one = {row[pk]: _insert(there, Insert(there.model, row)) for row in rows if row[pk] not in here}
    return {key: reason for key, reason in one_by_one.items() if reason is not None}


def _insert(there: EngineQuerySet[Any], rows: Insert | InsertMany) -> str | None:
    """Why it could not be done; `None` if it was."""
    try:
        with transaction.atomic(using=there.db):
            is_new = there.insert(rows)
    except (OperationalError, InterfaceError):
        raise
    except (DatabaseError, PayloadError) as error:
        # The message may show values.
        return f"the database refuses it ({type(error).__name__})"
    return None if is_new else "another row here has what must be unique"
