"""What secrets and credentials have in common: sealed rows of one table, and an audit of what is done to them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from django.db import router, transaction

from pikku_storage.access.actors import Actor, identity_of
from pikku_storage.async_twins import AsyncTwins
from pikku_storage.auditing import AuditEvent, Outcome, record_all
from pikku_storage.conf import SecretFormat, settings
from pikku_storage.crypto.bound import Place
from pikku_storage.db import engine
from pikku_storage.db.operations import Swap
from pikku_storage.exceptions import NothingToRotateError, SecretError
from pikku_storage.json import Json, to_text
from pikku_storage.secrets.keyring import Keyring
from pikku_storage.secrets.keys import KeyProvider, Purpose
from pikku_storage.secrets.models import REASON_LENGTH, Action, AuditRow, SealedRow
from pikku_storage.secrets.querysets import AuditQuerySet, EnvelopeQuerySet
from pikku_storage.secrets.rotation import BATCH, Row, SealedTable, rotate
from pikku_storage.secrets.sealing import Sealed, seal, unseal
from pikku_storage.secrets.values import SecretValue, plain

SEALED_COLUMNS = ("key_version", "wrapped_dek", "ciphertext")
_DONE = {Action.READ: "read", Action.WRITE: "written", Action.DELETE: "deleted", Action.ROTATE: "rotated"}
_TOLD = {"secret_key": "key", "credential_name": "name", "user_id": "userId"}
"""What the audit trail calls the columns of the audits."""


@dataclass(frozen=True, slots=True)
class Doing:
    """Who does something, why, and how it went."""

    actor: Actor = field(default_factory=Actor)
    reason: str | None = None
    outcome: Outcome = "success"

    @classmethod
    def of(cls, by: Any, reason: str | None) -> Doing:
        """As callers of the services say it; an empty reason is none. Raises `PayloadError` for one that is no text, or
        too long."""
        return cls(identity_of(by), to_text(reason, root="$reason", longest=REASON_LENGTH) if reason else None)

    def columns(self) -> dict[str, Any]:
        """What an audit says of it, without what is not known: rows look as ever where nobody says anything."""
        columns = {"performed_by": self.actor.user_id, "reason": self.reason}
        known = {name: value for name, value in columns.items() if value is not None}
        return {**known, "outcome": self.outcome} if known or self.outcome != "success" else known


NOBODY = Doing()


class SealedStore(AsyncTwins):
    """The sealed rows of one table.

    `using` picks a database alias. `keys` brings passphrases of its own; `audit` and `audit_reads` override
    `SECRET_AUDIT` and `SECRET_AUDIT_READS`.
    """

    _model: ClassVar[type[SealedRow]]
    _audit_model: ClassVar[type[AuditRow]]
    _purpose: ClassVar[Purpose]
    _identity: ClassVar[tuple[str, ...]]
    """The columns that say which row it is, the primary key first."""

    def __init__(
        self,
        using: str | None = None,
        *,
        keys: KeyProvider | None = None,
        audit: bool | None = None,
        audit_reads: bool | None = None,
    ) -> None:
        self._given_using = using
        self._audit = audit
        self._audit_reads = audit_reads
        self._keyring = Keyring(self._purpose, using, keys)

    def rotate_kek(self) -> int:
        """Seal every row of an older key version under the current one; answers how many there were.

        Raises `NothingToRotateError` if no previous key is configured, and `SecretError` with the names of what did not
        open, after all the others are done.
        """
        if not self._keyring.previous_versions:
            raise NothingToRotateError
        rotated, failures = 0, []
        for progress in rotate(StoreTable(self)):
            rotated += progress.rotated
            failures += progress.failures
        if failures:
            raise SecretError(f"{len(failures)} could not be rotated: {'; '.join(map(str, failures))}")
        return rotated

    # -- what a store says of its rows ---------------------------------------------------------------------------------

    def _place(self, identity: Mapping[str, Any]) -> Place:
        raise NotImplementedError

    def _subject(self, identity: Mapping[str, Any]) -> str:
        """What errors call it."""
        raise NotImplementedError

    def _audited(self, identity: Mapping[str, Any]) -> dict[str, Any]:
        """The columns of the audit that say what was done to what."""
        raise NotImplementedError

    def _encode(self, value: Json) -> Json:
        """What is sealed for a value."""
        return value

    # -- for the services ----------------------------------------------------------------------------------------------

    @property
    def _using(self) -> str:
        return self._given_using or router.db_for_write(self._model)

    @property
    def _rows(self) -> EnvelopeQuerySet:
        return self._model.objects.using(self._using)

    @property
    def _audits(self) -> AuditQuerySet:
        return self._audit_model.objects.using(self._using)

    def _read(self, rows: EnvelopeQuerySet) -> list[dict[str, Any]]:
        return list(rows.order_by().values(*self._identity, *SEALED_COLUMNS))

    def _open(self, row: Mapping[str, Any]) -> Any:
        return unseal(self._keyring, self._sealed(row))

    def _sealed(self, row: Mapping[str, Any]) -> Sealed:
        columns = {name: row.get(name, "") for name in SEALED_COLUMNS}
        return Sealed(subject=self._subject(row), place=self._place(row), **columns)

    def _opened(
        self, row: Mapping[str, Any], doing: Doing, read: Callable[[Mapping[str, Any]], SecretValue]
    ) -> SecretValue:
        """What `read` makes of a row, and the audit of that, whether it opens or not."""
        try:
            value = read(row)
        except SecretError:
            self._record(Action.READ, [row], replace(doing, outcome="failed"))
            raise
        self._record(Action.READ, [row], doing)
        return value

    def _put(self, identity: Mapping[str, Any], value: SecretValue, doing: Doing = NOBODY) -> None:
        subject = self._subject(identity)
        checked = plain(value, root=subject)
        binds = settings.SECRET_FORMAT is not SecretFormat.COMPATIBLE
        encoded = SecretValue(self._encode(checked.reveal()))
        sealed = seal(self._keyring, subject, self._place(identity), encoded, binds=binds)
        columns = {name: getattr(sealed, name) for name in SEALED_COLUMNS}
        at = engine(self._using).now()

        def write() -> list[Mapping[str, Any]]:
            self._rows.put(identity, columns, at=at)
            return [identity]

        self._together(Action.WRITE, write, doing)

    def _delete(self, identity: Mapping[str, Any], doing: Doing = NOBODY) -> None:
        def write() -> list[Mapping[str, Any]]:
            self._rows.remove(identity[self._identity[0]])
            return [identity]

        self._together(Action.DELETE, write, doing)

    def _record(self, action: Action, identities: Sequence[Mapping[str, Any]], doing: Doing = NOBODY) -> None:
        wanted = settings.SECRET_AUDIT if self._audit is None else self._audit
        if action is Action.READ:
            wanted = wanted and (settings.SECRET_AUDIT_READS if self._audit_reads is None else self._audit_reads)
        if wanted:
            subjects = [self._audited(identity) for identity in identities]
            self._audits.record(action.value, subjects, at=engine(self._using).now(), known=doing.columns())
            self._tell_trail(action, subjects, doing)

    def _tell_trail(self, action: Action, subjects: Sequence[Mapping[str, Any]], doing: Doing) -> None:
        """One event for each, and one for all that a step of a rotation did: its own audit names them."""
        metadata: list[dict[str, Json]] = [{_TOLD[name]: value for name, value in each.items()} for each in subjects]
        if action is Action.ROTATE and subjects:
            metadata = [{"count": len(subjects), "keyVersion": self._keyring.current_version}]
        what = f"{self._model._meta.model_name}.{_DONE[action]}"
        because = {} if doing.reason is None else {"reason": doing.reason}
        common: dict[str, Any] = {"type": what, "outcome": doing.outcome, "wire_type": "secrets", "actor": doing.actor}
        events = [AuditEvent(**common, metadata={**each, **because}) for each in metadata]
        record_all(events, using=self._using)

    def _together(self, action: Action, write: Callable[[], Sequence[Mapping[str, Any]]], doing: Doing = NOBODY) -> int:
        """A write, which answers what it was about, and its audit, as one transaction where there are any; answers how
        many it was about."""

        def in_transaction() -> int:
            with transaction.atomic(using=self._using):
                done = write()
                self._record(action, done, doing)
                return len(done)

        return engine(self._using).retrying(in_transaction)


class StoreTable(SealedTable):
    """A store's rows, for the rotation."""

    def __init__(self, store: SealedStore) -> None:
        super().__init__(store._model._meta.db_table, store._keyring, store._using)
        self._store = store

    def batches(self, *, whole: bool) -> Iterator[list[Row]]:
        """See `SealedTable.batches`."""
        return self._pages(self._store._rows.all(), whole=whole)

    def outdated(self, version: int, *, upgrade: bool) -> Iterator[list[Row]]:
        """See `SealedTable.outdated`."""
        return self._pages(self._store._rows.outdated(version, unbound=upgrade), whole=upgrade)

    def count(self, *, version: int | None = None) -> int:
        """See `SealedTable.count`."""
        rows = self._store._rows
        return (rows.all() if version is None else rows.filter(key_version=version)).count()

    def count_outdated(self, version: int, *, upgrade: bool) -> int:
        """See `SealedTable.count_outdated`."""
        return self._store._rows.outdated(version, unbound=upgrade).count()

    def has_other_versions(self, known: Collection[int]) -> bool:
        """See `SealedTable.has_other_versions`."""
        return self._store._rows.exclude(key_version__in=known).exists()

    def swap(self, changes: Sequence[tuple[Row, Sealed]], version: int) -> int:
        """See `SealedTable.swap`. What was swapped is audited."""
        swaps = [Swap(row.pk, row.stored, _columns_of(sealed)) for row, sealed in changes]
        store = self._store
        at = engine(store._using).now()

        def write() -> Sequence[Mapping[str, Any]]:
            store._rows.swap(swaps, version, at=at)
            return self._swapped(changes)

        return store._together(Action.ROTATE, write) if swaps else 0

    def _pages(self, rows: EnvelopeQuerySet, *, whole: bool) -> Iterator[list[Row]]:
        store = self._store
        columns = SEALED_COLUMNS if whole else SEALED_COLUMNS[:-1]
        page = rows.order_by("pk")
        while found := list(page.values(*store._identity, *columns)[:BATCH]):
            key = store._identity[0]
            sealed = [(row[key], store._sealed(row)) for row in found]
            yield [Row(pk, each.subject, each.wrapped_dek, each) for pk, each in sealed]
            page = rows.order_by("pk").filter(pk__gt=found[-1][key])

    def _swapped(self, changes: Sequence[tuple[Row, Sealed]]) -> list[dict[str, Any]]:
        """The identities of the rows that have what they were given."""
        store = self._store
        given = {row.pk: sealed.wrapped_dek for row, sealed in changes}
        columns = (*store._identity, "wrapped_dek")
        found = store._rows.filter(pk__in=list(given)).values(*columns)
        return [row for row in found if row["wrapped_dek"] == given[row[store._identity[0]]]]


def _columns_of(sealed: Sealed) -> dict[str, str]:
    """What changes beside the version: the ciphertext too if it was read, the same one or another."""
    ciphertext = {"ciphertext": sealed.ciphertext} if sealed.ciphertext else {}
    return {"wrapped_dek": sealed.wrapped_dek, **ciphertext}
