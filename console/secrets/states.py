"""What is known of the key of a version. Without models, so that the pages of other rooms can name it."""

from __future__ import annotations

from django.db.models import TextChoices
from django.utils.translation import gettext_lazy as _


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
