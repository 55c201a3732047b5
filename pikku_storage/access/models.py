"""The six tables of scopes, roles, grants and sessions (contract tables.md §3, 3 and 24-28).

Names of tables and columns are the contract's. Columns the contract does not have are marked "ours"; so are the primary
keys `id`, which are derived from the columns that are the key there. User ids are text: there is no foreign key to the
user model. Nothing here changes a row: see `querysets.py`.
"""

from __future__ import annotations

import json

from django.db import models
from django.utils.translation import gettext_lazy as _

from pikku_storage.access.declarations import NAME_LENGTH
from pikku_storage.access.querysets import GrantQuerySet, RoleQuerySet, ScopeQuerySet, SessionQuerySet
from pikku_storage.db.fields import ExactCharField, ExactTextField, MillisecondDateTimeField, PayloadField, text_id
from pikku_storage.ids import derived_id


class Named(models.Model):
    """What is declared or made under a name."""

    name = ExactCharField(_("name"), max_length=NAME_LENGTH, primary_key=True)
    description = ExactTextField(_("description"), null=True)
    declared = models.BooleanField(_("declared"), default=True)
    # Ours: since when it is being removed, with all that hangs on it. It can be seen only where a database without
    # transactions was left in the middle of that; whoever comes by then finishes it.
    removing_at = MillisecondDateTimeField(null=True, editable=False)

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return str(self.name)


class Scope(Named):
    """A scope that code declares, or has declared."""

    objects = ScopeQuerySet.as_manager()

    class Meta:
        db_table = "pikku_scopes"
        verbose_name = _("scope")
        verbose_name_plural = _("scopes")
        ordering = ("name",)


class Role(Named):
    """A set of scopes: a system role, which code declares, or one that an administrator made."""

    system = models.BooleanField(_("declared in code"), default=False)
    created_at = MillisecondDateTimeField(_("created"))

    objects = RoleQuerySet.as_manager()

    class Meta:
        db_table = "pikku_roles"
        verbose_name = _("role")
        verbose_name_plural = _("roles")
        ordering = ("name",)


class Link(models.Model):
    """A row that joins two things; there is one of each pair."""

    id = ExactCharField(primary_key=True, max_length=36, editable=False)

    class Meta:
        abstract = True

    @classmethod
    def id_of(cls, one: str, other: str) -> str:
        """The id of the row of that pair."""
        return derived_id(cls._meta.db_table, json.dumps([one, other]))


class RoleScope(Link):
    """A scope of a role."""

    role = models.ForeignKey(
        Role, models.CASCADE, db_column="role", db_index=False, related_name="scopes", verbose_name=_("role")
    )
    scope = models.ForeignKey(
        Scope, models.CASCADE, db_column="scope", db_index=False, related_name="roles", verbose_name=_("scope")
    )

    objects = GrantQuerySet["RoleScope"].as_manager()

    class Meta:
        db_table = "pikku_role_scopes"
        verbose_name = _("scope of a role")
        verbose_name_plural = _("scopes of roles")
        ordering = ("role_id", "scope_id")
        indexes = (
            models.Index(fields=("role", "scope"), name="pikku_role_scopes_role_idx"),
            models.Index(fields=("scope",), name="pikku_role_scopes_scope_idx"),
        )

    def __str__(self) -> str:
        return f"{self.role_id} · {self.scope_id}"


class Grant(Link):
    """What was given to a user."""

    user_id = text_id(verbose_name=_("user"))
    granted_by = text_id(verbose_name=_("granted by"), null=True)
    granted_at = MillisecondDateTimeField(_("granted"))

    class Meta:
        abstract = True


class UserRole(Grant):
    """A role of a user."""

    role = models.ForeignKey(
        Role, models.CASCADE, db_column="role", db_index=False, related_name="users", verbose_name=_("role")
    )

    objects = GrantQuerySet["UserRole"].as_manager()

    class Meta:
        db_table = "pikku_user_role"
        verbose_name = _("role of a user")
        verbose_name_plural = _("grants to users")
        ordering = ("user_id", "role_id")
        indexes = (
            models.Index(fields=("user_id", "role"), name="pikku_user_role_user_idx"),
            models.Index(fields=("role",), name="pikku_user_role_role_idx"),
        )

    def __str__(self) -> str:
        return f"{self.user_id} · {self.role_id}"


class UserScope(Grant):
    """A scope that a user has beside those of roles."""

    scope = models.ForeignKey(
        Scope, models.CASCADE, db_column="scope", db_index=False, related_name="users", verbose_name=_("scope")
    )

    objects = GrantQuerySet["UserScope"].as_manager()

    class Meta:
        db_table = "pikku_user_scope"
        verbose_name = _("scope of a user")
        verbose_name_plural = _("scopes of users")
        ordering = ("user_id", "scope_id")
        indexes = (
            models.Index(fields=("user_id", "scope"), name="pikku_user_scope_user_idx"),
            models.Index(fields=("scope",), name="pikku_user_scope_scope_idx"),
        )

    def __str__(self) -> str:
        return f"{self.user_id} · {self.scope_id}"


class UserSession(models.Model):
    """What the application keeps of a user between requests."""

    pikku_user_id = text_id(verbose_name=_("user"), primary_key=True)
    session = PayloadField(_("session"))
    created_at = MillisecondDateTimeField(_("created"))
    updated_at = MillisecondDateTimeField(_("updated"))

    objects = SessionQuerySet.as_manager()

    class Meta:
        db_table = "pikku_user_sessions"
        verbose_name = _("session")
        verbose_name_plural = _("sessions")
        ordering = ("pikku_user_id",)

    def __str__(self) -> str:
        return str(self.pikku_user_id)
