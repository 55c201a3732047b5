"""JSON Web Tokens as the TypeScript packages make them: HS256, and the id of the secret in the header `kid` (contract
crypto.md §5).

Secrets are given by their ids. The first one signs; the others are still good for what was signed before.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import jwt

from pikku_storage.crypto.keymaterial import MIN_LENGTH
from pikku_storage.exceptions import InvalidTokenError, WeakKeyMaterialError

ALGORITHM = "HS256"
NAME = "A JWT secret"
LEEWAY = 5
"""Seconds that two clocks may differ by."""


def encode(secrets: Mapping[str, str], claims: Mapping[str, Any], *, lifetime: int) -> str:
    """A token that holds for `lifetime` seconds. `secrets` has one at least. Raises `WeakKeyMaterialError`."""
    key_id, secret = next(iter(secrets.items()))
    now = int(time.time())
    dated = {**claims, "iat": now, "exp": now + lifetime}
    return jwt.encode(dated, _checked(secret), algorithm=ALGORITHM, headers={"kid": key_id})


def decode(
    secrets: Mapping[str, str], token: str, *, audience: str | None = None, required: Sequence[str] = ("exp",)
) -> dict[str, Any]:
    """The claims of a token that is signed with one of the secrets, holds, and is meant for that audience, or for none.

    Raises `InvalidTokenError`, and `WeakKeyMaterialError`.
    """
    try:
        secret = _secret(secrets, jwt.get_unverified_header(token).get("kid"))
        claims: dict[str, Any] = jwt.decode(
            token,
            _checked(secret),
            algorithms=[ALGORITHM],
            audience=audience,
            leeway=LEEWAY,
            # Their times of issue are seconds of another machine's clock.
            options={"require": list(required), "verify_iat": False},
        )
    except (jwt.PyJWTError, ValueError, RecursionError) as error:
        raise InvalidTokenError(f"The token is refused: {type(error).__name__}") from None
    return claims


def _secret(secrets: Mapping[str, str], key_id: str | None) -> str:
    if key_id is None and secrets:
        return next(iter(secrets.values()))
    secret = secrets.get(key_id or "")
    if secret is None:
        raise InvalidTokenError(f"Missing secret for id: {key_id!r:.80}")
    return secret


def _checked(secret: str) -> str:
    if len(secret) < MIN_LENGTH:
        raise WeakKeyMaterialError(NAME, MIN_LENGTH, len(secret))
    return secret
