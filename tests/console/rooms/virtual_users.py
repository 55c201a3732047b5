"""Runs of virtual users."""

from __future__ import annotations

from django.contrib.auth.models import User

from console.gate import VIRTUAL_USERS
from pikku_storage.virtual_users.records import VirtualUserStep
from pikku_storage.virtual_users.service import VirtualUserRunStore
from tests.console.rooms import Room, Rows

_RUN = "pikku_virtual_users_virtualuserrun"


def _make(user: User) -> dict[str, Rows]:
    store = VirtualUserRunStore()
    run_id = store.start("Grace", "careless", 7, goals=["buy"])
    store.complete(run_id, steps=[VirtualUserStep(step_index=0, action={"click": "buy"}, response={"ok": True})])
    return {"virtualuserrun": Rows(run_id)}


ROOM = Room(
    area=VIRTUAL_USERS,
    make=_make,
    params={
        f"{_RUN}_payload": {"part": "goals"},
        f"{_RUN}_step": {"index": "0"},
        f"{_RUN}_step_payload": {"index": "0", "part": "response"},
    },
)
