"""Who may see and answer what of agents (contract console.md §3 and §4).

Who holds a scope of the area sees everybody's threads. Others on the staff see those of their own principals, with all
that is in them. Owners may answer the approvals of their own threads, as they may over HTTP, and delete nothing; for
what is somebody else's, both take the scope to manage.
"""

from __future__ import annotations

from django.db import router
from django.http import HttpRequest

from console.agents.reads import count_waiting
from console.gate import AGENTS, is_staff
from pikku_storage.access.ownership import EVERYBODYS, Ownership
from pikku_storage.agents.models import AgentToolCall

_NOBODYS = Ownership(())


def own(request: HttpRequest) -> Ownership:
    """What belongs to the caller."""
    return Ownership.of(request.user) if is_staff(request) else _NOBODYS


def visible(request: HttpRequest) -> Ownership:
    """Whose threads the caller may see."""
    return EVERYBODYS if AGENTS.may_view(request) else own(request)


def answerable(request: HttpRequest) -> Ownership:
    """In whose threads the caller may answer approvals."""
    return EVERYBODYS if AGENTS.may(request, "manage") else own(request)


def waiting_for(request: HttpRequest) -> int:
    """How many approvals of agents wait for the caller's answer, counted up to a thousand and one."""
    return count_waiting(router.db_for_read(AgentToolCall), answerable(request))
