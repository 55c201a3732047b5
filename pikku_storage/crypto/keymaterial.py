"""Sealing and signing with key material that services share (contract crypto.md §4).

`name` says which secret the material is, for the error; `info` says what it is used for, and keeps uses apart.
"""

from __future__ import annotations

import hmac
from functools import partial
from typing import Any

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from pikku_storage.crypto.aead import KEY_BYTES
from pikku_storage.crypto.hidden import HiddenBytes
from pikku_storage.crypto.salted import open_token, seal_token
from pikku_storage.crypto.text import from_base64url, to_base64url, utf8
from pikku_storage.exceptions import WeakKeyMaterialError

MIN_LENGTH = 32
"""The least length of key material, in UTF-16 units, as JavaScript counts."""
REMOTE_SECRET = "PIKKU_REMOTE_SECRET"  # noqa: S105 - the name of a secret
REMOTE_SESSION_INFO = "pikku:remote-session"
_HMAC_KEY_BYTES = 64


def check(name: str, material: str) -> None:
    """Raise `WeakKeyMaterialError` for material that is too short."""
    _checked(name, material)


def encrypt(name: str, material: str, info: str, value: Any) -> str:
    """A JSON value as a token. Raises `WeakKeyMaterialError`."""
    return seal_token(_deriving(name, material, info), value)


def decrypt(name: str, material: str, info: str, token: str) -> Any:
    """The value. Raises `WeakKeyMaterialError`, `InvalidEncryptedPayloadError` and `DecryptionError`."""
    return open_token(_deriving(name, material, info), token)


def sign(name: str, material: str, info: str, payload: str) -> str:
    """The signature of a text. Raises `WeakKeyMaterialError`."""
    return to_base64url(_mac(name, material, info, payload))


def verify(name: str, material: str, info: str, payload: str, signature: str) -> bool:
    """Whether the signature is the text's; `False` also for what is no signature. Raises `WeakKeyMaterialError`."""
    return hmac.compare_digest(_mac(name, material, info, payload), from_base64url(signature))


def _mac(name: str, material: str, info: str, payload: str) -> bytes:
    key = _derive(_checked(name, material), info, _HMAC_KEY_BYTES, b"")
    return hmac.digest(key, utf8(payload), "sha256")


def _deriving(name: str, material: str, info: str) -> Any:
    return partial(_derive, _checked(name, material), info, KEY_BYTES)


def _checked(name: str, material: str) -> HiddenBytes:
    length = len(material.encode("utf-16-le", "surrogatepass")) // 2
    if length < MIN_LENGTH:
        raise WeakKeyMaterialError(name, MIN_LENGTH, length)
    return utf8(material)


def _derive(material: HiddenBytes, info: str, length: int, salt: bytes) -> HiddenBytes:
    kdf = HKDF(algorithm=SHA256(), length=length, salt=salt, info=utf8(info))
    return HiddenBytes(kdf.derive(material))
