"""Between values, text and bytes, as JavaScript does it."""

from __future__ import annotations

import base64
import json
import re
from typing import Any, NoReturn

from pikku_storage.crypto.hidden import HiddenBytes
from pikku_storage.exceptions import DecryptionError

_SURROGATE = re.compile("[\ud800-\udfff]")
_STRAY = re.compile(r"[^A-Za-z0-9+/]")
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


def to_base64url(data: bytes) -> str:
    """base64url without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def from_base64url(text: str) -> bytes:
    """What base64url, or base64, stands for. As lenient as Node: padding and stray characters are passed over."""
    digits = _STRAY.sub("", text.replace("-", "+").replace("_", "/"))
    # A single digit at the end holds six bits, which is no byte.
    digits = digits[: len(digits) - (len(digits) % 4 == 1)]
    return base64.b64decode(digits + "=" * (-len(digits) % 4))


def utf8(text: str) -> HiddenBytes:
    """Text as `TextEncoder` writes it: a lone surrogate becomes U+FFFD."""
    return HiddenBytes(text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode())


def to_plaintext(value: Any) -> HiddenBytes:
    """Compact JSON, non-ASCII characters as they are, lone surrogates escaped. Raises `TypeError` and `ValueError`."""
    text = _SURROGATE.sub(lambda match: f"\\u{ord(match[0]):04x}", _encode(value))
    return HiddenBytes(text.encode())


def from_plaintext(plaintext: HiddenBytes) -> Any:
    """The value. Raises `DecryptionError` for what is no JSON, without quoting it."""
    try:
        return json.loads(plaintext, parse_constant=_refuse)
    except ValueError:
        pass
    # Out here, because the parser's error holds the whole text.
    raise DecryptionError("What was decrypted is no JSON")


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)
