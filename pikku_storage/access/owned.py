"""The manager of models whose rows belong to somebody."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

from django.db import models

from pikku_storage.access.ownership import Ownership
from pikku_storage.exceptions import UnscopedQueryError


class OwnedManager(models.Manager[Any]):
    """Answers with rows of somebody: `AgentThread.objects.for_principals(user)`; refuses to be asked for everybody's.

    `resource` is the column with the owner, also of another table: `"thread__resource_id"`. The model's default manager
    is another one, which has all rows.
    """

    def __init__(self, resource: str) -> None:
        super().__init__()
        self.resource = resource

    def for_principals(self, session: Any, *, owners: Iterable[str] | None = None, admins: bool = False) -> Any:
        """The rows that the session's principals own; for `owners` only those that are also theirs. With `admins` a
        session that holds `admin` sees all. Nobody owns nothing."""
        return self.owned_by(Ownership.of(session, admins=admins).narrowed(owners))

    def owned_by(self, ownership: Ownership) -> Any:
        """The rows that an ownership covers; without a query if that is nothing."""
        rows = self.model._default_manager.using(self._db)
        if ownership.owners == ():
            return rows.none()
        return rows.filter(ownership.condition(self.resource))

    def get_queryset(self) -> NoReturn:
        """There is no queryset of everybody's rows here."""
        raise UnscopedQueryError(self.model.__name__)
