"""Envelope encryption that knows its place.

As in `envelope`, a value has a data key of its own. Here both are sealed with associated data: the value with the
table, name and owner that it belongs to, and the data key also with the version of the key that wraps it. So neither
opens anywhere else, and another version takes nothing but a new wrapping.

Texts begin with `pk2.`, a character of which is not in base64url, so that nobody takes the one format for the other.
The associated data is the ASCII JSON array `["pk2", "value" or "key", table, name, owner, version]`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from pikku_storage.crypto.aead import generate_key, seal, unseal
from pikku_storage.crypto.envelope import Envelope
from pikku_storage.crypto.hidden import HiddenBytes
from pikku_storage.crypto.text import from_base64url, from_plaintext, to_base64url, to_plaintext
from pikku_storage.exceptions import InvalidEncryptedPayloadError

FORMAT = "pk2"
PREFIX = f"{FORMAT}."


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value belongs. `owner` is `None` for what belongs to nobody in particular."""

    table: str
    name: str
    owner: str | None = None

    def associated(self, part: str, key_version: int | None = None) -> bytes:
        """What is sealed with the `value`, or with the `key` of that version."""
        return json.dumps([FORMAT, part, self.table, self.name, self.owner, key_version]).encode()


def is_bound(text: str) -> bool:
    """Whether a ciphertext, or a wrapped data key, is in this format."""
    return text.startswith(PREFIX)


def encrypt(kek: bytes, value: Any, place: Place, key_version: int) -> Envelope:
    """A JSON value under a new data key."""
    return encrypt_plaintext(kek, to_plaintext(value), place, key_version)


def encrypt_plaintext(kek: bytes, plaintext: HiddenBytes, place: Place, key_version: int) -> Envelope:
    """A value's JSON under a new data key."""
    dek = generate_key()
    ciphertext = _to_text(seal(dek, plaintext, place.associated("value")))
    return Envelope(ciphertext, _to_text(seal(kek, dek, place.associated("key", key_version))))


def decrypt(kek: bytes, ciphertext: str, wrapped_dek: str, place: Place, key_version: int) -> Any:
    """The value. Raises `DecryptionError` if anything was changed, or belongs to another place or version."""
    dek = unseal(kek, _from_text(wrapped_dek), place.associated("key", key_version))
    return from_plaintext(unseal(dek, _from_text(ciphertext), place.associated("value")))


def rewrap(
    old_kek: bytes, new_kek: bytes, wrapped_dek: str, place: Place, *, old_version: int, new_version: int
) -> str:
    """The same data key under another version's key. The ciphertext stays as it is."""
    dek = unseal(old_kek, _from_text(wrapped_dek), place.associated("key", old_version))
    return _to_text(seal(new_kek, dek, place.associated("key", new_version)))


def pack(envelope: Envelope, key_version: int) -> str:
    """One text for a column that holds all of it: `pk2.<key version>.<wrapped data key>.<ciphertext>`."""
    return ".".join([FORMAT, str(key_version), *(part.removeprefix(PREFIX) for part in reversed(envelope))])


def unpack(text: str) -> tuple[Envelope, int]:
    """The envelope and its key version. Raises `InvalidEncryptedPayloadError` for any other text."""
    parts = text.split(".")
    if len(parts) == 4 and parts[0] == FORMAT and parts[1].isascii() and parts[1].isdigit():
        return Envelope(PREFIX + parts[3], PREFIX + parts[2]), int(parts[1])
    raise InvalidEncryptedPayloadError


def _to_text(sealed: bytes) -> str:
    return PREFIX + to_base64url(sealed)


def _from_text(text: str) -> bytes:
    """Strict: one value has one text, so that no bit of it can change unnoticed."""
    sealed = from_base64url(text.removeprefix(PREFIX))
    if _to_text(sealed) != text:
        raise InvalidEncryptedPayloadError
    return sealed
