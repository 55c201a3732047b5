"""Which keys the rows are under, whether these keys can be used, and what a rotation would still do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from django.db.models import Count, TextChoices
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from pikku_storage.exceptions import KeyNotAvailableError
from pikku_storage.secrets.keyring import Keyring
from pikku_storage.secrets.models import SealedRow


class KeyStatus(TextChoices):
    """What is known of the key of one version."""

    CURRENT = "current", _("current")
    OLD = "outdated", _("to be rotated")
    NEWER = "newer", _("newer than the current one")
    MISSING = "missing", _("no key")
    UNSALTED = "unsalted", _("no salt")
    WRONG = "wrong", _("another key")

    @property
    def opens(self) -> bool:
        """Whether rows of that version can be opened, as far as can be told."""
        return self in {KeyStatus.CURRENT, KeyStatus.OLD, KeyStatus.NEWER}


@dataclass(frozen=True, slots=True)
class Version:
    """One key version, and how many rows are under it."""

    number: int
    status: KeyStatus
    rows: int


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one table."""

    current: int | None = None
    statuses: Mapping[int, KeyStatus] = field(default_factory=dict)
    problem: str = ""
    """Why nothing can be set now, and what to do about it; empty if it can."""

    def status_of(self, version: int) -> KeyStatus:
        """Of a version that was asked about."""
        return self.statuses.get(version, KeyStatus.MISSING)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a rotation is."""

    keys: Keys
    versions: tuple[Version, ...]

    @property
    def total(self) -> int:
        """All rows."""
        return sum(version.rows for version in self.versions)

    @property
    def outdated(self) -> int:
        """The rows that `manage.py rotate_keys` would seal anew: those of earlier versions that it can open."""
        return self._rows(KeyStatus.OLD)

    @property
    def closed(self) -> int:
        """The rows that no configured key opens."""
        return sum(version.rows for version in self.versions if not version.status.opens)

    @property
    def done(self) -> int:
        """The rows under the current version."""
        return self._rows(KeyStatus.CURRENT)

    def _rows(self, status: KeyStatus) -> int:
        return sum(version.rows for version in self.versions if version.status is status)


def keys_of(keyring: Keyring, versions: set[int]) -> Keys:
    """What is known of the keys of these versions and of the current one. A derivation takes a fifth of a second once
    in each process."""
    try:
        current = keyring.current_version
        problem = _problem(keyring, current)
        statuses = {version: _status(keyring, version, current) for version in versions}
    except (ImportError, AttributeError, TypeError, ValueError):
        # What the error says is for `manage.py check`: it may be about a setting with a passphrase.
        text = gettext("The passphrases cannot be read from the settings. `manage.py check` says why.")
        return Keys(problem=text)
    return Keys(current, statuses, problem)


def progress_of(model: type[SealedRow], keyring: Keyring) -> Progress:
    """How many rows of the table are on which version. One statement, which an index answers, and those for the
    salts."""
    rows = model.objects.using(keyring.using).order_by().values("key_version").annotate(rows=Count("pk"))
    counts = {row["key_version"]: row["rows"] for row in rows}
    keys = keys_of(keyring, set(counts))
    versions = (Version(number, keys.status_of(number), counts[number]) for number in sorted(counts))
    return Progress(keys, tuple(versions))


def _problem(keyring: Keyring, current: int) -> str:
    if not keyring.keys.passphrase(keyring.purpose, current):
        text = gettext(
            'No key is configured: there is no passphrase for version %(version)d. Set PIKKU_STORAGE["SECRET_KEK"] '
            "from the environment and restart; `openssl rand -base64 32` makes one. Until then nothing can be set."
        )
        return text % {"version": current}
    salt = keyring.salts.filter(pk=current).values_list("retired_at", flat=True)
    retired = list(salt)
    if retired and retired[0] is not None:
        text = gettext("Key version %(version)d is retired, and this process still runs with it. Restart it.")
        return text % {"version": current}
    if retired and keyring.is_right(current) is False:
        text = gettext(
            "The passphrase of version %(version)d is not the one that this version began with. Put that one back, or "
            "give the new passphrase the next version. Until then nothing can be set."
        )
        return text % {"version": current}
    return ""


def _status(keyring: Keyring, version: int, current: int) -> KeyStatus:
    if not keyring.keys.passphrase(keyring.purpose, version):
        return KeyStatus.MISSING
    try:
        if keyring.is_right(version) is False:
            return KeyStatus.WRONG
    except KeyNotAvailableError:
        return KeyStatus.UNSALTED
    if version == current:
        return KeyStatus.CURRENT
    return KeyStatus.OLD if version < current else KeyStatus.NEWER
