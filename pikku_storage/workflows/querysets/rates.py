"""State changes of rate limits."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from django.db import IntegrityError

from pikku_storage.db.operations import Delete, Expired, Insert, Update
from pikku_storage.ids import new_token
from pikku_storage.workflows.querysets.base import EngineQuerySet

if TYPE_CHECKING:
    from pikku_storage.workflows.models import WorkflowRate  # noqa: F401 - named in the base class as text

_TIDIED = 10
"""How many rows of keys that are not used any more go for each that comes, at most."""


class RateQuerySet(EngineQuerySet["WorkflowRate"]):
    """When the last runs under each rate limit began, in milliseconds since 1970."""

    def seen(self, rate_id: str) -> tuple[list[int], str | None]:
        """The starts, oldest first, and the version that `replace` asks for; `None` if there is no row."""
        rows = self.engine.read(self.model, {"id": rate_id}, ("starts", "version"))
        return (list(rows[0]["starts"]), str(rows[0]["version"])) if rows else ([], None)

    def replace(
        self,
        rate_id: str,
        starts: Sequence[int],
        *,
        seen: str | None,
        workflow: str,
        key: str | None,
        at: datetime,
        over_at: datetime,
    ) -> bool:
        """Store the starts, for the one caller whose version still is the row's (compare-and-swap). After `over_at`
        none of them counts any more."""
        values = {"starts": list(starts), "version": new_token(), "over_at": over_at}
        if seen is not None:
            return bool(self._apply(Update(self.model, {"id": rate_id, "version": seen}, values))[0])
        try:
            with self.engine.savepoint():
                self._apply(Insert(self.model, {"id": rate_id, "workflow": workflow, "key": key, **values}))
        except IntegrityError:
            return False
        self._tidy(at)
        return True

    def _tidy(self, at: datetime) -> None:
        """Keys come and go (tenants, say); what is left of an old one is no different from nothing."""
        over = list(self.filter(over_at__lte=at).order_by("over_at").values_list("id", flat=True)[:_TIDIED])
        if over:
            self._apply(Delete(self.model, {"id": over, "over_at": Expired(at)}))
