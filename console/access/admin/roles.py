"""Roles: what is in them, who has them, and forms to make, change and delete them."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db import connections
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path
from django.utils.safestring import SafeString
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

from console.access.admin.base import AccessAdmin, is_sure, kind_of
from console.access.choice import Choice
from console.access.delegation import Delegation
from console.access.reads import SHOWN, counted
from console.access.tree import choices, in_order
from console.base import EmptyState
from console.keyset import KeysetChangeList
from console.lookups import id_prefix
from console.moments import since
from console.owners import owner_names
from console.templatetags.pikku_console import pill
from pikku_storage.access.declarations import DESCRIPTION_LENGTH, NAME_LENGTH
from pikku_storage.access.models import Role, RoleScope, UserRole
from pikku_storage.access.records import RoleRecord
from pikku_storage.exceptions import AccessError


class NewRoleForm(forms.Form):
    """The name and the description of a new role."""

    name = forms.CharField(label=_("Name"), max_length=NAME_LENGTH)
    description = forms.CharField(label=_("Description"), max_length=DESCRIPTION_LENGTH, required=False)


@admin.register(Role)
class RoleAdmin(AccessAdmin):
    """All roles. System roles are declared in code and locked."""

    keyset = ("name", "name")
    cheap_columns = ("name", "description", "system", "declared", "created_at")
    list_display = ("name", "kind", "scope_count", "user_count", "description", "created")
    list_display_links = ("name",)
    search_fields = ("name",)
    search_help_text = _("Beginning of a name.")

    # -- addresses and the list --------------------------------------------------------------------------------------

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Who manages scopes."""
        return self.may(request, "manage", "add")

    def get_urls(self) -> list[URLPattern]:
        """The form for a new one, and the page that deletes what is stale."""
        name = f"{self.opts.app_label}_{self.opts.model_name}"
        return [
            path("add/", self.page(self.add_view), name=f"{name}_add"),
            path("prune/", self.page(self.prune_view), name=f"{name}_prune"),
            *super().get_urls(),
        ]

    def object_urls(self, name: str) -> list[URLPattern]:
        """The tree to choose from, and the question whether to delete it."""
        return [
            path("<str:object_id>/scopes/", self.page(self.scopes_view), name=f"{name}_scopes"),
            path("<str:object_id>/delete/", self.page(self.delete_view), name=f"{name}_delete"),
        ]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Without those that are just being removed."""
        return super().get_queryset(request).filter(removing_at__isnull=True)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Role], search_term: str
    ) -> tuple[QuerySet[Role], bool]:
        """By the beginning of the name."""
        term = search_term.strip()
        return (queryset.filter(id_prefix(term, connections[queryset.db].vendor)) if term else queryset), False

    def prepare_page(self, request: HttpRequest, rows: list[Role]) -> None:
        """How many scopes they have, and how many users have them: two queries."""
        names = [row.name for row in rows]
        scopes, users = counted(RoleScope, "role_id", names), counted(UserRole, "role_id", names)
        for row in rows:
            row.__dict__["console_counts"] = (scopes[row.name], users[row.name])

    def empty_state(self, changes: KeysetChangeList) -> EmptyState:
        """Says how to get a first one."""
        if changes.is_first_page and not changes.query:
            text = gettext("Add one here, or declare it in the scopes.py of an app and run manage.py sync_scopes.")
            return EmptyState(gettext("There are no roles yet."), text)
        return super().empty_state(changes)

    @admin.display(description=_("kind"))
    def kind(self, role: Role) -> SafeString:
        """Who declares it."""
        return pill(kind_of(role))

    @admin.display(description=_("scopes"))
    def scope_count(self, role: Role) -> int:
        """How many it has."""
        count: int = role.__dict__["console_counts"][0]
        return count

    @admin.display(description=_("users"))
    def user_count(self, role: Role) -> int:
        """How many have it."""
        count: int = role.__dict__["console_counts"][1]
        return count

    @admin.display(description=_("created"))
    def created(self, role: Role) -> SafeString:
        """When it was made."""
        return since(role.created_at)

    # -- the page of a role ------------------------------------------------------------------------------------------

    def row_page(self, request: HttpRequest, row_id: str) -> HttpResponse:
        """What is in it, and who has it."""
        role = self.visible_rows(request).filter(pk=row_id).first()
        if role is None:
            raise self.not_found()
        record = self._record(role)
        scopes = {scope.name: scope for scope in self.service.list_scopes()}
        users: QuerySet[Any] = UserRole._default_manager.filter(role=role.name).order_by("user_id")
        found = list(users[: SHOWN + 1])
        people = owner_names([*(grant.user_id for grant in found), *(grant.granted_by for grant in found)])
        context = {
            "role": role,
            "kind": kind_of(role),
            "title": role.name,
            "scopes": [
                (scope, self.url("change", scope.name, model="scope"))
                for scope in in_order(scopes[name] for name in record.scopes if name in scopes)
            ],
            "users": [
                (
                    people.get(grant.user_id, grant.user_id),
                    self.url("change", grant.user_id, model="userrole"),
                    people.get(grant.granted_by or "", grant.granted_by or ""),
                    grant.granted_at,
                )
                for grant in found[:SHOWN]
            ],
            "has_more": len(found) > SHOWN,
            "locked": self._locked(role),
            "may_manage": self.may_manage(request),
            "scopes_url": self.url("scopes", role.name),
            "delete_url": self.url("delete", role.name),
            "prune_url": self.url("prune"),
        }
        return self.render(request, "access/role.html", context)

    # -- what may be done --------------------------------------------------------------------------------------------

    def add_view(self, request: HttpRequest, form_url: str = "", extra_context: Any = None) -> HttpResponse:
        """Make one."""
        if not self.has_add_permission(request):
            raise PermissionDenied
        delegation = self.delegation(request)
        form = NewRoleForm(request.POST if request.method == "POST" else None)
        choice = Choice.of_scopes([], request.POST.getlist("scope"))
        problem = ""
        if request.method == "POST" and form.is_valid():
            name, description = form.cleaned_data["name"], form.cleaned_data["description"] or None
            problem = delegation.why_not(choice.added)
            if problem:
                delegation.refused("access.role.created", role=name, scopes=choice.added)
            else:
                try:
                    self.service.create_role(name, choice.chosen, description=description, by=request.user)
                except AccessError as error:
                    problem = str(error)
                else:
                    self.log_addition(request, Role(name=name), _log_text(choice))
                    messages.success(request, gettext("The role %(name)s is made.") % {"name": name})
                    return HttpResponseRedirect(self.url("change", name))
        return self._choose(request, delegation, None, choice, form=form, problem=problem)

    def scopes_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Choose what is in it."""
        role = self.row(request, object_id)
        delegation = self.need_manage(request)
        record = self._record(role)
        choice = Choice.of_scopes(record.scopes, record.scopes)
        problem, loses = "", False
        if request.method == "POST" and not role.system:
            choice = Choice.of_scopes(request.POST.getlist("had"), request.POST.getlist("scope"))
            wanted = choice.applied_to(record.scopes)
            problem = delegation.why_not_change_role(role.name, choice.added, choice.removed)
            loses = self._loses(delegation, role.name, wanted)
            if problem:
                delegation.refused("access.role.rescoped", role=role.name, scopes=sorted(wanted))
            elif not loses or is_sure(request):
                try:
                    if choice:
                        self.service.set_role_scopes(role.name, wanted, by=request.user)
                        self.log_change(request, role, _log_text(choice))
                    messages.success(request, _done(choice))
                    return HttpResponseRedirect(self.url("change", role.name))
                except AccessError as error:
                    problem = str(error)
        return self._choose(request, delegation, role, choice, problem=problem, needs_sure=loses)

    def delete_view(self, request: HttpRequest, object_id: str, extra_context: Any = None) -> HttpResponse:
        """Ask, and delete it."""
        role = self.row(request, object_id)
        if not self.may(request, "manage", "delete"):
            raise PermissionDenied
        delegation = self.delegation(request)
        record = self._record(role)
        problem = self._locked(role) or delegation.why_not(record.scopes)
        loses = not problem and self._loses(delegation, role.name, ())
        if request.method == "POST":
            if problem:
                delegation.refused("access.role.deleted", role=role.name)
            elif not loses or is_sure(request):
                try:
                    self.service.delete_role(role.name, by=request.user)
                except AccessError as error:
                    problem = str(error)
                else:
                    self.log_deletion_of(request, role)
                    messages.success(request, gettext("The role %(name)s is deleted.") % {"name": role.name})
                    return HttpResponseRedirect(self.url("changelist"))
        users = counted(UserRole, "role_id", [role.name])[role.name]
        text = ngettext("It is taken from %(n)d user.", "It is taken from %(n)d users.", users) % {"n": users}
        return self.ask(
            request,
            title=gettext("Delete the role %(name)s") % {"name": role.name},
            name=role.name,
            explanation=text,
            lines=[(scope, "") for scope in record.scopes],
            problem=problem,
            needs_sure=loses,
            button=gettext("Delete"),
            back=self.url("change", role.name),
        )

    def prune_view(self, request: HttpRequest) -> HttpResponse:
        """Ask, and delete the system roles that code declares no more."""
        delegation = self.need_manage(request)
        stale = self.service.find_stale_system_roles()
        scopes = {role.name: role.scopes for role in self.service.list_roles()}
        names = [each.role for each in stale]
        lost = [scope for name in names for scope in scopes.get(name, ())]
        problem = delegation.why_not(lost) if names else gettext("There is nothing that code declares no more.")
        loses = not problem and delegation.loses_control(roles=dict.fromkeys(names, ()))
        if request.method == "POST":
            if problem and names:
                delegation.refused("access.role.pruned", roles=names)
            if not problem and (not loses or is_sure(request)):
                pruned = self.service.prune_system_roles(by=request.user)
                for name in pruned:
                    self.log_deletion_of(request, Role(name=name))
                text = ngettext("%(n)d role is deleted.", "%(n)d roles are deleted.", len(pruned))
                messages.success(request, text % {"n": len(pruned)})
                return HttpResponseRedirect(self.url("changelist"))
        return self.ask(
            request,
            title=gettext("Delete stale system roles"),
            explanation=gettext(
                "Code declares these no more. They are deleted, and taken from the users that have them."
            ),
            lines=[
                (each.role, ngettext("%(n)d user", "%(n)d users", each.users) % {"n": each.users}) for each in stale
            ],
            problem=problem,
            needs_sure=loses,
            button=gettext("Delete them"),
            back=self.url("changelist"),
        )

    # -- how ---------------------------------------------------------------------------------------------------------

    def _record(self, role: Role) -> RoleRecord:
        rows: QuerySet[Any] = RoleScope._default_manager.filter(role=role.name).order_by("scope_id")
        columns = {name: getattr(role, name) for name in ("name", "description", "system", "declared", "created_at")}
        return RoleRecord(**columns, scopes=tuple(rows.values_list("scope_id", flat=True)))

    def _locked(self, role: Role) -> str:
        """Why nobody may change a role here; empty if it was made here."""
        if not role.system:
            return ""
        if role.declared:
            return gettext("It is a system role: code declares it, in a scopes.py, and nobody changes it but there.")
        return gettext("It is a system role that code declares no more. It can be deleted with all that are stale.")

    def _loses(self, delegation: Delegation, role: str, wanted: Any) -> bool:
        has_it = role in self.service.list_user_roles(delegation.user)
        return has_it and delegation.loses_control(roles={role: wanted})

    def _choose(
        self,
        request: HttpRequest,
        delegation: Delegation,
        role: Role | None,
        choice: Choice,
        *,
        form: forms.Form | None = None,
        problem: str = "",
        needs_sure: bool = False,
    ) -> HttpResponse:
        why = gettext("You do not hold it, so you can neither give nor take it.")
        title = gettext("Add role") if role is None else gettext("Scopes of %(name)s") % {"name": role.name}
        context = {
            "role": role,
            "title": title,
            "form": form,
            "nodes": choices(self.service.list_scopes(), choice.chosen, delegation.held, why_not_held=why),
            "had": sorted(choice.had),
            "problem": problem,
            "locked": "" if role is None else self._locked(role),
            "needs_sure": needs_sure,
            "back": self.url("changelist") if role is None else self.url("change", role.name),
        }
        return self.render(request, "access/choose.html", context)


def _done(choice: Choice) -> str:
    if not choice:
        return gettext("Nothing was changed.")
    text = gettext("%(added)d added, %(removed)d taken away.")
    return text % {"added": len(choice.added), "removed": len(choice.removed)}


def _log_text(choice: Choice) -> str:
    return " ".join([*(f"+{name}" for name in choice.added), *(f"-{name}" for name in choice.removed)])
