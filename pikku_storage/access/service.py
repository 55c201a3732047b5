"""Scopes, roles and grants (contract services.md §13)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, TypeVar

from django.db import router, transaction
from django.db.models import Count

from pikku_storage.access.actors import id_of, identity_of
from pikku_storage.access.declarations import DeclaredRole, declarations, flatten
from pikku_storage.access.models import Role, RoleScope, Scope, UserRole, UserScope, UserSession
from pikku_storage.access.querysets import PRESENT, GrantQuerySet, RoleQuerySet, ScopeQuerySet, batches
from pikku_storage.access.records import Changes, GrantRecord, RoleRecord, ScopeRecord, StaleRole, StaleScope
from pikku_storage.async_twins import AsyncTwins
from pikku_storage.auditing import AuditEvent, record_all
from pikku_storage.db import Engine, engine
from pikku_storage.db.operations import NOT_NULL, Guard
from pikku_storage.exceptions import (
    RoleExistsError,
    RoleNotFoundError,
    ScopeNotFoundError,
    SystemRoleImmutableError,
    SystemRoleShadowedError,
)

T = TypeVar("T")

DECLARED = {**PRESENT, "declared": True}


class ScopeService(AsyncTwins):
    """Which scopes and roles there are, and who holds them. `using` picks a database alias.

    It checks no permissions. Users are told by a Django user or an id; that there is such a user is not checked.
    `granted_by` and `by` are whoever does it, for the record and for the audit trail.
    """

    def __init__(self, using: str | None = None) -> None:
        self._given_using = using

    # -- what code declares --------------------------------------------------------------------------------------------

    def sync_scopes(self, scopes: Iterable[Any] | None = None, *, dry_run: bool = False) -> Changes:
        """Bring the stored scopes into step with these, by default with what code declares. What is missing among them
        is not declared any more, and stays with its grants.

        A scope is a name, a pair of name and description, a mapping with these keys, or a `DeclaredScope`. Raises
        `ScopeDeclarationError`.
        """
        if scopes is None:
            declarations.verify()
        declared = flatten(declarations.scopes.values() if scopes is None else scopes)
        wanted = {each.name: each.description for each in declared}
        stored = {each.name: each for each in self.list_scopes()}
        changes = _changes(wanted, stored, lambda name: stored[name].description != wanted[name], known=stored)
        if not dry_run and changes:
            self._write_scopes(wanted, changes)
        return changes

    def sync_system_roles(self, roles: Iterable[DeclaredRole] | None = None, *, dry_run: bool = False) -> Changes:
        """Bring the stored system roles into step with these, by default with what code declares: each has exactly its
        scopes then. What is missing is not declared any more, and stays with its grants. A role that an administrator
        made becomes a system role if it has the name of one; others are left alone.

        Synchronise scopes first. Raises `ScopeNotFoundError` for a scope that is not there, and
        `ScopeDeclarationError`.
        """
        if roles is None:
            declarations.verify()
        wanted = {role.name: role for role in (declarations.roles.values() if roles is None else roles)}
        stored = {role.name: role for role in self.list_roles()}

        def differs(name: str) -> bool:
            old, new = stored[name], wanted[name]
            return not old.system or old.description != new.description or set(old.scopes) != new.scopes

        system = {name for name, role in stored.items() if role.system}
        changes = _changes(wanted, stored, differs, known=system)
        if not dry_run and changes:
            self._check_scopes({scope for role in wanted.values() for scope in role.scopes}, kept=())
            for name in (*changes.added, *changes.changed):
                self._write_system_role(wanted[name])
            self._roles.undeclare(changes.undeclared, {"system": True})
        return changes

    def find_stale_scopes(self) -> list[StaleScope]:
        """The scopes that code declares no more, by name."""
        names = list(self._scopes.filter(declared=False).order_by("name").values_list("name", flat=True))
        roles = defaultdict(list)
        for some in batches(names):
            links = self._role_scopes.filter(scope__in=some).order_by("role_id")
            for role, scope in links.values_list("role_id", "scope_id"):
                roles[scope].append(role)
        return [StaleScope(scope=name, roles=tuple(roles[name])) for name in names]

    def prune_scopes(self, *, by: Any = None) -> list[str]:
        """Delete the scopes that code declares no more, with all grants of them; answers with their names.

        One that is declared again meanwhile is left alone, with its grants.
        """
        return self._prune(self._scopes, {"declared": False}, "access.scope.pruned", "scope", by)

    def find_stale_system_roles(self) -> list[StaleRole]:
        """The system roles that code declares no more, by name."""
        stale = self._roles.filter(system=True, declared=False).order_by("name")
        names = list(stale.values_list("name", flat=True))
        counts: Counter[str] = Counter()
        for some in batches(names):
            rows = self._user_roles.filter(role__in=some).order_by().values("role_id").annotate(users=Count("id"))
            counts.update({row["role_id"]: row["users"] for row in rows})
        return [StaleRole(role=name, users=counts[name]) for name in names]

    def prune_system_roles(self, *, by: Any = None) -> list[str]:
        """Delete the system roles that code declares no more, and take them from their users; answers with their names.
        One that is declared again meanwhile is left alone."""
        where = {"system": True, "declared": False}
        return self._prune(self._roles, where, "access.role.pruned", "role", by)

    # -- scopes and roles ----------------------------------------------------------------------------------------------

    def list_scopes(self) -> list[ScopeRecord]:
        """All scopes, by name."""
        rows = self._scopes.filter(removing_at__isnull=True).order_by("name")
        return [ScopeRecord(**row) for row in rows.values("name", "description", "declared")]

    def list_roles(self) -> list[RoleRecord]:
        """All roles with their scopes, by name. Two statements."""
        rows = self._roles.filter(removing_at__isnull=True).order_by("name")
        scopes = defaultdict(list)
        roles = list(rows.values("name", "description", "system", "declared", "created_at"))
        for role, scope in self._role_scopes.order_by("scope_id").values_list("role_id", "scope_id"):
            scopes[role].append(scope)
        return [RoleRecord(**row, scopes=tuple(scopes[row["name"]])) for row in roles]

    def create_role(
        self, name: str, scopes: Iterable[str] = (), *, description: str | None = None, by: Any = None
    ) -> None:
        """A role of an administrator's making.

        Raises `SystemRoleShadowedError` for the name of a system role, `RoleExistsError`, `ScopeNotFoundError`, and
        `ScopeDeclarationError` for what is no name.
        """
        role = DeclaredRole(name, frozenset(scopes), description)
        if name in declarations.roles:
            raise SystemRoleShadowedError(name)
        self._check_scopes(role.scopes, kept=())
        # What a crash has left of an earlier one does not become the new one's.
        self._roles.remove(name, {"removing_at": NOT_NULL}, at=self._now())

        def write() -> None:
            common = {"system": False, "declared": True, "created_at": self._now()}
            if not self._roles.add(common, [{"name": name, "description": description}]):
                is_system = self._roles.filter(pk=name, system=True).exists()
                raise SystemRoleShadowedError(name) if is_system else RoleExistsError(name)
            self._replace_scopes(name, role.scopes)

        self._as_one(write)
        self._audit("access.role.created", by, role=name, scopes=sorted(role.scopes))

    def delete_role(self, name: str, *, by: Any = None) -> bool:
        """Delete a role, and take it from its users; `False` if there is none. Raises `SystemRoleImmutableError`."""
        if not self._roles.remove(name, {"system": False}, at=self._now()):
            self._refuse_system_role(name, "delete")
            return False
        self._audit("access.role.deleted", by, role=name)
        return True

    def set_role_scopes(self, name: str, scopes: Iterable[str], *, by: Any = None) -> None:
        """Give a role these scopes in place of those it has.

        Raises `RoleNotFoundError`, `SystemRoleImmutableError`, and `ScopeNotFoundError` for one that it does not have
        yet and that is not declared.
        """
        wanted = frozenset(scopes)
        self._refuse_system_role(name, "re-scope")
        kept = self._role_scopes.filter(role=name).values_list("scope_id", flat=True)
        self._check_scopes(wanted, kept=kept)

        def write() -> None:
            if not self._roles.hold(name, {"system": False}):
                # The code may have taken it over meanwhile.
                self._refuse_system_role(name, "re-scope")
                raise RoleNotFoundError(name)
            self._replace_scopes(name, wanted)

        self._as_one(write)
        self._audit("access.role.rescoped", by, role=name, scopes=sorted(wanted))

    # -- users ---------------------------------------------------------------------------------------------------------

    def resolve_scopes(self, user: Any) -> list[str]:
        """The scopes that a user holds, by roles and directly, sorted and each once; also those that are not declared
        any more. A fixed number of statements."""
        user_id = id_of(user, role="user")
        held = set(self._user_scopes.filter(user_id=user_id).values_list("scope_id", flat=True))
        roles = self._engine.subquery(self._user_roles.filter(user_id=user_id).values_list("role_id", flat=True))
        held.update(self._role_scopes.filter(role__in=roles).values_list("scope_id", flat=True))
        return sorted(held)

    def list_user_roles(self, user: Any) -> list[str]:
        """The roles of a user, sorted."""
        rows = self._user_roles.filter(user_id=id_of(user, role="user"))
        return sorted(rows.values_list("role_id", flat=True))

    def list_user_scopes(self, user: Any) -> list[str]:
        """The scopes that a user was given directly, sorted; those of roles are not among them."""
        rows = self._user_scopes.filter(user_id=id_of(user, role="user"))
        return sorted(rows.values_list("scope_id", flat=True))

    def list_user_grants(self, user: Any) -> list[GrantRecord]:
        """The roles and then the scopes that a user was given, by name."""
        user_id = id_of(user, role="user")
        grants = []
        for kind, column, rows in (("role", "role_id", self._user_roles), ("scope", "scope_id", self._user_scopes)):
            found = rows.filter(user_id=user_id).order_by(column).values_list(column, "granted_by", "granted_at")
            grants += [GrantRecord(kind=kind, name=n, granted_by=by, granted_at=at) for n, by, at in found]  # type: ignore[arg-type]
        return grants

    def add_user_to_role(self, user: Any, role: str, granted_by: Any = None) -> bool:
        """Give a user a role; `False` if they have it. Raises `RoleNotFoundError`."""
        where = {"name": role, **PRESENT}
        values = {"role_id": role, "id": UserRole.id_of(id_of(user, role="user"), role)}
        return self._grant(self._user_roles, Guard(Role, where), user, values, granted_by, RoleNotFoundError(role))

    def remove_user_from_role(self, user: Any, role: str, *, by: Any = None) -> bool:
        """Take a role from a user; `False` if they do not have it."""
        return self._revoke(self._user_roles, user, {"role_id": role}, by)

    def add_scope_to_user(self, user: Any, scope: str, granted_by: Any = None) -> bool:
        """Give a user a scope; `False` if they have it. Raises `ScopeNotFoundError` for one that is not declared."""
        where = {"name": scope, **DECLARED}
        values = {"scope_id": scope, "id": UserScope.id_of(id_of(user, role="user"), scope)}
        return self._grant(self._user_scopes, Guard(Scope, where), user, values, granted_by, ScopeNotFoundError(scope))

    def remove_scope_from_user(self, user: Any, scope: str, *, by: Any = None) -> bool:
        """Take a scope from a user that was given directly; `False` if there is none. That of a role stays."""
        return self._revoke(self._user_scopes, user, {"scope_id": scope}, by)

    def revoke_user(self, user: Any, *, by: Any = None) -> int:
        """Take everything from a user: roles, scopes and the session. Answers how many rows that were.

        It is done when a Django user is deleted, by itself.
        """
        user_id = id_of(user, role="user")

        def write() -> int:
            sessions = int(UserSession.objects.using(self._using).clear(user_id))
            return sessions + sum(rows.revoke({"user_id": user_id}) for rows in (self._user_scopes, self._user_roles))

        revoked = self._as_one(write)
        if revoked:
            self._audit("access.user.revoked", by, userId=user_id)
        return revoked

    # -- how -----------------------------------------------------------------------------------------------------------

    def _write_scopes(self, wanted: Mapping[str, str | None], changes: Changes) -> None:
        new = [{"name": name, "description": wanted[name]} for name in changes.added]
        are_new = bool(new) and self._scopes.add({"declared": True}, new)
        for name in changes.changed if are_new else (*changes.added, *changes.changed):
            self._scopes.write(name, {"description": wanted[name], "declared": True}, {}, at=self._now())
        self._scopes.undeclare(changes.undeclared, {})

    def _write_system_role(self, role: DeclaredRole) -> None:
        at = self._now()

        def write() -> None:
            values = {"description": role.description, "system": True, "declared": True}
            self._roles.write(role.name, values, {"created_at": at}, at=at)
            self._replace_scopes(role.name, role.scopes)

        self._as_one(write)
        self._audit("access.role.rescoped", None, role=role.name, scopes=sorted(role.scopes))

    def _as_one(self, write: Callable[[], T]) -> T:
        """Do all of it or nothing, and again after a deadlock; where there are no transactions, in the order it has."""

        def together() -> T:
            with transaction.atomic(using=self._using):
                return write()

        return self._engine.retrying(together)

    def _replace_scopes(self, role: str, wanted: frozenset[str]) -> None:
        """First what goes and then what comes, so that a role that is caught in the middle has too little."""
        has = set(self._role_scopes.filter(role=role).values_list("scope_id", flat=True))
        for some in batches(sorted(has - wanted)):
            self._role_scopes.revoke({"role_id": role, "scope_id": some})
        for scope in sorted(wanted - has):
            values = {"id": RoleScope.id_of(role, scope), "role_id": role, "scope_id": scope}
            granted = Guard(Scope, {"name": scope, **DECLARED})
            self._role_scopes.grant(granted, values, ScopeNotFoundError(scope))

    def _check_scopes(self, wanted: Iterable[str], *, kept: Iterable[str]) -> None:
        missing = set(wanted) - set(kept)
        for some in batches(sorted(missing)):
            known = self._scopes.filter(name__in=some, declared=True, removing_at__isnull=True)
            missing -= set(known.values_list("name", flat=True))
        if missing:
            raise ScopeNotFoundError(*sorted(missing))

    def _refuse_system_role(self, name: str, operation: str) -> None:
        if self._roles.filter(pk=name, system=True).exists():
            raise SystemRoleImmutableError(name, operation)

    def _grant(
        self, rows: GrantQuerySet[Any], granted: Guard, user: Any, values: dict[str, Any], by: Any, otherwise: Exception
    ) -> bool:
        giver, user_id = identity_of(by).user_id, id_of(user, role="user")
        values = {**values, "user_id": user_id, "granted_by": giver, "granted_at": self._now()}
        if not rows.grant(granted, values, otherwise):
            return False
        what = granted.model._meta.model_name
        self._audit(f"access.{what}.granted", by, userId=user_id, **{str(what): granted.where["name"]})
        return True

    def _revoke(self, rows: GrantQuerySet[Any], user: Any, where: Mapping[str, str], by: Any) -> bool:
        user_id = id_of(user, role="user")
        if not rows.revoke({"user_id": user_id, **where}):
            return False
        (column, name), *_ = where.items()
        what = column.removesuffix("_id")
        self._audit(f"access.{what}.revoked", by, userId=user_id, **{what: name})
        return True

    def _prune(
        self, rows: ScopeQuerySet | RoleQuerySet, where: Mapping[str, Any], event: str, what: str, by: Any
    ) -> list[str]:
        stale = rows.filter(**where).order_by("name").values_list("name", flat=True)
        pruned = [name for name in list(stale) if rows.remove(name, where, at=self._now())]
        for name in pruned:
            self._audit(event, by, **{what: name})
        return pruned

    def _audit(self, event: str, by: Any, **metadata: Any) -> None:
        actor = identity_of(by)
        told = AuditEvent(type=event, outcome="success", actor=actor, wire_type="access", metadata=metadata)
        # What is rolled back did not happen.
        record_all([told], using=self._using)

    @property
    def _using(self) -> str:
        return self._given_using or router.db_for_write(Scope)

    @property
    def _engine(self) -> Engine:
        return engine(self._using)

    def _now(self) -> datetime:
        return self._engine.now()

    @property
    def _scopes(self) -> ScopeQuerySet:
        return Scope.objects.using(self._using)

    @property
    def _roles(self) -> RoleQuerySet:
        return Role.objects.using(self._using)

    @property
    def _role_scopes(self) -> GrantQuerySet[RoleScope]:
        return RoleScope.objects.using(self._using)

    @property
    def _user_roles(self) -> GrantQuerySet[UserRole]:
        return UserRole.objects.using(self._using)

    @property
    def _user_scopes(self) -> GrantQuerySet[UserScope]:
        return UserScope.objects.using(self._using)


def _changes(
    wanted: Mapping[str, Any],
    stored: Mapping[str, Any],
    differs: Callable[[str], bool],
    *,
    known: Iterable[str],
) -> Changes:
    """`stored` are records by name; `known`, the names of those that code has declared."""
    both = wanted.keys() & stored.keys()
    return Changes(
        added=tuple(sorted(wanted.keys() - stored.keys())),
        changed=tuple(sorted(name for name in both if not stored[name].declared or differs(name))),
        undeclared=tuple(sorted(name for name in set(known) - wanted.keys() if stored[name].declared)),
    )
