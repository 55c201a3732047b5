"""The signature of a webhook (contract crypto.md §7): `sha256=<hex HMAC-SHA-256>` over the exact body."""

from __future__ import annotations

import hmac
from hashlib import sha256

from pikku_storage.crypto.hidden import HiddenBytes
from pikku_storage.secrets.values import SecretValue, hide

PREFIX = "sha256="


def sign_webhook(secret: str | SecretValue, body: bytes | str) -> str:
    """What the header `X-Pikku-Signature` holds for this body."""
    secret = hide(secret)
    key = HiddenBytes(secret.reveal().encode())
    return PREFIX + hmac.new(key, body.encode() if isinstance(body, str) else body, sha256).hexdigest()


def verify_webhook(secret: str | SecretValue, body: bytes | str, header: str | None) -> bool:
    """Whether the header is the signature of the body, as it was received. Takes the same time wherever it is wrong."""
    secret = hide(secret)
    expected = sign_webhook(secret, body)
    return header is not None and hmac.compare_digest(expected.encode(), header.strip().encode("utf-8", "replace"))
