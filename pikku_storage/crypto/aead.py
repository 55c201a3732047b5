"""AES-256-GCM with a random IV: `IV (12) | ciphertext | tag (16)` (contract crypto.md §1)."""

from __future__ import annotations

import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from pikku_storage.crypto.hidden import HiddenBytes
from pikku_storage.exceptions import DecryptionError, InvalidEncryptedPayloadError

KEY_BYTES = 32
IV_BYTES = 12
TAG_BYTES = 16


def generate_key() -> HiddenBytes:
    """A random 256-bit key."""
    return HiddenBytes(os.urandom(KEY_BYTES))


def seal(key: bytes, plaintext: bytes, associated: bytes | None = None) -> bytes:
    """The plaintext under the key. What is `associated` is not in it, and must be given again to open it."""
    iv = os.urandom(IV_BYTES)
    return iv + AESGCM(key).encrypt(iv, plaintext, associated)


def unseal(key: bytes, sealed: bytes, associated: bytes | None = None) -> HiddenBytes:
    """The plaintext. Raises `InvalidEncryptedPayloadError` for what is too short, `DecryptionError` for another key,
    other associated data, or a changed bit."""
    if len(sealed) < IV_BYTES + TAG_BYTES:
        raise InvalidEncryptedPayloadError
    try:
        if len(key) == KEY_BYTES:
            return HiddenBytes(AESGCM(key).decrypt(sealed[:IV_BYTES], sealed[IV_BYTES:], associated))
    except InvalidTag:
        pass
    raise DecryptionError("The key does not open this, or it was changed")
