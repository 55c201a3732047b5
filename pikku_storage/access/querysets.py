"""Every change of the rows of scopes, roles, grants and sessions.

Grants hang on scopes and roles. SQL has foreign keys, which decide when a grant and a removal meet. MongoDB has neither
those nor transactions: a removal is marked first, which decides it; and whoever has granted looks once more whether
what was granted is still there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from django.db import IntegrityError, models, transaction

from pikku_storage.db.operations import NOT_NULL, Conditions, Delete, Guard, Insert, InsertMany, Update
from pikku_storage.db.querysets import EngineQuerySet

if TYPE_CHECKING:
    from pikku_storage.access.models import Role, Scope, UserSession  # noqa: F401 - named as text

Row = TypeVar("Row", bound=models.Model)

PRESENT: Conditions = {"removing_at": None}
"""Holds for a scope or role that nobody is about to remove."""
BATCH = 500
_TRIES = 10


def batches(names: Collection[str]) -> Iterator[list[str]]:
    """The names in lists that every database takes."""
    rest = iter(names)
    while some := list(islice(rest, BATCH)):
        yield some


class NamedQuerySet(EngineQuerySet[Row]):
    """Scopes or roles."""

    def write(self, name: str, values: Mapping[str, Any], new: Mapping[str, Any], *, at: datetime) -> None:
        """Bring the row of that name to these values, if need be as a new one, which also has those of `new`.

        One that is being removed is removed first: what hung on it belongs to the old one.
        """
        insert = Insert(self.model, {"name": name, **new, **values})
        for _ in range(_TRIES):
            if self.engine.apply(Update(self.model, {"name": name, **PRESENT}, values))[0]:
                return
            self.remove(name, {"removing_at": NOT_NULL}, at=at)
            if self.insert(insert):
                return
            # Somebody else was first, so there is something to change; unless it is removed again meanwhile.
        # It is something else, and the database says what.
        self.engine.apply(insert)

    def add(self, common: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> bool:
        """New rows; `False`, and maybe some of them, if one of these names is there."""
        return self.insert(InsertMany(self.model, common, rows))

    def undeclare(self, names: Collection[str], where: Conditions) -> None:
        """Those of these names that also meet `where` are not declared in code any more."""
        for some in batches(names):
            self.engine.apply(Update(self.model, {"name": some, "declared": True, **where}, {"declared": False}))

    def remove(self, name: str, where: Conditions, *, at: datetime) -> bool:
        """Delete a row that meets `where`, with all that hangs on it; `False` if it does not meet it, or is not there.

        The decision is one guarded write. If the process dies after it on a database without transactions, the next
        one that wants to remove the row, or to write it again, does the rest.
        """
        return self.engine.retrying(lambda: self._remove(name, where, at))

    def _remove(self, name: str, where: Conditions, at: datetime) -> bool:
        # What hangs on it.
        relations = self.model._meta.related_objects
        dependants = [Delete(each.related_model, {each.field.attname: name}) for each in relations]
        row = {"name": name, "removing_at": NOT_NULL}
        with transaction.atomic(using=self.engine.using):
            marked = self.engine.apply(Update(self.model, {"name": name, **PRESENT, **where}, {"removing_at": at}))[0]
            if not marked and not self.using(self.engine.using).filter(pk=name, removing_at__isnull=False).exists():
                return False
            for delete in dependants:
                self.engine.apply(delete)
            self.engine.apply(Delete(self.model, row))
            if self.has_foreign_keys:
                # PostgreSQL has let a grant in until now: what is marked is locked, and its key is not.
                for delete in dependants:
                    self.engine.apply(delete)
        return True

    @property
    def has_foreign_keys(self) -> bool:
        """Whether the database keeps grants from outliving what is granted."""
        return bool(self.engine.connection.features.supports_foreign_keys)


class ScopeQuerySet(NamedQuerySet["Scope"]):
    """Scopes."""


class RoleQuerySet(NamedQuerySet["Role"]):
    """Roles."""

    def hold(self, name: str, where: Conditions) -> bool:
        """Keep others from changing the role until the transaction ends, where there is one; `False` if it does not
        meet `where`."""
        return bool(self.engine.apply(Update(self.model, {"name": name, **PRESENT, **where}, where))[0])


class GrantQuerySet(EngineQuerySet[Row]):
    """Scopes of roles, and what users are given. A row is there or not; nothing of it ever changes."""

    def grant(self, granted: Guard, values: Mapping[str, Any], otherwise: Exception) -> bool:
        """Add a row, if what is `granted` is there; `False` if the row was there before. Raises `otherwise`."""
        here = self.using(self.engine.using).filter(pk=values["id"])
        try:
            with self.engine.savepoint():
                added = bool(self.engine.apply(granted, Insert(self.model, values))[0])
        except IntegrityError:
            # A twin of it was faster, or what was granted is just being removed.
            added = False
        if not added:
            if here.exists():
                return False
            raise otherwise
        if not self.engine.connection.features.supports_foreign_keys and not self._is_there(granted):
            self.engine.apply(Delete(self.model, {"id": values["id"]}))
            raise otherwise
        return True

    def revoke(self, where: Conditions) -> int:
        """Delete the rows that meet `where`; answers how many there were."""
        return self.engine.apply(Delete(self.model, where))[0]

    def _is_there(self, granted: Guard) -> bool:
        return bool(self.engine.read(granted.model, granted.where, ["name"], limit=1))


class SessionQuerySet(EngineQuerySet["UserSession"]):
    """Sessions."""

    def put(self, user_id: str, session: Any, *, at: datetime) -> None:
        """Store a user's session, whole, in place of an earlier one."""
        self.upsert({"pikku_user_id": user_id}, {"session": session, "updated_at": at}, new={"created_at": at})

    def clear(self, user_id: str) -> bool:
        """Delete a user's session; `False` if there is none."""
        return bool(self.engine.apply(Delete(self.model, {"pikku_user_id": user_id}))[0])
