"""Deployments."""

from __future__ import annotations

from django.contrib.auth.models import User

from console.gate import DEPLOYMENTS
from pikku_storage.deployments.models import Deployment
from tests.console.rooms import Room, Rows
from tests.console.stories import now


def _make(user: User) -> dict[str, Rows]:
    Deployment.objects.put("web-1", "https://a.test", ["charge"], at=now())
    return {"deployment": Rows("web-1")}


ROOM = Room(area=DEPLOYMENTS, make=_make)
