"""Everything that is sealed: secrets, credentials, and the encrypted fields of every installed app."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from django.apps import apps
from django.db import router
from django.db.models import ExpressionWrapper, F, QuerySet, TextField

from pikku_storage.crypto import bound
from pikku_storage.crypto.envelope import Envelope
from pikku_storage.db import engine
from pikku_storage.db.operations import Swap
from pikku_storage.exceptions import SecretDecryptionError
from pikku_storage.secrets.credentials import CredentialService
from pikku_storage.secrets.fields import KEYRING, EncryptedJSONField
from pikku_storage.secrets.rotation import BATCH, Row, SealedTable
from pikku_storage.secrets.sealing import Sealed
from pikku_storage.secrets.service import SecretService
from pikku_storage.secrets.store import StoreTable

_STORED = "pikku_stored"


def sealed_tables(using: str | None = None) -> list[SealedTable]:
    """All of them; those in the database `using`, or in the databases that the routers name."""
    stores = [StoreTable(SecretService(using)), StoreTable(CredentialService(using))]
    return [*stores, *(FieldTable(field, using) for field in encrypted_fields())]


def encrypted_fields() -> Iterator[EncryptedJSONField]:
    """The encrypted fields of all tables of the project."""
    for model in apps.get_models(include_auto_created=True):
        if not model._meta.proxy:
            yield from (field for field in model._meta.local_fields if isinstance(field, EncryptedJSONField))


class FieldTable(SealedTable):
    """One encrypted field, for the rotation. Its texts tell their versions, so all of them are looked at."""

    def __init__(self, field: EncryptedJSONField, using: str | None = None) -> None:
        alias = using or router.db_for_write(field.model)
        super().__init__(field.model._meta.db_table, KEYRING, alias, column=str(field.column))
        self._field = field

    def batches(self, *, whole: bool) -> Iterator[list[Row]]:
        """See `SealedTable.batches`."""
        rows = self._rows()
        page = rows.order_by("pk")
        while found := list(page.values_list("pk", _STORED)[:BATCH]):
            yield [self._row(pk, stored) for pk, stored in found]
            page = rows.order_by("pk").filter(pk__gt=found[-1][0])

    def outdated(self, version: int, *, upgrade: bool) -> Iterator[list[Row]]:
        """See `SealedTable.outdated`."""
        return self.batches(whole=True)

    def count(self, *, version: int | None = None) -> int:
        """See `SealedTable.count`."""
        rows = self._rows()
        return (rows if version is None else rows.filter(**_of_version(version))).count()

    def count_outdated(self, version: int, *, upgrade: bool) -> int:
        """See `SealedTable.count_outdated`."""
        return self.count() - self.count(version=version)

    def has_other_versions(self, known: Collection[int]) -> bool:
        """See `SealedTable.has_other_versions`."""
        rows = self._rows()
        for version in known:
            rows = rows.exclude(**_of_version(version))
        return rows.exists()

    def swap(self, changes: Sequence[tuple[Row, Sealed]], version: int) -> int:
        """See `SealedTable.swap`."""
        name = self._field.attname
        swaps = [
            Swap(row.pk, row.stored, {name: bound.pack(Envelope(new.ciphertext, new.wrapped_dek), new.key_version)})
            for row, new in changes
        ]
        return engine(self.using).swap(self._field.model, name, swaps, {})

    def _rows(self) -> QuerySet[Any, Any]:
        # As plain text: read as itself the field would be opened.
        stored = ExpressionWrapper(F(self._field.attname), output_field=TextField())
        rows: QuerySet[Any, Any] = self._field.model._base_manager.using(self.using)
        rows = rows.filter(**{f"{self._field.name}__isnull": False})
        annotated: QuerySet[Any, Any] = rows.annotate(**{_STORED: stored})
        return annotated

    def _row(self, pk: Any, stored: str) -> Row:
        subject = f"{self._field.subject} of {pk}"
        try:
            sealed = self._field.parse(stored, subject)
        except SecretDecryptionError:
            sealed = None
        return Row(pk, subject, stored, sealed)


def _of_version(version: int) -> dict[str, str]:
    return {f"{_STORED}__startswith": f"{bound.PREFIX}{version}."}
