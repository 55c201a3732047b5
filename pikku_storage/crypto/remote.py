"""Calls between services: a JWT that names the function, with the session sealed inside (contract crypto.md §5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from pikku_storage.crypto import jwt, keymaterial
from pikku_storage.crypto.hidden import HiddenText
from pikku_storage.crypto.keymaterial import REMOTE_SECRET, REMOTE_SESSION_INFO
from pikku_storage.exceptions import DecryptionError, InvalidTokenError, UnauthorizedError

AUDIENCE = "pikku-remote"
LIFETIME = 300
"""Seconds for which a call may be under way."""
SCHEME = "bearer"


def authorization(secret: str | None, jwt_secrets: Mapping[str, str], func: str, session: Any = None) -> str | None:
    """The header `Authorization` of a call of that function; `None` unless there are both kinds of secrets. Raises
    `WeakKeyMaterialError`, also without a session."""
    if secret is None or not jwt_secrets:
        return None
    keymaterial.check(REMOTE_SECRET, secret)
    claims = {"aud": AUDIENCE, "fn": func}
    if session is not None:
        sealed = {"session": session}
        claims["session"] = keymaterial.encrypt(REMOTE_SECRET, secret, REMOTE_SESSION_INFO, sealed)
    return f"Bearer {jwt.encode(jwt_secrets, claims, lifetime=LIFETIME)}"


def session_of(secret: str | None, jwt_secrets: Mapping[str, str], func: str, header: str | None) -> Any:
    """The session that comes with a call of that function; `None` if there is none, or an empty one.

    A token without a function is good for each of them. Raises `UnauthorizedError`, `WeakKeyMaterialError`, and
    `ImproperlyConfigured` for a secret without those of JWTs.
    """
    if secret is None:
        raise UnauthorizedError
    keymaterial.check(REMOTE_SECRET, secret)
    if not jwt_secrets:
        raise ImproperlyConfigured("PIKKU_STORAGE has a REMOTE_SECRET and no JWT_SECRETS: calls cannot be verified.")
    token = _token_in(header or "")
    try:
        claims = jwt.decode(jwt_secrets, token, audience=AUDIENCE, required=("exp", "aud"))
        if claims.get("fn", func) != func:
            raise UnauthorizedError
        return _opened(secret, claims.get("session"))
    except (InvalidTokenError, DecryptionError):
        raise UnauthorizedError from None


def _token_in(header: str) -> HiddenText:
    scheme, _, token = header.partition(" ")
    if scheme.lower() != SCHEME:
        raise UnauthorizedError
    return HiddenText(token.strip())


def _opened(secret: str, sealed: Any) -> Any:
    if sealed is None:
        return None
    if not isinstance(sealed, str):
        raise UnauthorizedError
    found = keymaterial.decrypt(REMOTE_SECRET, secret, REMOTE_SESSION_INFO, sealed)
    return (found.get("session") if isinstance(found, dict) else None) or None
