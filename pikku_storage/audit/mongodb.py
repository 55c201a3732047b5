"""Seeing commands of MongoDB; see `observing`. Imported only where a database is one."""

from __future__ import annotations

import logging
from typing import Any

from pymongo import monitoring

from pikku_storage.audit.observing import observed_by, observer
from pikku_storage.audit.statements import of_command
from pikku_storage.auditing import lost

logger = logging.getLogger(__name__)


class Listener(monitoring.CommandListener):
    """Sees commands as they begin, in the thread that gives them."""

    def started(self, event: Any) -> None:
        """See `CommandListener.started`. Nothing that it raises could stop the command."""
        looking = observer.get()
        if looking is None:
            return
        with observed_by(None):
            try:
                statement = of_command(event.command_name, event.command)
                if statement is not None:
                    looking.saw(statement)
            except Exception as error:
                lost.add(1, error)
                logger.warning("The command %s could not be audited", event.command_name, exc_info=True)

    def succeeded(self, event: Any) -> None:
        """See `CommandListener.succeeded`."""

    def failed(self, event: Any) -> None:
        """See `CommandListener.failed`."""


def register() -> None:
    """Let every client that is made from now on tell of its commands."""
    monitoring.register(Listener())
