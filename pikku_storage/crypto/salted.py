"""Tokens that bring the salt of their key: `salt (16) | IV (12) | ciphertext | tag (16)` as base64url."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from pikku_storage.crypto.aead import IV_BYTES, TAG_BYTES, seal, unseal
from pikku_storage.crypto.text import from_base64url, from_plaintext, to_base64url, to_plaintext
from pikku_storage.exceptions import InvalidEncryptedPayloadError

SALT_BYTES = 16


def seal_token(derive: Callable[[bytes], bytes], value: Any) -> str:
    """A JSON value under the key that `derive` makes of a new salt."""
    salt = os.urandom(SALT_BYTES)
    return to_base64url(salt + seal(derive(salt), to_plaintext(value)))


def open_token(derive: Callable[[bytes], bytes], token: str) -> Any:
    """The value; no key is derived for a token that is too short to hold one."""
    data = from_base64url(token)
    if len(data) <= SALT_BYTES + IV_BYTES + TAG_BYTES:
        raise InvalidEncryptedPayloadError
    return from_plaintext(unseal(derive(data[:SALT_BYTES]), data[SALT_BYTES:]))
