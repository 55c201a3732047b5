"""Scopes, roles and grants."""

from __future__ import annotations

from django.contrib.auth.models import User

from console.gate import SCOPES
from pikku_storage.access.models import Scope
from pikku_storage.access.service import ScopeService
from tests.console.rooms import Room, Rows


def _make(user: User) -> dict[str, Rows]:
    Scope.objects.get_or_create(name="shop:orders", defaults={"declared": True})
    service = ScopeService()
    service.create_role("clerks", ["shop:orders"])
    grantee = User.objects.create_user("grantee")
    service.add_user_to_role(grantee, "clerks")
    return {"scope": Rows("shop:orders"), "role": Rows("clerks"), "userrole": Rows(str(grantee.pk))}


_SCOPE, _ROLE, _USER = "pikku_access_scope", "pikku_access_role", "pikku_access_userrole"

_MANAGED = (
    *(f"{_ROLE}_{page}" for page in ("add", "scopes", "delete", "prune")),
    f"{_SCOPE}_prune",
    f"{_USER}_grants",
)

ROOM = Room(area=SCOPES, make=_make, needs=dict.fromkeys(_MANAGED, "manage"))
