"""Which processes are up, and calls of their functions (contract services.md §12)."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

from django.db import router

from pikku_storage.async_twins import AsyncTwins
from pikku_storage.conf import settings
from pikku_storage.crypto import remote
from pikku_storage.deployments.client import SCHEMES, NotReachedError, post, scheme_of
from pikku_storage.deployments.heartbeat import Heart
from pikku_storage.deployments.models import Deployment as Row
from pikku_storage.deployments.querysets import DeploymentQuerySet
from pikku_storage.deployments.records import Deployment
from pikku_storage.exceptions import DeploymentNotFoundError, PayloadError, RemoteCallError
from pikku_storage.json import Json, to_json, to_text

logger = logging.getLogger(__name__)

LONGEST_ENDPOINT = 2000
SWEPT_AFTER = 10
"""Times to live after which a deployment is forgotten."""
_TRACE_ID = re.compile(r"[\x21-\x7e]{1,255}")


class DeploymentService(AsyncTwins):
    """Deployments, and calls of their functions. `using` picks a database alias. Every method has an async twin:
    `await service.ainvoke(…)`."""

    def __init__(self, using: str | None = None) -> None:
        self._given_using = using
        self._hearts: dict[str, Heart] = {}

    # -- being up ------------------------------------------------------------------------------------------------------

    def start(self, deployment_id: str, endpoint: str, functions: Iterable[str] = ()) -> None:
        """Register a deployment in place of an earlier one of that id, and keep its heart beating until `stop`, in a
        side thread. It is registered again if somebody deletes it meanwhile. Raises `PayloadError`."""
        names = tuple(functions)
        register = self._registering(deployment_id, endpoint, lambda: names)
        register()
        self.sweep()
        self._let_beat(deployment_id, Heart(register))

    def announce(self, deployment_id: str, endpoint: str, functions: Callable[[], Iterable[str]]) -> None:
        """As `start`, but nothing of it happens in the calling thread, nor fails there: while the database does not
        answer, it is tried again. The functions are asked for at each heartbeat. Raises `PayloadError`."""
        register = self._registering(deployment_id, endpoint, functions)
        self._let_beat(deployment_id, Heart(register, at_once=True))

    def stop(self, deployment_id: str | None = None) -> None:
        """Let the hearts stop that this object has started, or one of them, and delete those deployments."""
        for each in list(self._hearts) if deployment_id is None else [deployment_id]:
            heart = self._hearts.pop(each, None)
            if heart is not None:
                heart.stop()
            self._rows.remove(each)

    def heartbeat(self, deployment_id: str) -> bool:
        """One heartbeat, for whoever keeps no thread; `False` if there is no such deployment."""
        rows = self._rows
        return rows.beat(deployment_id, at=rows.engine.now())

    def sweep(self) -> int:
        """Delete the deployments that have not been up for ten times their time to live; answers how many there
        were."""
        rows = self._rows
        return rows.sweep(until=rows.engine.now() - SWEPT_AFTER * self._time_to_live)

    # -- who is up -----------------------------------------------------------------------------------------------------

    def get_deployment(self, deployment_id: str) -> Deployment | None:
        """The deployment of that id, whether it is up or not."""
        row = self._rows.filter(pk=deployment_id).values(*Deployment.COLUMNS).first()
        return None if row is None else Deployment.of(row)

    def list_deployments(self) -> list[Deployment]:
        """The deployments that are up, the last heartbeat first."""
        rows = self._rows
        found = rows.beating_since(rows.engine.now() - self._time_to_live)
        return [Deployment.of(row) for row in found.values(*Deployment.COLUMNS)]

    def find_deployments(self, func: str) -> list[Deployment]:
        """Those of them that serve the function."""
        return [each for each in self.list_deployments() if func in each.functions]

    # -- calls ---------------------------------------------------------------------------------------------------------

    def invoke(self, func: str, data: Any = None, session: Any = None, trace_id: str | None = None) -> Json:
        """Call a function of another service, with that session; answers with its result.

        One deployment after the other is tried until one can be reached. What was sent is never sent again. Raises
        `DeploymentNotFoundError` if none that is up serves the function, `RemoteCallError`, `WeakKeyMaterialError`, and
        `PayloadError` for what is no JSON.
        """
        to_text(func, root="$func")
        body = json.dumps({"data": to_json(data, root="$data")}, ensure_ascii=False, separators=(",", ":")).encode()
        headers = _headers(func, to_json(session, root="$session"), trace_id)
        endpoints = [each.endpoint for each in self.find_deployments(func) if scheme_of(each.endpoint) in SCHEMES]
        if not endpoints:
            raise DeploymentNotFoundError(func)
        for endpoint in dict.fromkeys(endpoints):
            try:
                return post(endpoint, func, body, headers)
            except NotReachedError as error:
                logger.warning("%s is not reached for %s: %s", endpoint, func, error)
        raise RemoteCallError(func, "no deployment can be reached", was_sent=False)

    # -- inside --------------------------------------------------------------------------------------------------------

    @property
    def _rows(self) -> DeploymentQuerySet:
        return Row.objects.using(self._given_using or router.db_for_write(Row))

    @property
    def _time_to_live(self) -> timedelta:
        return timedelta(milliseconds=settings.DEPLOYMENT_TTL)

    def _registering(
        self, deployment_id: str, endpoint: str, functions: Callable[[], Iterable[str]]
    ) -> Callable[[], None]:
        deployment_id = to_text(deployment_id, root="$deployment_id")
        endpoint = to_text(endpoint, root="$endpoint", longest=LONGEST_ENDPOINT).rstrip("/")
        if scheme_of(endpoint) is None:
            raise PayloadError("$endpoint", "must be an address with a scheme and a host")

        def register() -> None:
            rows = self._rows
            names = sorted({to_text(name, root="$functions") for name in functions()})
            rows.put(deployment_id, endpoint, names, at=rows.engine.now())

        return register

    def _let_beat(self, deployment_id: str, heart: Heart) -> None:
        earlier = self._hearts.pop(deployment_id, None)
        self._hearts[deployment_id] = heart
        if earlier is not None:
            earlier.stop()


def _headers(func: str, session: Json, trace_id: str | None) -> dict[str, str]:
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    if trace_id is not None:
        if not _TRACE_ID.fullmatch(trace_id):
            raise PayloadError("$trace_id", "must be 1 to 255 visible ASCII characters")
        headers["X-Request-Id"] = trace_id
    authorization = remote.authorization(settings.REMOTE_SECRET, settings.JWT_SECRETS, func, session)
    return headers if authorization is None else {**headers, "Authorization": authorization}
