"""The six tables of secrets and credentials (contract tables.md §3, 4-9).

Names of tables and columns are the contract's, on MongoDB in camel case as there. Columns the contract does not have
are marked "ours". Nothing here changes a row: see `querysets.py`.
"""

from __future__ import annotations

import json

from django.db import models
from django.utils.translation import gettext_lazy as _

from pikku_storage.db.fields import ExactCharField, ExactTextField, MillisecondDateTimeField, text_id
from pikku_storage.ids import derived_id, new_id
from pikku_storage.secrets.querysets import AuditQuerySet, EnvelopeQuerySet, SaltQuerySet

NAME_LENGTH = 255
REASON_LENGTH = 500


class Action(models.TextChoices):
    """What an audit row records."""

    READ = "read", _("read")
    WRITE = "write", _("written")
    DELETE = "delete", _("deleted")
    ROTATE = "rotate", _("sealed under another key")


class SealedRow(models.Model):
    """A sealed value, and the version of the key that it is sealed under."""

    ciphertext = ExactTextField(_("ciphertext"))
    wrapped_dek = ExactTextField(_("wrapped data key"))
    key_version = models.IntegerField(_("key version"))
    created_at = MillisecondDateTimeField(_("created"))
    updated_at = MillisecondDateTimeField(_("updated"))

    objects = EnvelopeQuerySet.as_manager()

    class Meta:
        abstract = True


class KekSalt(models.Model):
    """The salt of one key version. It is never replaced: without it nothing of that version opens any more."""

    key_version = models.IntegerField(_("key version"), primary_key=True)
    salt = ExactCharField(_("salt"), max_length=64)
    created_at = MillisecondDateTimeField(_("created"))
    # Ours: what tells another passphrase from the one this version began with, and since when nothing is written
    # under it any more.
    kek_check = ExactCharField(_("check value of the key"), max_length=64, null=True)
    retired_at = MillisecondDateTimeField(_("retired"), null=True)

    objects = SaltQuerySet.as_manager()

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return str(self.key_version)


class AuditRow(models.Model):
    """Something that was done to one secret or credential."""

    id = ExactCharField(primary_key=True, max_length=36, default=new_id, editable=False)
    action = ExactCharField(_("action"), max_length=20, choices=Action)
    performed_at = MillisecondDateTimeField(_("time"))
    # Ours: who did it and why, where somebody said so, and `failed` for a value that did not open. All are null in rows
    # of programs that know nothing of them.
    performed_by = text_id(verbose_name=_("by"), null=True)
    outcome = ExactCharField(_("outcome"), max_length=20, null=True)
    reason = ExactCharField(_("reason"), max_length=REASON_LENGTH, null=True)

    objects = AuditQuerySet.as_manager()

    class Meta:
        abstract = True


class Secret(SealedRow):
    """One secret."""

    key = ExactCharField(_("name"), max_length=NAME_LENGTH, primary_key=True)

    class Meta:
        db_table = "secrets"
        verbose_name = _("secret")
        verbose_name_plural = _("secrets")
        ordering = ("key",)
        indexes = (models.Index(fields=("key_version", "key"), name="idx_secrets_key_version"),)

    def __str__(self) -> str:
        return str(self.key)


class SecretKekSalt(KekSalt):
    """The salts of secrets and encrypted fields."""

    class Meta:
        db_table = "secret_kek_salts"
        verbose_name = _("salt of secrets")
        verbose_name_plural = _("salts of secrets")


class SecretAudit(AuditRow):
    """Something that was done to one secret."""

    secret_key = ExactCharField(_("secret"), max_length=NAME_LENGTH)

    class Meta:
        db_table = "secrets_audit"
        verbose_name = _("audit of a secret")
        verbose_name_plural = _("audits of secrets")
        ordering = ("performed_at", "id")
        indexes = (models.Index(fields=("secret_key", "performed_at"), name="idx_secrets_audit_key"),)

    def __str__(self) -> str:
        return f"{self.action} {self.secret_key}"


class Credential(SealedRow):
    """One credential: a user's, or everybody's where `user_id` is null.

    Ours: the primary key, derived from name and user, which is what makes the two unique together.
    """

    id = ExactCharField(primary_key=True, max_length=36, editable=False)
    name = ExactCharField(_("name"), max_length=NAME_LENGTH)
    user_id = ExactCharField(_("user"), max_length=NAME_LENGTH, null=True)

    class Meta:
        db_table = "credentials"
        verbose_name = _("credential")
        verbose_name_plural = _("credentials")
        ordering = ("name", "user_id")
        indexes = (
            models.Index(fields=("user_id", "name"), name="idx_credentials_user"),
            models.Index(fields=("name", "user_id"), name="idx_credentials_name"),
            models.Index(fields=("key_version", "id"), name="idx_credentials_key_version"),
        )

    def __str__(self) -> str:
        return str(self.name) if self.user_id is None else f"{self.name} · {self.user_id}"

    @staticmethod
    def id_of(name: str, user_id: str | None) -> str:
        """The id of the row of that credential."""
        return derived_id("credential", json.dumps([name, user_id]))


class CredentialKekSalt(KekSalt):
    """The salts of credentials."""

    class Meta:
        db_table = "credential_kek_salts"
        verbose_name = _("salt of credentials")
        verbose_name_plural = _("salts of credentials")


class CredentialAudit(AuditRow):
    """Something that was done to one credential."""

    credential_name = ExactCharField(_("credential"), max_length=NAME_LENGTH)
    user_id = ExactCharField(_("user"), max_length=NAME_LENGTH, null=True)

    class Meta:
        db_table = "credentials_audit"
        verbose_name = _("audit of a credential")
        verbose_name_plural = _("audits of credentials")
        ordering = ("performed_at", "id")
        indexes = (
            models.Index(fields=("credential_name", "performed_at"), name="idx_credentials_audit_name"),
            models.Index(fields=("credential_name", "user_id", "performed_at"), name="idx_credentials_audit_user"),
        )

    def __str__(self) -> str:
        return f"{self.action} {self.credential_name}"
