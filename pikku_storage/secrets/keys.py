"""Where passphrases come from."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from typing import Protocol

from django.utils.module_loading import import_string

from pikku_storage.conf import settings


class Purpose(StrEnum):
    """What a key is for. A provider may have other passphrases for each."""

    SECRETS = "secrets"
    """Secrets and encrypted fields."""
    CREDENTIALS = "credentials"


class KeyProvider(Protocol):
    """Knows the passphrases. `PIKKU_STORAGE["KEY_PROVIDER"]` names a class like this, which takes no arguments.

    It is asked often and from any thread, so it keeps what it fetched, and keeps it to itself.
    """

    def current_version(self, purpose: Purpose) -> int:
        """The version that is written under: a whole number from 1."""

    def previous_versions(self, purpose: Purpose) -> Collection[int]:
        """The other versions whose passphrases it has: earlier ones, and one that is soon to be current."""

    def passphrase(self, purpose: Purpose, version: int) -> str | None:
        """The passphrase of a version; `None` if it has none."""


class SettingsKeys:
    """The passphrases of `PIKKU_STORAGE`, the same ones for every purpose."""

    def current_version(self, purpose: Purpose) -> int:
        """`SECRET_KEK_VERSION`."""
        return settings.SECRET_KEK_VERSION

    def previous_versions(self, purpose: Purpose) -> Collection[int]:
        """The keys of `SECRET_PREVIOUS_KEKS`."""
        return settings.SECRET_PREVIOUS_KEKS.keys()

    def passphrase(self, purpose: Purpose, version: int) -> str | None:
        """`SECRET_KEK`, or one of `SECRET_PREVIOUS_KEKS`."""
        if version == settings.SECRET_KEK_VERSION:
            return settings.SECRET_KEK
        return settings.SECRET_PREVIOUS_KEKS.get(version) or None


@dataclass(frozen=True, slots=True)
class StaticKeys:
    """Passphrases that are given: a service's own, if it does not share those of the settings."""

    current: str = field(repr=False)
    version: int = 1
    previous: Mapping[int, str] = field(default_factory=dict, repr=False)

    def current_version(self, purpose: Purpose) -> int:
        """The version of `current`."""
        return self.version

    def previous_versions(self, purpose: Purpose) -> Collection[int]:
        """Those of `previous`."""
        return self.previous.keys()

    def passphrase(self, purpose: Purpose, version: int) -> str | None:
        """`current`, or one of `previous`."""
        return self.current if version == self.version else self.previous.get(version)


def key_provider() -> KeyProvider:
    """The one that the settings name, made once."""
    return _made(settings.KEY_PROVIDER)


@cache
def _made(path: str) -> KeyProvider:
    provider: KeyProvider = import_string(path)()
    return provider
