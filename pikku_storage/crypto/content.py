"""Signed addresses of files (contract crypto.md §8).

An address has the stamps `signedAt`, `expiresAt` and perhaps `notBefore`, in milliseconds, and a JWT that repeats them
beside the path. Nothing of it can be changed, and it is good for that path only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import quote, unquote_to_bytes, urlencode, urlsplit

from pikku_storage.crypto import jwt
from pikku_storage.exceptions import InvalidTokenError, SignedUrlError

SIGNED_AT, EXPIRES_AT, NOT_BEFORE, SIGNATURE = "signedAt", "expiresAt", "notBefore", "signature"
_MILLISECONDS = re.compile(r"[0-9]{1,15}")
_BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_KEPT = "/%!$&'()*+,-.:;=@[]^_|~"
"""What a browser leaves as it is in the path of an address."""
_HERE, _UP = frozenset({".", "%2e"}), frozenset({"..", ".%2e", "%2e.", "%2e%2e"})


def path_of(url: str) -> str:
    """The path that is signed: without origin and query, dots resolved and escapes decoded; left escaped if one of them
    is broken."""
    path = quote(_without_dots(urlsplit(url).path.replace("\\", "/")), safe=_KEPT)
    if _BROKEN_ESCAPE.search(path):
        return path
    try:
        return unquote_to_bytes(path).decode()
    except UnicodeDecodeError:
        return path


def sign(
    secrets: Mapping[str, str], url: str, *, signed_at: int, expires_at: int, not_before: int | None = None
) -> str:
    """The address with its stamps and signature; times in milliseconds. Raises `WeakKeyMaterialError`."""
    stamps = {SIGNED_AT: signed_at, EXPIRES_AT: expires_at}
    if not_before is not None:
        stamps[NOT_BEFORE] = not_before
    lifetime = max(1, (expires_at - signed_at) // 1000)
    token = jwt.encode(secrets, {**stamps, "path": path_of(url)}, lifetime=lifetime)
    return f"{url}{'&' if '?' in url else '?'}{urlencode({**stamps, SIGNATURE: token})}"


def verify(secrets: Mapping[str, str], path: str, query: Mapping[str, str], *, now: int) -> int:
    """When the address expires, in milliseconds, if it is signed for that path and holds at `now`.

    Raises `SignedUrlError`, whose text says why not, and `WeakKeyMaterialError`.
    """
    if not query.get(SIGNED_AT) or not query.get(EXPIRES_AT):
        raise SignedUrlError("Signed URL required")
    stamps = {name: query[name] for name in (SIGNED_AT, EXPIRES_AT, NOT_BEFORE) if name in query}
    if not all(_MILLISECONDS.fullmatch(text) for text in stamps.values()):
        raise SignedUrlError("Invalid signed URL")
    times = {name: int(text) for name, text in stamps.items()}
    if not max(times[SIGNED_AT], times.get(NOT_BEFORE, 0)) <= now < times[EXPIRES_AT]:
        raise SignedUrlError("Signed URL expired")
    if not secrets:
        raise SignedUrlError("Invalid signed URL")
    if not query.get(SIGNATURE):
        raise SignedUrlError("Signed URL signature required")
    try:
        claims = jwt.decode(secrets, query[SIGNATURE])
    except InvalidTokenError:
        raise SignedUrlError("Invalid signed URL") from None
    bound = {name: claims[name] for name in (SIGNED_AT, EXPIRES_AT, NOT_BEFORE, "path") if name in claims}
    if bound != {**times, "path": path}:
        raise SignedUrlError("Invalid signed URL")
    return times[EXPIRES_AT]


def _without_dots(path: str) -> str:
    kept: list[str] = []
    *folders, last = path.removeprefix("/").split("/")
    for segment in folders:
        if segment.lower() in _UP:
            del kept[-1:]
        elif segment.lower() not in _HERE:
            kept.append(segment)
    if last.lower() in _UP:
        del kept[-1:]
    kept.append("" if last.lower() in _HERE | _UP else last)
    return "/" + "/".join(kept)
