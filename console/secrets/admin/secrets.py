"""Secrets."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db import connections
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from console.base import EmptyState
from console.gate import SECRETS
from console.keyset import KeysetChangeList
from console.lookups import id_prefix
from console.secrets.admin.sealed import SealedRowAdmin
from console.secrets.forms import NewSecretForm
from pikku_storage.json import to_text
from pikku_storage.secrets.keys import Purpose
from pikku_storage.secrets.models import Secret, SecretAudit
from pikku_storage.secrets.service import SecretService
from pikku_storage.secrets.values import SecretValue


@admin.register(Secret)
class SecretAdmin(SealedRowAdmin):
    """All secrets, by name."""

    area = SECRETS
    write_verb = "write"
    purpose = Purpose.SECRETS
    new_form = NewSecretForm
    name_columns = ("key",)
    keyset = ("key", "key")
    cheap_columns = ("key", "key_version", "created_at", "updated_at")
    list_display = ("key", "version", "sealed_format", "created", "changed")
    list_display_links = ("key",)
    search_fields = ("key",)
    search_help_text = _("Beginning of a name.")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Secret], search_term: str
    ) -> tuple[QuerySet[Secret], bool]:
        """By the beginning of the name."""
        term = search_term.strip()
        return (queryset.filter(id_prefix(term, connections[queryset.db].vendor)) if term else queryset), False

    def empty_state(self, changes: KeysetChangeList) -> EmptyState:
        """Says how to get a first one."""
        if changes.is_first_page and not (changes.query or changes.has_active_filters):
            return EmptyState(gettext("There are no secrets yet."), gettext("Add one here, or in code: set_secret(…)."))
        return super().empty_state(changes)

    def service(self) -> SecretService:
        """See `SealedRowAdmin.service`."""
        return SecretService(audit=True, audit_reads=True)

    def open_value(self, row: Secret, **doing: Any) -> SecretValue:
        """See `SealedRowAdmin.open_value`."""
        return self.service().get_secret(row.key, **doing)

    def put_value(self, row: Secret, value: SecretValue, **doing: Any) -> None:
        """See `SealedRowAdmin.put_value`."""
        self.service().set_secret(row.key, value, **doing)

    def remove(self, row: Secret, **doing: Any) -> None:
        """See `SealedRowAdmin.remove`."""
        self.service().delete_secret(row.key, **doing)

    def row_of(self, values: dict[str, Any]) -> Secret:
        """See `SealedRowAdmin.row_of`."""
        return Secret(key=to_text(values["name"], root="$key"))

    def audits(self, row: Secret) -> QuerySet[Any]:
        """See `SealedRowAdmin.audits`."""
        rows: QuerySet[Any] = SecretAudit._default_manager.using(self._keyring().using)
        return rows.filter(secret_key=row.key)

    def told_of(self, row: Secret) -> dict[str, Any]:
        """See `SealedRowAdmin.told_of`."""
        return {"key": row.key}
