"""System checks of the secrets app. No message quotes a passphrase."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

from django.apps import AppConfig
from django.core import checks
from django.db import connections

from pikku_storage.conf import settings
from pikku_storage.secrets.keys import KeyProvider, Purpose, key_provider
from pikku_storage.secrets.rotation import SealedTable

TAG = "pikku_secrets"
SHORTEST = 32
FEWEST_CHARACTERS = 10
"""Different ones, in a passphrase that is not weak."""


@checks.register(TAG)
def check_provider(*, app_configs: Sequence[AppConfig] | None = None, **options: Any) -> list[checks.CheckMessage]:
    """`pikku.E102`: the provider of passphrases cannot be used."""
    try:
        provider = key_provider()
        for method in ("current_version", "previous_versions", "passphrase"):
            if not callable(getattr(provider, method, None)):
                raise TypeError(f"{settings.KEY_PROVIDER} has no method {method}")
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        hint = "Name a class with the methods of pikku_storage.secrets.keys.KeyProvider, which takes no arguments."
        return [checks.Error(f"PIKKU_STORAGE['KEY_PROVIDER']: {error}", hint=hint, id="pikku.E102")]
    return []


@checks.register(TAG)
def check_keys(*, app_configs: Sequence[AppConfig] | None = None, **options: Any) -> list[checks.CheckMessage]:
    """`pikku.E101` no key, `pikku.E103` one passphrase for two versions, `pikku.E104` a version that is there twice,
    `pikku.W101` a weak passphrase."""
    if check_provider():
        return []
    found: dict[str, checks.CheckMessage] = {}
    for purpose in Purpose:
        try:
            messages = _of_purpose(key_provider(), purpose)
        except (TypeError, ValueError):
            # `pikku.E002` says it.
            return []
        # What both purposes share is said once.
        found.update({str(message): message for message in messages})
    return list(found.values())


def _of_purpose(provider: KeyProvider, purpose: Purpose) -> list[checks.CheckMessage]:
    current = provider.current_version(purpose)
    previous = sorted(provider.previous_versions(purpose))
    passphrases = {version: provider.passphrase(purpose, version) for version in {*previous, current}}
    return [
        *_missing(current, passphrases[current]),
        *_repeated(passphrases),
        *_ambiguous(current, previous),
        *_weak(passphrases),
    ]


def _missing(current: int, passphrase: str | None) -> list[checks.CheckMessage]:
    if passphrase:
        return []
    hint = (
        "Set PIKKU_STORAGE['SECRET_KEK'] from the environment; `openssl rand -base64 32` makes one. Keep a copy "
        "outside of this system: without it nothing can be read again."
    )
    text = f"There is no passphrase for key version {current}, so no secret can be stored."
    return [checks.Error(text, hint=hint, id="pikku.E101")]


def _repeated(passphrases: Mapping[int, str | None]) -> list[checks.CheckMessage]:
    pairs = [(one, two) for one, two in combinations(sorted(passphrases), 2) if passphrases[one] == passphrases[two]]
    hint = "A rotation to the same passphrase protects nothing. Give the newer version one of its own."
    return [
        checks.Error(f"Key versions {one} and {two} have the same passphrase.", hint=hint, id="pikku.E103")
        for one, two in pairs
        if passphrases[one]
    ]


def _ambiguous(current: int, previous: Sequence[int]) -> list[checks.CheckMessage]:
    if current not in previous:
        return []
    hint = "Count SECRET_KEK_VERSION up with each new passphrase, and keep the old one under its own version."
    text = f"Key version {current} is configured twice: as the current one, and among the previous ones."
    return [checks.Error(text, hint=hint, id="pikku.E104")]


def _weak(passphrases: Mapping[int, str | None]) -> list[checks.CheckMessage]:
    weak = [
        version
        for version, text in sorted(passphrases.items())
        if text and (len(text) < SHORTEST or len(set(text)) < FEWEST_CHARACTERS)
    ]
    hint = "Make one with `openssl rand -base64 32`, give it the next version, and rotate."
    return [
        checks.Warning(f"The passphrase of key version {version} is weak.", hint=hint, id="pikku.W101")
        for version in weak
    ]


@checks.register(TAG, checks.Tags.database)
def check_versions_in_use(
    *, app_configs: Sequence[AppConfig] | None = None, databases: Sequence[str] | None = None, **options: Any
) -> list[checks.CheckMessage]:
    """`pikku.E105`: something is sealed under a version that has no passphrase. Asks the given databases."""
    from pikku_storage.secrets.tables import sealed_tables

    if check_provider() or not databases:
        return []
    hint = (
        "Add the passphrase to PIKKU_STORAGE['SECRET_PREVIOUS_KEKS']. `manage.py rotate_keys --verify` counts versions."
    )
    return [
        checks.Error(f"{table.label} has values of a key version that has no passphrase.", hint=hint, id="pikku.E105")
        for table in sealed_tables()
        if table.using in databases and _has_unknown(table)
    ]


def _has_unknown(table: SealedTable) -> bool:
    keyring = table.keyring
    # Before the first `migrate` there is nothing to ask.
    if table.db_table not in connections[table.using].introspection.table_names():
        return False
    candidates = {keyring.current_version, *keyring.previous_versions}
    known = [version for version in candidates if keyring.keys.passphrase(keyring.purpose, version)]
    return table.has_other_versions(known)
