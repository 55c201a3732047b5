"""Views that need scopes.

Who is not signed in is treated as Django's own `PermissionRequiredMixin` treats them: sent to sign in, or refused. Who
lacks a scope is refused: with the contract's `{"error": "missing_scope", "scope": …}` if they would rather have JSON
than a page, and by `PermissionDenied` otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from asgiref.sync import iscoroutinefunction, sync_to_async
from django.contrib.auth.mixins import AccessMixin
from django.core.exceptions import ImproperlyConfigured, PermissionDenied
from django.http import HttpRequest, JsonResponse
from django.http.response import HttpResponseBase

from pikku_storage.access.held import held_scopes
from pikku_storage.access.scopes import verify_scopes
from pikku_storage.exceptions import MissingScopeError

View = TypeVar("View", bound=Callable[..., Any])


class _Refuser(AccessMixin):
    """Where AccessMixin is asked what becomes of a request that is not let in."""

    request: HttpRequest

    def refusal(self, required: tuple[str, ...]) -> HttpResponseBase | None:
        """The answer to a request that may not pass, or `PermissionDenied`; `None` if it may."""
        try:
            verify_scopes(held_scopes(self.request.user), required)
        except MissingScopeError as error:
            if self.request.user.is_authenticated:
                if self.request.get_preferred_type(["text/html", "application/json"]) == "application/json":
                    return JsonResponse(error.payload, status=error.http_status)
                raise PermissionDenied(str(error)) from None
            return self.handle_no_permission()
        return None


def require_scopes(*scopes: str, login_url: str | None = None, raise_exception: bool = False) -> Callable[[View], View]:
    """Let only those into a view, `def` or `async def`, who hold all of the scopes."""
    if not scopes or any(callable(scope) for scope in scopes):
        raise ImproperlyConfigured('require_scopes needs scopes: @require_scopes("shop:orders:read")')

    def decorate(view: View) -> View:
        def refusal(request: HttpRequest) -> HttpResponseBase | None:
            refuser = _Refuser()
            refuser.request, refuser.login_url, refuser.raise_exception = request, login_url, raise_exception
            return refuser.refusal(scopes)

        guarded: Any

        if iscoroutinefunction(view):

            @wraps(view)
            async def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
                return await sync_to_async(refusal)(request) or await view(request, *args, **kwargs)

        else:

            @wraps(view)
            def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
                return refusal(request) or view(request, *args, **kwargs)

        made: View = guarded
        return made

    return decorate


class ScopesRequiredMixin(_Refuser):
    """Let only those into a class-based view who hold all of `scopes_required`. Stands left of `View`, whose handlers
    may be `async`."""

    scopes_required: tuple[str, ...] | list[str] | str = ()

    def get_scopes_required(self) -> tuple[str, ...]:
        """The scopes that this request needs; override it to decide by the request."""
        required = self.scopes_required
        if not required:
            raise ImproperlyConfigured(f"{type(self).__name__} has no scopes_required")
        return (required,) if isinstance(required, str) else tuple(required)

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        """See `View.dispatch`."""
        if getattr(self, "view_is_async", False):
            return self._adispatch(request, *args, **kwargs)
        return self.refusal(self.get_scopes_required()) or super().dispatch(request, *args, **kwargs)  # type: ignore[misc]

    async def _adispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        refused = await sync_to_async(self.refusal)(self.get_scopes_required())
        return refused or await super().dispatch(request, *args, **kwargs)  # type: ignore[misc]
