"""What users were granted: who has what and by which way, and a page to give and take."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path
from django.utils.translation import gettext

from console.access.admin.base import AccessAdmin, is_sure
from console.access.choice import Choice
from console.access.delegation import Delegation
from console.access.reads import found_users, granted_users, grantees, is_granted_anything, user_of, ways_of
from console.access.tree import choices
from console.owners import owner_names
from console.people import lists_of
from pikku_storage.access.models import UserRole
from pikku_storage.access.records import RoleRecord
from pikku_storage.exceptions import AccessError


@dataclass(frozen=True, slots=True)
class RoleChoice:
    """A role to be given or not."""

    role: RoleRecord
    is_chosen: bool
    lock: str
    """Why the caller may not change that."""


@admin.register(UserRole)
class GrantAdmin(AccessAdmin):
    """Users and what they were granted, roles as well as scopes. A row of these pages is a user, not a grant."""

    keyset = ("user_id", "id")

    def object_urls(self, name: str) -> list[URLPattern]:
        """The page to give and take."""
        return [path("<str:object_id>/grants/", self.page(self.grants_view), name=f"{name}_grants")]

    def not_found(self) -> Http404:
        """The one answer for users that there are not and for callers who may not know."""
        return Http404(gettext("There is no such user."))

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Everybody who was granted something, or whoever is looked for."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        term, after = request.GET.get("q", "").strip(), request.GET.get("after", "")
        ids, has_more = (found_users(term), False) if term else granted_users(after)
        names = owner_names(ids)
        context = {
            "title": self.list_title(),
            "term": term,
            "is_first_page": not after,
            "users": [
                (names.get(each.user_id, each.user_id), each, self.url("change", each.user_id))
                for each in grantees(ids)
            ],
            "next_url": f"?{urlencode({'after': ids[-1]})}" if has_more else "",
        }
        return self.render(request, "access/users.html", context)

    def row_page(self, request: HttpRequest, row_id: str) -> HttpResponse:
        """What a user holds, by which way, and who gave it when."""
        user = self._user(request, row_id)
        grants = self.service.list_user_grants(row_id)
        people = owner_names(grant.granted_by for grant in grants)
        scopes = {scope.name: scope for scope in self.service.list_scopes()}
        context = {
            "user_id": row_id,
            "name": _name(user, row_id),
            "title": _name(user, row_id),
            "person": user,
            "grants": [
                (
                    grant,
                    self.url("change", grant.name, model=grant.kind),
                    people.get(grant.granted_by or "", grant.granted_by or ""),
                    grant.kind == "scope" and not (grant.name in scopes and scopes[grant.name].declared),
                )
                for grant in grants
            ],
            "ways": [
                (way, scopes.get(way.scope), self.url("change", way.scope, model="scope"))
                for way in ways_of(row_id, self.service)
            ],
            "lists": lists_of(request, row_id),
            "grants_url": self.url("grants", row_id) if self.may_manage(request) else "",
        }
        return self.render(request, "access/user.html", context)

    def grants_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Choose what a user has."""
        user_id = unquote(object_id)
        user = self._user(request, user_id)
        delegation = self.need_manage(request)
        has_roles, has_scopes = self.service.list_user_roles(user_id), self.service.list_user_scopes(user_id)
        roles, scopes = Choice.of_roles(has_roles, has_roles), Choice.of_scopes(has_scopes, has_scopes)
        problem, loses = "", False
        if request.method == "POST":
            sent = request.POST.getlist
            roles = Choice.of_roles(sent("had_role"), sent("role"))
            scopes = Choice.of_scopes(sent("had"), sent("scope"))
            problem = self._problem(delegation, user_id, roles, scopes)
            loses = not problem and self._loses(delegation, user_id, roles, scopes)
            if not problem and (not loses or is_sure(request)):
                self._carry_out(request, user, user_id, roles, scopes)
                return HttpResponseRedirect(self.url("change", user_id))
        why = gettext("You do not hold it, so you can neither give nor take it.")
        context = {
            "user_id": user_id,
            "name": _name(user, user_id),
            "title": gettext("Grants of %(name)s") % {"name": _name(user, user_id)},
            "person": user,
            "roles": self._role_choices(delegation, roles),
            "had_roles": sorted(roles.had),
            "nodes": choices(self.service.list_scopes(), scopes.chosen, delegation.held, why_not_held=why),
            "had": sorted(scopes.had),
            "problem": problem,
            "needs_sure": loses,
            "is_self": delegation.is_self(user_id) and not delegation.is_superuser,
            "back": self.url("change", user_id),
        }
        return self.render(request, "access/grants.html", context)

    # -- how ---------------------------------------------------------------------------------------------------------

    def _user(self, request: HttpRequest, user_id: str) -> Any:
        """The row of the user table, or `None` for a user who is in none and was granted something; raises
        `not_found`."""
        if not self.has_view_permission(request):
            raise self.not_found()
        user = user_of(user_id)
        if user is None and not is_granted_anything(user_id):
            raise self.not_found()
        return user

    def _role_choices(self, delegation: Delegation, choice: Choice) -> list[RoleChoice]:
        return [
            RoleChoice(role, role.name in choice.chosen, delegation.why_not(role.scopes))
            for role in self.service.list_roles()
        ]

    def _problem(self, delegation: Delegation, user_id: str, roles: Choice, scopes: Choice) -> str:
        """Why the caller may not do that; attempts are told to the audit trail."""
        in_roles = {role.name: role.scopes for role in self.service.list_roles()}
        given = [*scopes.added, *_scopes_of(roles.added, in_roles)]
        taken = [*scopes.removed, *_scopes_of(roles.removed, in_roles)]
        problem = delegation.why_not_give(user_id, given) if roles.added or scopes.added else ""
        problem = problem or delegation.why_not(taken)
        if problem:
            told = {"userId": user_id, "roles": roles.added, "scopes": scopes.added}
            event = "access.scope.granted" if roles.added or scopes.added else "access.scope.revoked"
            if event == "access.scope.revoked":
                told |= {"roles": roles.removed, "scopes": scopes.removed}
            delegation.refused(event, **told)
        return problem

    def _loses(self, delegation: Delegation, user_id: str, roles: Choice, scopes: Choice) -> bool:
        if not delegation.is_self(user_id):
            return False
        return delegation.loses_control(scopes=scopes.removed, roles=dict.fromkeys(roles.removed, ()))

    def _carry_out(self, request: HttpRequest, user: Any, user_id: str, roles: Choice, scopes: Choice) -> None:
        """What is given first, so that nobody is without it meanwhile."""
        by, service = request.user, self.service
        steps = [
            *((name, lambda name: service.add_user_to_role(user_id, name, granted_by=by)) for name in roles.added),
            *((name, lambda name: service.add_scope_to_user(user_id, name, granted_by=by)) for name in scopes.added),
        ]
        gone = [
            *((name, lambda name: service.remove_user_from_role(user_id, name, by=by)) for name in roles.removed),
            *((name, lambda name: service.remove_scope_from_user(user_id, name, by=by)) for name in scopes.removed),
        ]
        given, taken = self._each(request, steps), self._each(request, gone)
        if given or taken:
            text = gettext("%(given)d given, %(taken)d taken away.")
            messages.success(request, text % {"given": len(given), "taken": len(taken)})
            if user is not None:
                changes = [*(f"+{name}" for name in given), *(f"-{name}" for name in taken)]
                self.log_change(request, user, " ".join(changes))
        else:
            messages.info(request, gettext("Nothing was changed."))

    def _each(self, request: HttpRequest, steps: Iterable[tuple[str, Any]]) -> list[str]:
        """What was changed; what was not because somebody was faster is no error, and what could not be is said."""
        done = []
        for name, step in steps:
            try:
                if step(name):
                    done.append(name)
            except AccessError as error:
                messages.error(request, str(error))
        return done


def _scopes_of(roles: Iterable[str], in_roles: dict[str, tuple[str, ...]]) -> list[str]:
    return [scope for role in roles for scope in in_roles.get(role, ())]


def _name(user: Any, user_id: str) -> str:
    return user_id if user is None else str(user.get_username())
