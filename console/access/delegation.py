"""Who may hand on what: the rule that keeps whoever manages scopes from raising themselves or others above themselves.

* One gives and takes only scopes that one holds. A role is given and taken by who holds all that is in it, and changed
  by who holds what is added and what is removed. Superusers hold everything.
* Nobody but a superuser gives anything to themselves, also not by adding to a role that they have: what one holds by a
  role for a while would become one's own for good.
* One may give up what one holds. Whoever would lose `admin:scopes:manage` by that has to say that this is meant.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from django.utils.translation import gettext, ngettext

from console.gate import SCOPES
from pikku_storage.access.actors import actor_of, id_of
from pikku_storage.access.held import held_scopes
from pikku_storage.access.scopes import has_scopes
from pikku_storage.access.service import ScopeService
from pikku_storage.auditing import AuditEvent, record

MANAGE = SCOPES.named("manage")


class Delegation:
    """What one caller may hand on."""

    def __init__(self, user: Any, service: ScopeService) -> None:
        self.user = user
        self.held = held_scopes(user)
        self._service = service

    @property
    def is_superuser(self) -> bool:
        """Whether the caller holds everything by being one."""
        return bool(self.user.is_active and self.user.is_superuser)

    def is_self(self, user_id: str) -> bool:
        """Whether that is the caller."""
        return user_id == id_of(self.user, role="user")

    def lacks(self, scopes: Iterable[str]) -> list[str]:
        """Those of the scopes that the caller does not hold, sorted."""
        return sorted(scope for scope in scopes if not has_scopes(self.held, [scope]))

    def why_not(self, scopes: Iterable[str]) -> str:
        """Why the caller may neither give nor take these; empty if they may."""
        lacking = self.lacks(scopes)
        if not lacking:
            return ""
        text = ngettext(
            "You do not hold %(scopes)s, so you can neither give nor take it.",
            "You do not hold %(scopes)s, so you can neither give nor take them.",
            len(lacking),
        )
        return text % {"scopes": ", ".join(lacking)}

    def why_not_give(self, user_id: str, scopes: Iterable[str]) -> str:
        """Why the caller may not give a user these, if they may give them to anybody."""
        if self.is_self(user_id) and not self.is_superuser:
            return gettext("Nobody gives anything to themselves: ask somebody else who manages scopes.")
        return self.why_not(scopes)

    def why_not_change_role(self, role: str, added: Iterable[str], removed: Iterable[str]) -> str:
        """Why the caller may not change the scopes of a role so; empty if they may."""
        added = list(added)
        if added and not self.is_superuser and role in self._service.list_user_roles(self.user):
            return gettext("You have this role yourself: somebody else has to add to it.")
        return self.why_not([*added, *removed])

    def loses_control(self, *, scopes: Iterable[str] = (), roles: Mapping[str, Iterable[str]] | None = None) -> bool:
        """Whether the caller would not manage scopes any more: without these direct scopes of theirs, and with these
        scopes in these roles."""
        if self.is_superuser:
            return False
        changed = roles or {}
        left = set(self._service.list_user_scopes(self.user)) - set(scopes)
        mine = set(self._service.list_user_roles(self.user))
        for role in self._service.list_roles():
            if role.name in mine:
                left.update(changed.get(role.name, role.scopes))
        return not has_scopes(left, [MANAGE])

    def refused(self, event: str, **metadata: Any) -> None:
        """Tell the audit trail of an attempt to do more than one may."""
        told = AuditEvent(
            type=event, outcome="denied", actor=actor_of(self.user), wire_type="access", metadata=metadata
        )
        record(told)
