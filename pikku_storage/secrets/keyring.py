"""Key-encryption keys: passphrases of the provider, salts of the database, and what is derived of both."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import lru_cache
from hmac import compare_digest
from typing import TYPE_CHECKING, cast

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.apps import apps
from django.db import router

from pikku_storage.crypto import envelope
from pikku_storage.crypto.hidden import HiddenBytes
from pikku_storage.crypto.text import to_base64url
from pikku_storage.db import engine
from pikku_storage.exceptions import KeyNotAvailableError
from pikku_storage.secrets.keys import KeyProvider, Purpose, key_provider

if TYPE_CHECKING:
    from pikku_storage.secrets.models import KekSalt
    from pikku_storage.secrets.querysets import SaltQuerySet

_SALT_MODELS = {Purpose.SECRETS: "SecretKekSalt", Purpose.CREDENTIALS: "CredentialKekSalt"}
_SEALED_MODELS = {Purpose.SECRETS: "Secret", Purpose.CREDENTIALS: "Credential"}
_CHECK_INFO = b"django-pikku-storage: check value of a KEK"

derive_kek = lru_cache(maxsize=64)(envelope.derive_kek)
"""A derivation takes a fifth of a second, so its results stay in the memory of this process."""


@dataclass(frozen=True, slots=True)
class Salt:
    """A stored salt. Without a `check`, which only this package writes, any passphrase may be the right one."""

    text: str
    check: str | None
    is_retired: bool

    def fits(self, kek: HiddenBytes) -> bool:
        """Whether this is the key that the version began with, as far as can be told."""
        return self.check is None or compare_digest(self.check, check_value(kek))


_salts: dict[tuple[str, Purpose, int], Salt] = {}
"""Salts by database, for reading only: with a wrong one nothing opens, and it is asked for again. Who writes
asks the database each time, so that nothing is written under a salt that is not there."""


class Keyring:
    """The keys of one purpose, with the salts of one database."""

    def __init__(self, purpose: Purpose, using: str | None = None, keys: KeyProvider | None = None) -> None:
        self.purpose = purpose
        self._using = using
        self._keys = keys

    @property
    def keys(self) -> KeyProvider:
        """The provider of passphrases."""
        return self._keys or key_provider()

    @property
    def model(self) -> type[KekSalt]:
        """The table of the salts."""
        return cast("type[KekSalt]", apps.get_model("pikku_secrets", _SALT_MODELS[self.purpose]))

    @property
    def using(self) -> str:
        """The alias of the database with the salts."""
        return self._using or router.db_for_write(self.model)

    @property
    def salts(self) -> SaltQuerySet:
        """The stored salts."""
        return self.model.objects.using(self.using)

    def knows(self, version: int) -> bool:
        """Whether a version has a salt, or is configured."""
        return version in {self.current_version, *self.previous_versions} or self._read_salt(version) is not None

    @property
    def current_version(self) -> int:
        """The version to write under."""
        return self.keys.current_version(self.purpose)

    @property
    def previous_versions(self) -> Collection[int]:
        """The other configured versions."""
        return self.keys.previous_versions(self.purpose)

    def kek_to_write(self) -> tuple[int, HiddenBytes]:
        """The current version and its key. Its salt is made if this is the first write under it.

        Raises `KeyNotAvailableError`, also for a passphrase that is not the one the version began with.
        """
        version = self.current_version
        salt = self._read_salt(version) or self._make_salt(version)
        if salt.is_retired:
            raise KeyNotAvailableError(version, "it is retired. This process runs with old settings; restart it")
        kek = self._derive(version, salt)
        if not salt.fits(kek):
            raise KeyNotAvailableError(
                version,
                "its passphrase is not the one that this version began with. Give a new passphrase a new version",
            )
        return version, kek

    def keks_to_read(self, version: int) -> Iterator[HiddenBytes]:
        """The key of any version; and, if the salt that this process knows is not the one that the database has, as
        after a restored backup, the right one. Raises `KeyNotAvailableError`."""
        known = self._known_salt(version)
        yield self._derive(version, known)
        stored = self._read_salt(version)
        if stored is not None and stored != known:
            _salts[self._place(version)] = stored
            yield self._derive(version, stored)

    def is_right(self, version: int) -> bool | None:
        """Whether this is the key that the version began with; `None` if that cannot be told."""
        salt = self._known_salt(version)
        return None if salt.check is None else salt.fits(self._derive(version, salt))

    def _derive(self, version: int, salt: Salt) -> HiddenBytes:
        if not self.keys.passphrase(self.purpose, version):
            raise KeyNotAvailableError(version, f"no passphrase is configured for it ({self.purpose})")
        # Nobody holds the passphrase in a variable, where a debug page would show it.
        return derive_kek(self.keys.passphrase(self.purpose, version) or "", salt.text)

    def _known_salt(self, version: int) -> Salt:
        place = self._place(version)
        salt = _salts.get(place) or self._read_salt(version)
        if salt is None:
            raise self._no_salt(version)
        _salts[place] = salt
        return salt

    def _no_salt(self, version: int) -> KeyNotAvailableError:
        table = self.model._meta.db_table
        return KeyNotAvailableError(version, f"{table} has no salt for it. Restore that row from a backup")

    def _read_salt(self, version: int) -> Salt | None:
        rows = self.salts.filter(pk=version)
        for text, check, retired_at in rows.values_list("salt", "kek_check", "retired_at"):
            return Salt(text, check, retired_at is not None)
        return None

    def _make_salt(self, version: int) -> Salt:
        sealed = apps.get_model("pikku_secrets", _SEALED_MODELS[self.purpose])._default_manager.using(self.using)
        if sealed.filter(key_version=version).exists():
            # Unless somebody has made it since we looked, it is lost, and another one would only make things worse.
            found = self._read_salt(version)
            if found is None:
                raise self._no_salt(version)
            return found
        salt = Salt(envelope.generate_kek_salt(), None, is_retired=False)
        check = check_value(self._derive(version, salt))
        self.salts.add(version, salt.text, check, at=engine(self.using).now())
        # It may be that somebody else was faster: then theirs counts.
        made = self._read_salt(version)
        if made is None:
            raise KeyNotAvailableError(version, "its salt is being written by a transaction that this one cannot see")
        return made

    def _place(self, version: int) -> tuple[str, Purpose, int]:
        return self.using, self.purpose, version


def check_value(kek: HiddenBytes) -> str:
    """Tells one key from another, and nothing about either."""
    return to_base64url(HKDF(algorithm=SHA256(), length=16, salt=None, info=_CHECK_INFO).derive(kek))
