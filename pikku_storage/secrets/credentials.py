"""Credentials, everybody's and each user's (contract services.md §9)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from django.db.models import Q, QuerySet

from pikku_storage.async_twins import AsyncTwins
from pikku_storage.crypto.bound import Place
from pikku_storage.exceptions import InvalidCredentialError, SecretAccessDeniedError
from pikku_storage.json import Json, to_text
from pikku_storage.secrets.keys import Purpose
from pikku_storage.secrets.models import Action, Credential, CredentialAudit
from pikku_storage.secrets.store import Doing, SealedStore
from pikku_storage.secrets.values import SecretValue, hide


class CredentialService(SealedStore):
    """Credentials, encrypted at rest: a user's own, or everybody's without a user. The two never stand in for each
    other. It checks no permissions."""

    _model = Credential
    _audit_model = CredentialAudit
    _purpose = Purpose.CREDENTIALS
    _identity = ("id", "name", "user_id")

    def get(
        self, name: str, user_id: str | None = None, *, by: Any = None, reason: str | None = None
    ) -> SecretValue | None:
        """The credential, to be revealed; `None` if there is none. `by` and `reason`, who wants it and what for, are
        for the audit.

        Raises `SecretDecryptionError`, `KeyNotAvailableError`, and `InvalidCredentialError` for what is no JSON.
        """
        rows = self._read(self._rows.filter(pk=_row_of(name, user_id)["id"]))
        return self._opened(rows[0], Doing.of(by, reason), self._value) if rows else None

    def has(self, name: str, user_id: str | None = None) -> bool:
        """Whether there is one. It is not opened, and this is not audited."""
        return self._rows.filter(pk=_row_of(name, user_id)["id"]).exists()

    def set(
        self, name: str, value: Any, user_id: str | None = None, *, by: Any = None, reason: str | None = None
    ) -> None:
        """Store a credential, in place of an earlier one. `by` and `reason` are for the audit. Raises `PayloadError`
        for what is no JSON or no name, and `KeyNotAvailableError`; then nothing is written."""
        # Not bare any more, where a debug page would show it.
        value = hide(value)
        self._put(_row_of(name, user_id), value, Doing.of(by, reason))

    def delete(self, name: str, user_id: str | None = None, *, by: Any = None, reason: str | None = None) -> None:
        """Delete a credential, if it is there. `by` and `reason` are for the audit."""
        self._delete(_row_of(name, user_id), Doing.of(by, reason))

    def get_all(self, user_id: str) -> dict[str, SecretValue]:
        """All credentials of a user by name, and nobody else's: not those of everybody."""
        user = _user(user_id)
        # Nobody's id is no user's.
        rows = [] if user is None else self._read(self._rows.filter(Q(user_id=user)))
        values = {row["name"]: self._value(row) for row in rows}
        self._record(Action.READ, rows)
        return values

    def get_users_with_credential(self, name: str) -> list[str]:
        """The ids of the users that have one of that name, sorted."""
        return self._users(name=to_text(name, root="$name"))

    def get_all_users(self) -> list[str]:
        """The ids of the users that have any, sorted."""
        return self._users()

    def scoped(self, names: Iterable[str]) -> ScopedCredentials:
        """A view for code that needs these credentials only."""
        return ScopedCredentials(self, names)

    def _users(self, **conditions: str) -> list[str]:
        rows: QuerySet[Any, Any] = self._rows
        found = rows.filter(user_id__isnull=False, **conditions).order_by()
        return sorted(found.values_list("user_id", flat=True).distinct())

    def _value(self, row: Mapping[str, Any]) -> SecretValue:
        text = self._open(row)
        try:
            return SecretValue(json.loads(text))
        except (TypeError, ValueError):
            del text
        # Out here, because the parser's error holds the whole text.
        raise InvalidCredentialError(row["name"])

    def _encode(self, value: Json) -> Json:
        # Sealing makes JSON of it once more, as the TypeScript packages do.
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))

    def _place(self, identity: Mapping[str, Any]) -> Place:
        return Place(self._model._meta.db_table, identity["name"], identity["user_id"])

    def _subject(self, identity: Mapping[str, Any]) -> str:
        owner = "" if identity["user_id"] is None else f' of user "{identity["user_id"]}"'
        return f'credential "{identity["name"]}"{owner}'

    def _audited(self, identity: Mapping[str, Any]) -> dict[str, Any]:
        return {"credential_name": identity["name"], "user_id": identity["user_id"]}


class ScopedCredentials(AsyncTwins):
    """Reaches declared credentials, of whichever user. Everything else raises `SecretAccessDeniedError`."""

    def __init__(self, service: CredentialService, names: Iterable[str]) -> None:
        self._service = service
        self._names = frozenset(names)

    def get(self, name: str, user_id: str | None = None) -> SecretValue | None:
        """See `CredentialService.get`."""
        self._check(name)
        return self._service.get(name, user_id)

    def has(self, name: str, user_id: str | None = None) -> bool:
        """See `CredentialService.has`."""
        self._check(name)
        return self._service.has(name, user_id)

    def set(self, name: str, value: Any, user_id: str | None = None) -> None:
        """See `CredentialService.set`."""
        value = hide(value)
        self._check(name)
        self._service.set(name, value, user_id)

    def delete(self, name: str, user_id: str | None = None) -> None:
        """See `CredentialService.delete`."""
        self._check(name)
        self._service.delete(name, user_id)

    def get_all(self, user_id: str) -> dict[str, SecretValue]:
        """The declared ones among a user's credentials; the others are not even opened."""
        values = {name: self._service.get(name, user_id) for name in sorted(self._names)} if user_id else {}
        return {name: value for name, value in values.items() if value is not None}

    def get_users_with_credential(self, name: str) -> list[str]:
        """See `CredentialService.get_users_with_credential`."""
        self._check(name)
        return self._service.get_users_with_credential(name)

    def get_all_users(self) -> NoReturn:
        """Always refused."""
        raise SecretAccessDeniedError("Access denied to the users of all credentials")

    def _check(self, name: str) -> None:
        if name not in self._names:
            raise SecretAccessDeniedError(f"Access denied to credential: {name}")


def _user(user_id: str | None) -> str | None:
    """An empty id is nobody's."""
    return to_text(user_id, root="$user_id") if user_id else None


def _row_of(name: str, user_id: str | None) -> dict[str, Any]:
    checked, user = to_text(name, root="$name"), _user(user_id)
    return {"id": Credential.id_of(checked, user), "name": checked, "user_id": user}
