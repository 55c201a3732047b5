"""Which storage an agent has (contract AM-01)."""

from __future__ import annotations

from pikku_storage.agents.service import AgentStorageService
from pikku_storage.conf import settings


def storage_of(agent_name: str, using: str | None = None) -> AgentStorageService | None:
    """The storage on the database `using`; or else the one that `AGENT_DATABASES` names for the agent; or else the
    routers'. `None` if `AGENT_DATABASES` says that this agent keeps nothing."""
    if using is None and agent_name in settings.AGENT_DATABASES:
        using = settings.AGENT_DATABASES[agent_name]
        if using is None:
            return None
    return AgentStorageService(using)
