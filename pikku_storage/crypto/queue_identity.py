"""Who sent a message, signed: `pq1.<claim>.<signature>` (contract crypto.md §6).

The claim names the user, the queue and, if it is known, the job. The signature is over the claim and the message's
data, so neither can be changed, and the token proves nothing about another message.
"""

from __future__ import annotations

import json
from typing import Any

from pikku_storage.crypto import canonical, keymaterial
from pikku_storage.crypto.text import from_base64url, to_base64url, to_plaintext

VERSION = "pq1"
SECRET = "PIKKU_QUEUE_IDENTITY_SECRET"  # noqa: S105 - the name of a secret
INFO = "pikku:queue-identity"
_PARTS = 3


def sign(secret: str, user_id: str, queue_name: str, data: Any, job_id: str | None = None) -> str:
    """The token of a message. Raises `WeakKeyMaterialError`, and `TypeError` for data that is no JSON."""
    claim = {"u": user_id, "q": queue_name} | ({"j": job_id} if job_id else {})
    text = to_base64url(to_plaintext(claim))
    return f"{VERSION}.{text}.{keymaterial.sign(SECRET, secret, INFO, _payload(text, data))}"


def verify(secret: str, token: object, queue_name: str, data: Any, job_id: str | None = None) -> str | None:
    """The id of the user whose token it is; `None` for any other token, or one of another queue, data or job. One that
    names no job is good for every job. Raises `WeakKeyMaterialError`."""
    parts = token.split(".") if isinstance(token, str) else []
    if len(parts) != _PARTS or parts[0] != VERSION:
        return None
    _version, text, signature = parts
    try:
        payload = _payload(text, data)
    except (TypeError, RecursionError):
        return None
    if not keymaterial.verify(SECRET, secret, INFO, payload, signature):
        return None
    return _user(_read(text), queue_name, job_id)


def _payload(claim: str, data: Any) -> str:
    return f"{VERSION}.{claim}.{canonical.dumps(data)}"


def _read(text: str) -> Any:
    try:
        return json.loads(from_base64url(text).decode(errors="replace"))
    except (ValueError, RecursionError):
        return None


def _user(claim: Any, queue_name: str, job_id: str | None) -> str | None:
    if not isinstance(claim, dict) or claim.get("q") != queue_name:
        return None
    if "j" in claim and (job_id is None or claim["j"] != job_id):
        return None
    user_id = claim.get("u")
    return user_id if isinstance(user_id, str) and user_id else None
