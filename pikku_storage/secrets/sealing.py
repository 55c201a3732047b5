"""Sealed values, in either format."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from pikku_storage.conf import SecretFormat, settings
from pikku_storage.crypto import bound, envelope
from pikku_storage.crypto.bound import Place
from pikku_storage.crypto.envelope import Envelope
from pikku_storage.crypto.hidden import HiddenBytes
from pikku_storage.exceptions import DecryptionError, SecretDecryptionError
from pikku_storage.secrets.keyring import Keyring
from pikku_storage.secrets.values import SecretValue

T = TypeVar("T")

WRONG_KEY = "the configured KEK does not match the key it was wrapped under"
CHANGED = "the key fits, so the row was changed"
MOVED = "the key fits, so the row was changed, or moved here from another name, owner or table"
NEVER_SEALED = "the stored text was never sealed"
NOT_BOUND = "it is not bound to its place, and SECRET_FORMAT is 'bound-only'"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealed:
    """A sealed value as it is stored. `subject` is what errors call it."""

    subject: str
    place: Place
    key_version: int
    ciphertext: str
    wrapped_dek: str

    @property
    def is_bound(self) -> bool:
        """Whether it opens in its place only."""
        return bound.is_bound(self.wrapped_dek)


def seal(keyring: Keyring, subject: str, place: Place, value: SecretValue, *, binds: bool) -> Sealed:
    """A JSON value under the current key. Raises `KeyNotAvailableError`."""
    version, kek = keyring.kek_to_write()
    revealed = value.reveal
    sealed = bound.encrypt(kek, revealed(), place, version) if binds else envelope.encrypt(kek, revealed())
    return Sealed(subject=subject, place=place, key_version=version, **sealed._asdict())


def unseal(keyring: Keyring, sealed: Sealed) -> Any:
    """The value. Raises `SecretDecryptionError`, and `KeyNotAvailableError` if its version cannot be used."""
    if not sealed.is_bound and settings.SECRET_FORMAT is SecretFormat.BOUND_ONLY:
        raise SecretDecryptionError(sealed.subject, sealed.key_version, NOT_BOUND)

    def open_it(kek: HiddenBytes) -> Any:
        if sealed.is_bound:
            return bound.decrypt(kek, sealed.ciphertext, sealed.wrapped_dek, sealed.place, sealed.key_version)
        return envelope.decrypt(kek, sealed.ciphertext, sealed.wrapped_dek)

    return _with_key(keyring, sealed, open_it)


def rewrap(keyring: Keyring, sealed: Sealed, version: int, kek: HiddenBytes) -> Sealed:
    """The same value under another version's key; see `unseal` for what it raises."""

    def wrap_again(old: HiddenBytes) -> str:
        if not sealed.is_bound:
            return envelope.rewrap(old, kek, sealed.wrapped_dek)
        versions = {"old_version": sealed.key_version, "new_version": version}
        return bound.rewrap(old, kek, sealed.wrapped_dek, sealed.place, **versions)

    return replace(sealed, key_version=version, wrapped_dek=_with_key(keyring, sealed, wrap_again))


def bind(keyring: Keyring, sealed: Sealed, version: int, kek: HiddenBytes) -> Sealed:
    """A value that is bound to nothing, bound to its place under that version's key; see `unseal` for what it
    raises."""

    def seal_again(old: HiddenBytes) -> Envelope:
        plaintext = envelope.decrypt_plaintext(old, sealed.ciphertext, sealed.wrapped_dek)
        return bound.encrypt_plaintext(kek, plaintext, sealed.place, version)

    return replace(sealed, key_version=version, **_with_key(keyring, sealed, seal_again)._asdict())


def _with_key(keyring: Keyring, sealed: Sealed, use: Callable[[HiddenBytes], T]) -> T:
    """What `use` makes of the key that a value is sealed under."""
    failure = None
    for kek in keyring.keks_to_read(sealed.key_version):
        try:
            return use(kek)
        except DecryptionError as error:
            failure = error
    raise SecretDecryptionError(sealed.subject, sealed.key_version, _reason(keyring, sealed)) from failure


def _reason(keyring: Keyring, sealed: Sealed) -> str:
    is_right = keyring.is_right(sealed.key_version)
    if is_right:
        return MOVED if sealed.is_bound else CHANGED
    return WRONG_KEY if is_right is False else f"{WRONG_KEY}, or the row was changed"
