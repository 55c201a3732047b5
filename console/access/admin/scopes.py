"""Scopes: the tree of what code declares, and who holds it."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path
from django.utils.translation import gettext, ngettext

from console.access.admin.base import AccessAdmin, is_sure
from console.access.reads import SHOWN, counted
from console.access.tree import depth_of, in_order
from console.owners import owner_names
from pikku_storage.access.models import RoleScope, Scope, UserScope
from pikku_storage.access.scopes import has_scopes


@admin.register(Scope)
class ScopeAdmin(AccessAdmin):
    """All scopes. They are declared in code, so there is nothing to add or to change."""

    keyset = ("name", "name")

    def get_urls(self) -> list[URLPattern]:
        """The page that deletes what is stale, too."""
        name = f"{self.opts.app_label}_{self.opts.model_name}"
        return [path("prune/", self.page(self.prune_view), name=f"{name}_prune"), *super().get_urls()]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Without those that are just being removed."""
        return super().get_queryset(request).filter(removing_at__isnull=True)

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """The tree."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        scopes = in_order(self.service.list_scopes())
        roles, users = counted(RoleScope, "scope_id"), counted(UserScope, "scope_id")
        context = {
            "title": self.list_title(),
            "scopes": [
                (scope, depth_of(scope.name), roles[scope.name], users[scope.name], self.url("change", scope.name))
                for scope in scopes
            ],
            "stale": sum(not scope.declared for scope in scopes),
            "prune_url": self.url("prune") if self.may_manage(request) else "",
        }
        return self.render(request, "access/scopes.html", context)

    def row_page(self, request: HttpRequest, row_id: str) -> HttpResponse:
        """Who holds it, by roles and directly, also by a broader one."""
        scope = self.visible_rows(request).filter(pk=row_id).first()
        if scope is None:
            raise self.not_found()
        names = [each.name for each in self.service.list_scopes() if has_scopes([each.name], [scope.name])]
        roles: QuerySet[Any] = RoleScope._default_manager.filter(scope__in=names).order_by("role_id")
        users: QuerySet[Any] = UserScope._default_manager.filter(scope__in=names).order_by("user_id")
        found = list(users[: SHOWN + 1])
        people = owner_names([*(grant.user_id for grant in found), *(grant.granted_by for grant in found)])
        context = {
            "scope": scope,
            "title": scope.name,
            "roles": [
                (link.role_id, self.url("change", link.role_id, model="role"), link.scope_id)
                for link in roles[: SHOWN + 1]
            ],
            "users": [
                (
                    people.get(grant.user_id, grant.user_id),
                    self.url("change", grant.user_id, model="userrole"),
                    grant.scope_id,
                    people.get(grant.granted_by or "", grant.granted_by or ""),
                    grant.granted_at,
                )
                for grant in found
            ],
            "shown": SHOWN,
        }
        return self.render(request, "access/scope.html", context)

    def prune_view(self, request: HttpRequest) -> HttpResponse:
        """Ask, and delete the scopes that code declares no more, with all grants of them."""
        delegation = self.need_manage(request)
        stale = self.service.find_stale_scopes()
        names = [each.scope for each in stale]
        problem = delegation.why_not(names) if names else gettext("There is nothing that code declares no more.")
        left = {role.name: set(role.scopes) - set(names) for role in self.service.list_roles()} if names else {}
        loses = not problem and delegation.loses_control(scopes=names, roles=left)
        if request.method == "POST":
            if problem and names:
                delegation.refused("access.scope.pruned", scopes=names)
            if not problem and (not loses or is_sure(request)):
                pruned = self.service.prune_scopes(by=request.user)
                for name in pruned:
                    self.log_deletion_of(request, Scope(name=name))
                text = ngettext("%(n)d scope is deleted.", "%(n)d scopes are deleted.", len(pruned))
                messages.success(request, text % {"n": len(pruned)})
                return HttpResponseRedirect(self.url("changelist"))
        users = counted(UserScope, "scope_id", names)
        return self.ask(
            request,
            title=gettext("Delete stale scopes"),
            explanation=gettext(
                "Code declares these no more. They are deleted, and taken from all roles and users. If a release that "
                "declares them comes back, these grants do not."
            ),
            lines=[(each.scope, _who_loses(each.roles, users[each.scope])) for each in stale],
            problem=problem,
            needs_sure=loses,
            button=gettext("Delete them"),
            back=self.url("changelist"),
        )


def _who_loses(roles: tuple[str, ...], users: int) -> str:
    of_roles = ", ".join(roles) or gettext("no role")
    text = ngettext("%(roles)s; %(n)d user directly", "%(roles)s; %(n)d users directly", users)
    return text % {"roles": of_roles, "n": users}
