"""Envelope encryption (contract crypto.md §3): a value under a data key of its own, that under a key-encryption key.

This is the format that the TypeScript packages read and write. It is bound to nothing; see `bound` for one that is.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.pbkdf2 import PBKDF2HMAC

from pikku_storage.crypto.aead import KEY_BYTES, generate_key, seal, unseal
from pikku_storage.crypto.hidden import HiddenBytes
from pikku_storage.crypto.text import from_base64url, from_plaintext, to_base64url, to_plaintext, utf8
from pikku_storage.exceptions import DecryptionError

ITERATIONS = 600_000
SALT_BYTES = 16


class Envelope(NamedTuple):
    """A sealed value, and the key that it is sealed with, which is sealed too. Both are base64url."""

    ciphertext: str
    wrapped_dek: str


def generate_kek_salt() -> str:
    """A random salt, 22 characters."""
    return to_base64url(os.urandom(SALT_BYTES))


def derive_kek(passphrase: str, salt: str) -> HiddenBytes:
    """The 256-bit key-encryption key of a passphrase. Slow on purpose: keep the result, in memory only."""
    return pbkdf2(passphrase, from_base64url(salt))


def pbkdf2(passphrase: str, salt: bytes) -> HiddenBytes:
    """PBKDF2-HMAC-SHA-256 with 600,000 iterations."""
    kdf = PBKDF2HMAC(algorithm=SHA256(), length=KEY_BYTES, salt=salt, iterations=ITERATIONS)
    return HiddenBytes(kdf.derive(utf8(passphrase)))


def generate_dek() -> str:
    """A random data key, 43 characters."""
    return to_base64url(generate_key())


def wrap_dek(kek: bytes, dek: str) -> str:
    """A data key under a key-encryption key: 98 characters."""
    return to_base64url(seal(kek, to_plaintext(dek)))


def unwrap_dek(kek: bytes, wrapped_dek: str) -> str:
    """The data key. Raises `DecryptionError`."""
    dek = from_plaintext(unseal(kek, from_base64url(wrapped_dek)))
    if not isinstance(dek, str):
        raise DecryptionError("What was unwrapped is no data key")
    return dek


def encrypt(kek: bytes, value: Any) -> Envelope:
    """A JSON value under a new data key."""
    dek = generate_key()
    return Envelope(to_base64url(seal(dek, to_plaintext(value))), wrap_dek(kek, to_base64url(dek)))


def decrypt(kek: bytes, ciphertext: str, wrapped_dek: str) -> Any:
    """The value. Raises `DecryptionError`, or `InvalidEncryptedPayloadError` for what is too short."""
    return from_plaintext(decrypt_plaintext(kek, ciphertext, wrapped_dek))


def decrypt_plaintext(kek: bytes, ciphertext: str, wrapped_dek: str) -> HiddenBytes:
    """The value's JSON; see `decrypt`."""
    return unseal(HiddenBytes(from_base64url(unwrap_dek(kek, wrapped_dek))), from_base64url(ciphertext))


def rewrap(old_kek: bytes, new_kek: bytes, wrapped_dek: str) -> str:
    """The same data key under another key-encryption key. The ciphertext stays as it is."""
    return wrap_dek(new_kek, unwrap_dek(old_kek, wrapped_dek))
