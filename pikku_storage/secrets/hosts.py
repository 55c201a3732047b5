"""Which hosts a secret may be sent to."""

from __future__ import annotations

from pikku_storage.conf import settings
from pikku_storage.exceptions import SecretHostNotAllowedError


def check_host(key: str, host: str) -> None:
    """Raises `SecretHostNotAllowedError` unless the secret of that name may be sent to the host.

    `SECRET_ALLOWED_HOSTS` names hosts, and with `*.` in front everything below one. A secret that is not in it may be
    sent anywhere, or nowhere with `SECRET_STRICT_HOSTS`.
    """
    allowed = settings.SECRET_ALLOWED_HOSTS.get(key)
    if not settings.SECRET_STRICT_HOSTS and allowed is None:
        return
    if not any(_matches(pattern.lower(), host.lower()) for pattern in allowed or ()):
        raise SecretHostNotAllowedError(key, host)


def _matches(pattern: str, host: str) -> bool:
    if pattern.startswith("*."):
        return host.endswith(pattern[1:]) and len(host) >= len(pattern)
    return host == pattern
