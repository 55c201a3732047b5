"""Every change of the rows of deployments."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from pikku_storage.db.operations import Delete, Expired, Update
from pikku_storage.db.querysets import EngineQuerySet

if TYPE_CHECKING:
    from pikku_storage.deployments.models import Deployment  # noqa: F401 - named as text


class DeploymentQuerySet(EngineQuerySet["Deployment"]):
    """Deployments."""

    def put(self, deployment_id: str, endpoint: str, functions: Sequence[str], *, at: datetime) -> None:
        """Register a deployment, whole, in place of an earlier one of that id: its heart beats now."""
        values = {"endpoint": endpoint, "functions": list(functions), "last_heartbeat": at}
        self.upsert({"deployment_id": deployment_id}, values, new={"created_at": at})

    def beat(self, deployment_id: str, *, at: datetime) -> bool:
        """A heartbeat; `False` if there is no such deployment."""
        return bool(self.engine.apply(Update(self.model, {"deployment_id": deployment_id}, {"last_heartbeat": at}))[0])

    def remove(self, deployment_id: str) -> bool:
        """Delete a deployment; `False` if there is none."""
        return bool(self.engine.apply(Delete(self.model, {"deployment_id": deployment_id}))[0])

    def sweep(self, *, until: datetime) -> int:
        """Delete those whose heart has not beaten since `until`; answers how many there were."""
        return self.engine.apply(Delete(self.model, {"last_heartbeat": Expired(until)}))[0]

    def beating_since(self, moment: datetime) -> DeploymentQuerySet:
        """Those whose heart has beaten after that moment, the last one first."""
        return self.filter(last_heartbeat__gt=moment).order_by("-last_heartbeat", "deployment_id")
