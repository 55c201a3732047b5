"""What the pages of scopes, roles and grants have in common."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

from django.contrib.admin.utils import quote, unquote
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from console.access.delegation import Delegation
from console.base import EngineRowAdmin
from console.gate import SCOPES
from pikku_storage.access.models import Role
from pikku_storage.access.service import ScopeService

SURE = "sure"
"""The box that says that one means to give up what one needs to undo it."""


class AccessAdmin(EngineRowAdmin):
    """Rows that the services of `pikku_storage.access` write. Each thing to do has a page of its own."""

    area = SCOPES

    class Media:
        css = {"all": ["console/access.css"]}

    @cached_property
    def service(self) -> ScopeService:
        """Where everything is written."""
        return ScopeService()

    def may_manage(self, request: HttpRequest) -> bool:
        """Whether the caller may change something, as far as the area goes; see `Delegation` for what."""
        return self.may(request, "manage")

    def need_manage(self, request: HttpRequest) -> Delegation:
        """What the caller may hand on; raises `PermissionDenied` for one who may not change anything."""
        if not self.may_manage(request):
            raise PermissionDenied
        return self.delegation(request)

    def delegation(self, request: HttpRequest) -> Delegation:
        """What the caller may hand on."""
        return Delegation(request.user, self.service)

    def page(self, view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
        """A view as an address has it."""
        wrapped: Callable[..., HttpResponse] = self.admin_site.admin_view(
            require_http_methods(["GET", "HEAD", "POST"])(view)
        )
        return wrapped

    def url(self, view: str, pk: str | None = None, *, model: str = "") -> str:
        """The address of a view, of this model or of another one here."""
        name = f"admin:{self.opts.app_label}_{model or self.opts.model_name}_{view}"
        return reverse(name, args=[] if pk is None else [quote(pk)], current_app=self.admin_site.name)

    def row(self, request: HttpRequest, object_id: str) -> Any:
        """The row that an address names; raises `not_found`."""
        row = self.visible_rows(request).filter(pk=unquote(object_id)).first()
        if row is None:
            raise self.not_found()
        return row

    def log_deletion_of(self, request: HttpRequest, row: Any) -> None:
        """The admin's log, of a row that is not there any more."""
        self.log_deletions(request, [row])  # type: ignore[arg-type]

    def ask(self, request: HttpRequest, **context: Any) -> HttpResponse:
        """The page that asks whether. `problem` says why not, `needs_sure` shows the box, and `lines` is what it is
        about."""
        return self.render(request, "access/ask.html", context)


def is_sure(request: HttpRequest) -> bool:
    """Whether the box is ticked."""
    return SURE in request.POST


def kind_of(role: Role) -> str:
    """`system`, `stale` for a system role that code declares no more, or `own` for one that was made here."""
    if not role.system:
        return "own"
    return "system" if role.declared else "stale"
