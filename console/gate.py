"""Who may see and do what. One policy answers for every list, page and endpoint of the console.

Each room of the console is an `Area`: scopes of `pikku_storage.access`, of which one opens the pages, and others let
do something there. A superuser holds `*`; who holds `admin`, `admin:*` or `*` may do everything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.contrib.auth import get_permission_codename
from django.db.models.options import Options
from django.http import HttpRequest

from pikku_storage.access.held import held_scopes
from pikku_storage.access.scopes import has_scopes
from pikku_storage.conf import settings


@dataclass(frozen=True, slots=True)
class Area:
    """What belongs together, under one scope such as `admin:workflows`, with the verbs beneath it.

    `read` opens the pages. Whoever may do something there must see it, so any other verb opens them as well.
    """

    scope: str
    verbs: tuple[str, ...] = ("read", "manage")

    def named(self, verb: str) -> str:
        """The scope of one verb; raises `ValueError` for one that the area does not have."""
        if verb not in self.verbs:
            raise ValueError(f"{self.scope} has no verb {verb!r}")
        return f"{self.scope}:{verb}"

    def may(self, request: HttpRequest, verb: str) -> bool:
        """Whether the caller is active staff and holds the scope of that verb."""
        return is_staff(request) and has_scopes(held_scopes(request.user), [self.named(verb)])

    def may_view(self, request: HttpRequest) -> bool:
        """Whether the caller may see the pages."""
        return any(self.may(request, verb) for verb in self.verbs)


WORKFLOWS = Area("admin:workflows")
AGENTS = Area("admin:agents")
SECRETS = Area("admin:secrets", ("read", "write", "reveal"))
CREDENTIALS = Area("admin:credentials", ("read", "manage", "reveal"))
CHANNELS = Area("admin:channels")
DEPLOYMENTS = Area("admin:deployments", ("read",))
WEBHOOKS = Area("admin:webhooks")
AUDIT = Area("admin:audit", ("read",))
SCOPES = Area("admin:scopes")
VIRTUAL_USERS = Area("admin:virtualUsers", ("read",))


def is_staff(request: HttpRequest) -> bool:
    """Whether the caller may use the admin at all."""
    return bool(request.user.is_active and request.user.is_staff)


def has_model_permission(request: HttpRequest, action: str, opts: Options[Any]) -> bool:
    """Whether Django's own permissions allow the `action` (`view`, `add`, `change` or `delete`) too, where the setting
    `CONSOLE_MODEL_PERMISSIONS` asks for them. They never stand in for a scope."""
    if not settings.CONSOLE_MODEL_PERMISSIONS:
        return True
    actions = ("view", "change") if action == "view" else (action,)
    return any(request.user.has_perm(f"{opts.app_label}.{get_permission_codename(each, opts)}") for each in actions)
