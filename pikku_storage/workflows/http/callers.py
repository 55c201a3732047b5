"""Who sends a request: a client that an authenticator of the project knows, or the user of the session.

A browser sends the session's cookie also when another site makes it do so. Hence the CSRF check is part of the trust in
a session, as in Django REST framework, and no other caller needs it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.middleware.csrf import CsrfViewMiddleware
from django.utils.module_loading import import_string

from pikku_storage.conf import settings
from pikku_storage.workflows.http.errors import CsrfError, NotAuthenticatedError

Authenticator = Callable[[HttpRequest], Any]
"""Answers with a user, or `None` if the request is none of its own. May raise `PermissionDenied`."""


def caller_of(request: HttpRequest) -> Any:
    """The user in whose name the request comes; raises `NotAuthenticatedError`, `CsrfError` and `PermissionDenied`."""
    for path in settings.HTTP_AUTHENTICATORS:
        authenticate: Authenticator = import_string(path)
        user = authenticate(request)
        if user is not None:
            return _signed_in(user)
    user = _signed_in(getattr(request, "user", None))
    _check_csrf(request)
    return user


def _signed_in(user: Any) -> Any:
    if not (getattr(user, "is_authenticated", False) and getattr(user, "is_active", True)):
        raise NotAuthenticatedError
    return user


class _CsrfCheck(CsrfViewMiddleware):
    """Tells the reason instead of answering with a page."""

    def _reject(self, request: HttpRequest, reason: str) -> Any:
        raise CsrfError(reason)


def _no_response(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


def _check_csrf(request: HttpRequest) -> None:
    check = _CsrfCheck(_no_response)
    check.process_request(request)
    check.process_view(request, _no_response, (), {})
