"""Rotation: every sealed value of an older key version is sealed under the current one.

Only the wrapped data key changes. Each row is compared and swapped: it gets its new wrapping only if it still has the
one that was read, so a value that is written meanwhile is never damaged, and any number of rotations may run at once.
Whatever interrupts a rotation, each row is of the one version or of the other, and the next rotation goes on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from pikku_storage.crypto.aead import generate_key
from pikku_storage.exceptions import KeyNotAvailableError, SecretDecryptionError
from pikku_storage.secrets.keyring import Keyring
from pikku_storage.secrets.sealing import NEVER_SEALED, Sealed, bind, rewrap, unseal

BATCH = 500
PASSES = 5
"""How often a table is gone through, at most, because rows were written meanwhile."""


@dataclass(frozen=True, slots=True)
class Row:
    """A sealed value and where it is stored. `sealed` is `None` for a text that was never sealed."""

    pk: Any
    subject: str
    stored: str
    """What is compared before it is swapped."""
    sealed: Sealed | None


@dataclass(frozen=True, slots=True)
class Failure:
    """A value that does not open. It is left as it is."""

    table: str
    subject: str
    key_version: int | None
    reason: str

    def __str__(self) -> str:
        return f"{self.subject} (key_version {self.key_version}): {self.reason}"


@dataclass(slots=True)
class Progress:
    """What became of one batch."""

    read: int = 0
    rotated: int = 0
    raced: int = 0
    """Rows that somebody else wrote meanwhile; they are looked at again."""
    failures: list[Failure] = field(default_factory=list)


@dataclass(slots=True)
class Verified:
    """What one batch of a verification found."""

    read: int = 0
    versions: Counter[int] = field(default_factory=Counter)
    unbound: int = 0
    failures: list[Failure] = field(default_factory=list)


class SealedTable(ABC):
    """One table, or one column of another app's table, with sealed values."""

    def __init__(self, db_table: str, keyring: Keyring, using: str, *, column: str = "") -> None:
        self.db_table = db_table
        self.keyring = keyring
        self.using = using
        self.label = ".".join(filter(None, [db_table, column]))

    @abstractmethod
    def batches(self, *, whole: bool) -> Iterator[list[Row]]:
        """All rows, by primary key; without `whole` they may lack their ciphertexts."""

    @abstractmethod
    def outdated(self, version: int, *, upgrade: bool) -> Iterator[list[Row]]:
        """The rows of versions before this one, and with `upgrade` those that are not bound to their place, likewise.
        A table that cannot tell gives others too."""

    @abstractmethod
    def count(self, *, version: int | None = None) -> int:
        """How many rows there are, or how many of one key version."""

    @abstractmethod
    def count_outdated(self, version: int, *, upgrade: bool) -> int:
        """How many rows `outdated` gives."""

    @abstractmethod
    def has_other_versions(self, known: Collection[int]) -> bool:
        """Whether something is sealed under a version that is none of these."""

    @abstractmethod
    def swap(self, changes: Sequence[tuple[Row, Sealed]], version: int) -> int:
        """Store what is sealed anew, where nobody has written meanwhile; answers how often."""


def rotate(table: SealedTable, *, upgrade: bool = False, dry_run: bool = False) -> Iterator[Progress]:
    """Seal what is outdated under the current key, batch by batch; with `upgrade` also bind what is not bound.

    With `dry_run` it is opened and sealed, and not stored. No key is derived, and no salt made, for a table in which
    nothing is outdated. Raises `KeyNotAvailableError` if the current key cannot be used.
    """
    failed: set[Any] = set()
    for _ in range(PASSES):
        raced = False
        for progress in _pass(table, failed, upgrade=upgrade, dry_run=dry_run):
            raced = raced or progress.raced > 0
            yield progress
        if not raced or dry_run:
            return


def _pass(table: SealedTable, failed: set[Any], *, upgrade: bool, dry_run: bool) -> Iterator[Progress]:
    version = table.keyring.current_version
    kek = None
    for rows in table.outdated(version, upgrade=upgrade):
        progress = Progress(read=len(rows))
        changes = []
        for row in rows:
            if row.pk in failed or not _needs(row.sealed, version, upgrade=upgrade):
                continue
            if kek is None:
                # A dry run makes no salt, so it has no key either.
                kek = generate_key() if dry_run else table.keyring.kek_to_write()[1]
            try:
                sealed = _sealed(row)
                seal_again = bind if upgrade and not sealed.is_bound else rewrap
                changes.append((row, seal_again(table.keyring, sealed, version, kek)))
            except (SecretDecryptionError, KeyNotAvailableError) as error:
                failed.add(row.pk)
                progress.failures.append(_failure(table, row, error))
        progress.rotated = len(changes) if dry_run else table.swap(changes, version)
        progress.raced = len(changes) - progress.rotated
        yield progress


def verify(table: SealedTable) -> Iterator[Verified]:
    """Open every value, batch by batch."""
    for rows in table.batches(whole=True):
        found = Verified(read=len(rows))
        for row in rows:
            try:
                sealed = _sealed(row)
                found.versions[sealed.key_version] += 1
                found.unbound += not sealed.is_bound
                unseal(table.keyring, sealed)
            except (SecretDecryptionError, KeyNotAvailableError) as error:
                found.failures.append(_failure(table, row, error))
        yield found


def _needs(sealed: Sealed | None, version: int, *, upgrade: bool) -> bool:
    """Whether it is outdated; what was never sealed shall be reported."""
    return sealed is None or sealed.key_version < version or (upgrade and not sealed.is_bound)


def _sealed(row: Row) -> Sealed:
    if row.sealed is None:
        raise SecretDecryptionError(row.subject, None, NEVER_SEALED)
    return row.sealed


def _failure(table: SealedTable, row: Row, error: SecretDecryptionError | KeyNotAvailableError) -> Failure:
    version = None if row.sealed is None else row.sealed.key_version
    return Failure(table.label, row.subject, version, error.reason)
