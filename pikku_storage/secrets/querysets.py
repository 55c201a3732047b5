"""Every change of the rows of secrets and credentials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from django.db.models import Q

from pikku_storage.crypto.bound import PREFIX
from pikku_storage.db.operations import Delete, Insert, InsertMany, Swap, Update
from pikku_storage.db.querysets import EngineQuerySet
from pikku_storage.ids import new_id

if TYPE_CHECKING:
    from pikku_storage.secrets.models import AuditRow, KekSalt, SealedRow  # noqa: F401 - named as text


class EnvelopeQuerySet(EngineQuerySet["SealedRow"]):
    """Secrets or credentials."""

    def put(self, identity: Mapping[str, Any], sealed: Mapping[str, Any], *, at: datetime) -> None:
        """Store a sealed value: all of it changes in one write, or all of it is new. `identity` has the primary key."""
        primary_key = self.model._meta.pk.attname
        new = {**identity, "created_at": at}
        self.upsert({primary_key: new.pop(primary_key)}, {**sealed, "updated_at": at}, new=new)

    def remove(self, pk: str) -> bool:
        """Delete a row; `False` if there is none."""
        return bool(self.engine.apply(Delete(self.model, {self.model._meta.pk.attname: pk}))[0])

    def swap(self, swaps: Sequence[Swap], key_version: int, *, at: datetime) -> int:
        """Give each row its new wrapping, if it still has the one that was read; answers how many had."""
        common = {"key_version": key_version, "updated_at": at}
        return self.engine.swap(self.model, "wrapped_dek", swaps, common)

    def outdated(self, key_version: int, *, unbound: bool) -> EnvelopeQuerySet:
        """The rows of versions before `key_version`, and with `unbound` also those that are not bound to their
        place."""
        older = Q(key_version__lt=key_version)
        return self.filter(older | ~Q(wrapped_dek__startswith=PREFIX) if unbound else older)


class SaltQuerySet(EngineQuerySet["KekSalt"]):
    """Salts of key versions."""

    def add(self, key_version: int, salt: str, kek_check: str, *, at: datetime) -> bool:
        """Store the salt of a version; `False` if it has one already."""
        values = {"key_version": key_version, "salt": salt, "kek_check": kek_check, "created_at": at}
        return self.insert(Insert(self.model, values))

    def retire(self, key_version: int, *, at: datetime) -> bool:
        """From now on nothing is written under this version; `False` if it has no salt, or is retired already."""
        where = {"key_version": key_version, "retired_at": None}
        return bool(self.engine.apply(Update(self.model, where, {"retired_at": at}))[0])

    def reinstate(self, key_version: int) -> bool:
        """Undo `retire`."""
        return bool(self.engine.apply(Update(self.model, {"key_version": key_version}, {"retired_at": None}))[0])


class AuditQuerySet(EngineQuerySet["AuditRow"]):
    """The audit of secrets or credentials. Rows are only ever added."""

    def record(
        self,
        action: str,
        subjects: Sequence[Mapping[str, Any]],
        *,
        at: datetime,
        known: Mapping[str, Any] | None = None,
    ) -> None:
        """Add a row for each subject: the columns that say what it was done to. All get what is `known`: by whom, with
        which outcome, and why."""
        if subjects:
            rows = [{"id": new_id(), **subject} for subject in subjects]
            common = {"action": action, "performed_at": at, **(known or {})}
            self.engine.apply(InsertMany(self.model, common, rows))
