"""Secrets (contract services.md §8)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, NoReturn

from pikku_storage.async_twins import AsyncTwins
from pikku_storage.crypto.bound import Place
from pikku_storage.exceptions import PayloadError, SecretAccessDeniedError, SecretNotFoundError
from pikku_storage.json import to_text
from pikku_storage.secrets.hosts import check_host
from pikku_storage.secrets.keys import Purpose
from pikku_storage.secrets.models import Action, Secret, SecretAudit
from pikku_storage.secrets.rotation import BATCH
from pikku_storage.secrets.store import Doing, SealedStore
from pikku_storage.secrets.values import SecretValue, hide


class SecretService(SealedStore):
    """Named secrets, encrypted at rest. Any JSON can be one. It checks no permissions."""

    _model = Secret
    _audit_model = SecretAudit
    _purpose = Purpose.SECRETS
    _identity = ("key",)

    def get_secret(
        self, key: str, *, host: str | None = None, by: Any = None, reason: str | None = None
    ) -> SecretValue:
        """The secret of that name, to be revealed. `host` is where it will be sent to, if anywhere; `by` and `reason`,
        who wants it and what for, are for the audit.

        Raises `SecretNotFoundError`, `SecretDecryptionError`, `KeyNotAvailableError`, `SecretHostNotAllowedError`.
        """
        if host is not None:
            check_host(key, host)
        rows = self._read(self._rows.filter(pk=_name(key)))
        if not rows:
            raise SecretNotFoundError(key)
        return self._opened(rows[0], Doing.of(by, reason), lambda row: SecretValue(self._open(row)))

    def get_secrets(self, keys: Iterable[str]) -> dict[str, SecretValue]:
        """The secrets of these names; those that are not there are left out. Raises as `get_secret` does."""
        values, names = {}, iter(dict.fromkeys(map(_name, keys)))
        while some := list(islice(names, BATCH)):
            rows = self._read(self._rows.filter(pk__in=some))
            values.update({row["key"]: SecretValue(self._open(row)) for row in rows})
            self._record(Action.READ, rows)
        return values

    def has_secret(self, key: str) -> bool:
        """Whether there is a secret of that name. It is not opened, and this is not audited."""
        try:
            return self._rows.filter(pk=_name(key)).exists()
        except PayloadError:
            return False

    def set_secret(self, key: str, value: Any, *, by: Any = None, reason: str | None = None) -> None:
        """Store a secret, in place of an earlier one of that name. `by` and `reason` are for the audit.

        Raises `PayloadError` for what is no JSON or no name, and `KeyNotAvailableError`; then nothing is written.
        """
        # Not bare any more, where a debug page would show it.
        value = hide(value)
        self._put({"key": _name(key)}, value, Doing.of(by, reason))

    def delete_secret(self, key: str, *, by: Any = None, reason: str | None = None) -> None:
        """Delete a secret, if it is there. `by` and `reason` are for the audit."""
        self._delete({"key": _name(key)}, Doing.of(by, reason))

    def scoped(self, keys: Iterable[str]) -> ScopedSecrets:
        """A view for code that needs these secrets only, and changes none."""
        return ScopedSecrets(self, keys)

    def _place(self, identity: Mapping[str, Any]) -> Place:
        return Place(self._model._meta.db_table, identity["key"])

    def _subject(self, identity: Mapping[str, Any]) -> str:
        return f'secret "{identity["key"]}"'

    def _audited(self, identity: Mapping[str, Any]) -> dict[str, Any]:
        return {"secret_key": identity["key"]}


class ScopedSecrets(AsyncTwins):
    """Reads declared secrets. Everything else raises `SecretAccessDeniedError`."""

    def __init__(self, service: SecretService, keys: Iterable[str]) -> None:
        self._service = service
        self._keys = frozenset(keys)

    def get_secret(self, key: str, *, host: str | None = None) -> SecretValue:
        """See `SecretService.get_secret`."""
        self._check([key])
        return self._service.get_secret(key, host=host)

    def get_secrets(self, keys: Iterable[str]) -> dict[str, SecretValue]:
        """See `SecretService.get_secrets`; all of them must be declared."""
        wanted = list(keys)
        self._check(wanted)
        return self._service.get_secrets(wanted)

    def has_secret(self, key: str) -> bool:
        """See `SecretService.has_secret`."""
        self._check([key])
        return self._service.has_secret(key)

    def set_secret(self, key: str, value: Any) -> NoReturn:
        """Always refused."""
        raise _denied(key)

    def delete_secret(self, key: str) -> NoReturn:
        """Always refused."""
        raise _denied(key)

    def _check(self, keys: Sequence[str]) -> None:
        for key in keys:
            if key not in self._keys:
                raise _denied(key)


def _name(key: str) -> str:
    return to_text(key, root="$key")


def _denied(key: str) -> SecretAccessDeniedError:
    return SecretAccessDeniedError(f"Access denied to secret key: {key}")
