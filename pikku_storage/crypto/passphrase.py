"""Tokens under a passphrase (contract crypto.md §4): `salt (16) | IV (12) | ciphertext | tag (16)`."""

from __future__ import annotations

from typing import Any

from pikku_storage.crypto.envelope import pbkdf2
from pikku_storage.crypto.salted import open_token, seal_token


def encrypt(passphrase: str, value: Any) -> str:
    """A JSON value under a key that is derived anew for each token."""
    return seal_token(lambda salt: pbkdf2(passphrase, salt), value)


def decrypt(passphrase: str, token: str) -> Any:
    """The value. Raises `DecryptionError`, or `InvalidEncryptedPayloadError` for what is too short."""
    return open_token(lambda salt: pbkdf2(passphrase, salt), token)
