"""Who was granted what, for the pages: each in a constant number of statements."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError
from django.db import connections, router
from django.db.models import Count, Model, QuerySet

from console.lookups import id_prefix
from pikku_storage.access.models import RoleScope, UserRole, UserScope
from pikku_storage.access.service import ScopeService

SHOWN = 50


@dataclass(frozen=True, slots=True)
class Way:
    """A scope that a user holds, and by what: roles by name, and whether directly."""

    scope: str
    roles: tuple[str, ...]
    is_direct: bool


@dataclass(frozen=True, slots=True)
class Grantee:
    """A user in the list, with what they were granted."""

    user_id: str
    roles: tuple[str, ...]
    scopes: tuple[str, ...]


def counted(model: type[Model], column: str, names: Collection[str] | None = None) -> Counter[str]:
    """How many rows there are by role or scope, of these names or of all."""
    rows: QuerySet[Any] = model._default_manager.order_by()
    if names is not None:
        rows = rows.filter(**{f"{column}__in": list(names)})
    return Counter({row[column]: row["rows"] for row in rows.values(column).annotate(rows=Count("pk"))})


def ways_of(user_id: str, service: ScopeService) -> list[Way]:
    """What a user's grants resolve to, by scope."""
    roles = service.list_user_roles(user_id)
    direct = set(service.list_user_scopes(user_id))
    by_scope: dict[str, list[str]] = {scope: [] for scope in direct}
    rows: QuerySet[Any] = RoleScope._default_manager.filter(role__in=roles).order_by("role_id")
    for role, scope in rows.values_list("role_id", "scope_id"):
        by_scope.setdefault(scope, []).append(role)
    return [Way(scope, tuple(by_scope[scope]), scope in direct) for scope in sorted(by_scope)]


def user_of(user_id: str) -> Any:
    """The row of the user table with that id; `None` if there is none. Grants go by the id's text, so another text that
    is read as the same id, such as `01`, is nobody's."""
    users = get_user_model()
    try:
        found = users._default_manager.filter(pk=users._meta.pk.to_python(user_id)).first()
    except ValidationError:
        return None
    return found if found is not None and str(found.pk) == user_id else None


def is_granted_anything(user_id: str) -> bool:
    """Whether anything was given to that user."""
    rows: Iterable[QuerySet[Any]] = (UserRole._default_manager.all(), UserScope._default_manager.all())
    return any(each.filter(user_id=user_id).exists() for each in rows)


def found_users(term: str) -> list[str]:
    """The ids of users whose name begins with `term`, or whose id it is, also of those who are in no user table and
    were granted something."""
    users = get_user_model()
    vendor = connections[router.db_for_read(users)].vendor
    by_name = users._default_manager.filter(id_prefix(term, vendor, column=users.USERNAME_FIELD))
    by_name = by_name.order_by(users.USERNAME_FIELD)
    found = [str(pk) for pk in by_name.values_list("pk", flat=True)[:SHOWN]]
    by_id = [term] if user_of(term) is not None or is_granted_anything(term) else []
    return list(dict.fromkeys([*by_id, *found]))[:SHOWN]


def granted_users(after: str) -> tuple[list[str], bool]:
    """The ids of those who were granted something, by id, behind one of them, and whether there are more."""
    found: set[str] = set()
    for model in (UserRole, UserScope):
        rows: QuerySet[Any] = model._default_manager.order_by("user_id")
        if after:
            rows = rows.filter(user_id__gt=after)
        found.update(rows.values_list("user_id", flat=True).distinct()[: SHOWN + 1])
    ordered = sorted(found)
    return ordered[:SHOWN], len(ordered) > SHOWN


def grantees(user_ids: Collection[str]) -> list[Grantee]:
    """These users, in this order, with what they were granted."""
    granted: dict[str, dict[str, list[str]]] = {}
    for model, column in ((UserRole, "role_id"), (UserScope, "scope_id")):
        by_user = granted[column] = defaultdict(list)
        rows: QuerySet[Any] = model._default_manager.filter(user_id__in=list(user_ids)).order_by("user_id", column)
        for user_id, name in rows.values_list("user_id", column):
            by_user[user_id].append(name)
    return [
        Grantee(user_id, tuple(granted["role_id"][user_id]), tuple(granted["scope_id"][user_id]))
        for user_id in user_ids
    ]
