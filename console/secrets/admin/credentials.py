"""Credentials of users, and everybody's."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from django.contrib import admin
from django.contrib.admin import ModelAdmin
from django.db import connections
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from console.base import EmptyState
from console.filters import MENU, ValuesMenu
from console.gate import CREDENTIALS
from console.keyset import KeysetChangeList
from console.lookups import id_prefix
from console.owners import owner_ids_of, owner_names
from console.parts import Fact
from console.secrets.admin.sealed import SealedRowAdmin
from console.secrets.forms import NewCredentialForm
from pikku_storage.json import to_text
from pikku_storage.secrets.credentials import CredentialService
from pikku_storage.secrets.keys import Purpose
from pikku_storage.secrets.models import Credential, CredentialAudit
from pikku_storage.secrets.values import SecretValue

NAMES_OFFERED = 50


class NameMenu(admin.SimpleListFilter):
    """By name; the first ones by the alphabet are offered, and the search finds others."""

    title = _("name")
    parameter_name = "name"
    template = MENU

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin[Any]) -> Iterable[tuple[str, Any]]:
        """The names."""
        names = model_admin.get_queryset(request).order_by("name").values_list("name", flat=True).distinct()
        return [(name, name) for name in names[:NAMES_OFFERED]]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Those of that name."""
        return queryset.filter(name=self.value()) if self.value() else queryset


class OwnerMenu(admin.SimpleListFilter):
    """Everybody's, or those of users."""

    title = _("whose")
    parameter_name = "whose"
    template = MENU

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin[Any]) -> Iterable[tuple[str, Any]]:
        """Both."""
        return [("everybody", _("everybody's")), ("users", _("of users"))]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Those with, or without, a user."""
        if self.value() not in {"everybody", "users"}:
            return queryset
        return queryset.filter(user_id__isnull=self.value() == "everybody")


@admin.register(Credential)
class CredentialAdmin(SealedRowAdmin):
    """All credentials, by name."""

    area = CREDENTIALS
    write_verb = "manage"
    purpose = Purpose.CREDENTIALS
    new_form = NewCredentialForm
    name_columns = ("name", "user_id")
    keyset = ("name", "id")
    cheap_columns = ("id", "name", "user_id", "key_version", "created_at", "updated_at")
    list_display = ("name", "whose", "version", "sealed_format", "created", "changed")
    list_display_links = ("name",)
    list_filter: ClassVar[Any] = (NameMenu, OwnerMenu, ("key_version", ValuesMenu))
    search_fields = ("name",)
    search_help_text = _("Beginning of a credential's name, or a user's name or id.")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Credential], search_term: str
    ) -> tuple[QuerySet[Credential], bool]:
        """By user; by the beginning of the name if no user has any."""
        term = search_term.strip()
        if not term:
            return queryset, False
        by_user = queryset.filter(user_id__in=[term, *owner_ids_of(term)])
        by_name = id_prefix(term, connections[queryset.db].vendor, column="name")
        return (by_user if by_user.exists() else queryset.filter(by_name)), False

    def name_of(self, row: Credential) -> str:
        """With the user's name in place of the id."""
        return (
            str(row)
            if row.user_id is None
            else f"{row.name} · {owner_names([row.user_id]).get(row.user_id, row.user_id)}"
        )

    def prepare_page(self, request: HttpRequest, rows: list[Credential]) -> None:
        """The names of the users, too: one query."""
        super().prepare_page(request, rows)
        names = owner_names(row.user_id for row in rows)
        for row in rows:
            row.__dict__["console_owner"] = names.get(row.user_id or "", row.user_id)

    def empty_state(self, changes: KeysetChangeList) -> EmptyState:
        """Says how to get a first one."""
        if changes.is_first_page and not (changes.query or changes.has_active_filters):
            text = gettext("Add one here, or in code: CredentialService().set(…).")
            return EmptyState(gettext("There are no credentials yet."), text)
        return super().empty_state(changes)

    @admin.display(description=_("user"))
    def whose(self, row: Credential) -> SafeString | str:
        """The user's name, with the id on hover."""
        if row.user_id is None:
            return format_html('<span class="pk-quiet">{}</span>', gettext("everybody"))
        return format_html('<span title="{}">{}</span>', row.user_id, row.__dict__["console_owner"])

    def service(self) -> CredentialService:
        """See `SealedRowAdmin.service`."""
        return CredentialService(audit=True, audit_reads=True)

    def open_value(self, row: Credential, **doing: Any) -> SecretValue | None:
        """See `SealedRowAdmin.open_value`."""
        return self.service().get(row.name, row.user_id, **doing)

    def put_value(self, row: Credential, value: SecretValue, **doing: Any) -> None:
        """See `SealedRowAdmin.put_value`."""
        self.service().set(row.name, value, row.user_id, **doing)

    def remove(self, row: Credential, **doing: Any) -> None:
        """See `SealedRowAdmin.remove`."""
        self.service().delete(row.name, row.user_id, **doing)

    def row_of(self, values: dict[str, Any]) -> Credential:
        """See `SealedRowAdmin.row_of`."""
        name, user = to_text(values["name"], root="$name"), values["user"]
        return Credential(id=Credential.id_of(name, user), name=name, user_id=user)

    def audits(self, row: Credential) -> QuerySet[Any]:
        """See `SealedRowAdmin.audits`."""
        # `filter(user_id=None)` would be no condition on every database.
        whose = Q(user_id__isnull=True) if row.user_id is None else Q(user_id=row.user_id)
        rows: QuerySet[Any] = CredentialAudit._default_manager.using(self._keyring().using)
        return rows.filter(whose, credential_name=row.name)

    def own_facts(self, row: Credential) -> list[Fact]:
        """Whose it is."""
        if row.user_id is None:
            return [Fact(gettext("User"), gettext("everybody"))]
        return [Fact.person(gettext("User"), row.user_id, owner_names([row.user_id]))]

    def told_of(self, row: Credential) -> dict[str, Any]:
        """See `SealedRowAdmin.told_of`."""
        return {"name": row.name, "userId": row.user_id}
