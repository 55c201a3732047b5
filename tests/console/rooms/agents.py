"""Threads, runs and approvals of agents."""

from __future__ import annotations

from django.contrib.auth.models import User

from console.gate import AGENTS
from pikku_storage.agents.models import AgentMessage, AgentRun
from pikku_storage.agents.service import AgentStorageService
from tests.console.agent_stories import waiting
from tests.console.rooms import Room, Rows


def _make(user: User) -> dict[str, Rows]:
    own, own_call = waiting(str(user.pk))
    foreign, foreign_call = waiting(f"somebody-else-{user.pk}")
    for thread_id in (own, foreign):
        AgentStorageService().save_working_memory(thread_id, "thread", {"of": thread_id})
    return {
        "agentthread": Rows(own, foreign),
        "agentrun": Rows(_run(own), _run(foreign)),
        "agentapproval": Rows(own_call, foreign_call),
        "message": Rows(_message(own), _message(foreign)),
    }


def _message(thread_id: str) -> str:
    return str(AgentMessage.everyones.filter(thread_id=thread_id).values_list("pk", flat=True)[0])


def _run(thread_id: str) -> str:
    return str(AgentRun.everyones.get(thread_id=thread_id).pk)


_THREAD = "pikku_agents_agentthread"

ROOM = Room(
    area=AGENTS,
    owned=True,
    make=_make,
    # Owners read and answer, and delete nothing.
    needs={f"{_THREAD}_delete": "manage"},
    params={
        f"{_THREAD}_memory": {"scope": "thread"},
        f"{_THREAD}_message": {"message_id": "message"},
        f"{_THREAD}_call": {"call_id": "agentapproval", "part": "args"},
    },
)
