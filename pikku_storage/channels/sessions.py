"""Whose a WebSocket is: Django's session, read from the headers of its handshake."""

from __future__ import annotations

from collections.abc import MutableMapping
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.auth import get_user
from django.contrib.auth.models import AnonymousUser
from django.http import HttpRequest, parse_cookie
from django.http.request import split_domain_port, validate_host

from pikku_storage.channels.threads import Call

LOCAL_HOSTS = [".localhost", "127.0.0.1", "[::1]"]
"""What Django allows with DEBUG and without ALLOWED_HOSTS."""


async def user_of(scope: MutableMapping[str, Any], call: Call) -> Any:
    """The Django user of the session, looked up by `call`; what a middleware of Django Channels has put into the scope
    comes first."""
    if "user" in scope:
        return scope["user"]
    key = parse_cookie(_header(scope, b"cookie")).get(settings.SESSION_COOKIE_NAME)
    return AnonymousUser() if not key else await call(_user, key)


def origin_is_ours(scope: MutableMapping[str, Any]) -> bool:
    """Whether the page that opens a socket is of this site, or of one that `CSRF_TRUSTED_ORIGINS` names, and the host
    is one of `ALLOWED_HOSTS`. A program sends no origin, and no cookie that is not its own."""
    host, origin = _header(scope, b"host"), _header(scope, b"origin")
    allowed = settings.ALLOWED_HOSTS or (LOCAL_HOSTS if settings.DEBUG else [])
    if not validate_host(split_domain_port(host)[0], allowed):
        return False
    return not origin or urlsplit(origin).netloc == host or _is_trusted(origin)


def _is_trusted(origin: str) -> bool:
    found = urlsplit(origin)
    for trusted in map(urlsplit, settings.CSRF_TRUSTED_ORIGINS):
        is_host = found.netloc == trusted.netloc or (
            trusted.netloc.startswith("*.") and found.netloc.endswith(trusted.netloc[1:])
        )
        if is_host and found.scheme == trusted.scheme:
            return True
    return False


def _user(session_key: str) -> Any:
    request = HttpRequest()
    request.session = import_module(settings.SESSION_ENGINE).SessionStore(session_key)
    return get_user(request)


def _header(scope: MutableMapping[str, Any], name: bytes) -> str:
    values = [value for key, value in scope.get("headers", ()) if key == name]
    return b"; ".join(values).decode("latin-1")
