"""`manage.py relay_webhooks`: the relay of webhooks for projects without Celery beat."""

from __future__ import annotations

from collections.abc import Callable

from pikku_storage.commands import RelayCommand
from pikku_storage.webhooks.service import WebhookService


class Command(RelayCommand):
    """Looks for webhooks that are due."""

    help = (
        "Send the messages of webhooks that are due again; without a broker (DISPATCHER is None) attempt them. Runs "
        "until it is stopped (Ctrl-C or SIGTERM). An alternative to an entry of Celery beat."
    )
    database_default = "where webhooks are kept"
    said = "{} webhooks announced"

    def relay_of(self, database: str | None) -> Callable[[], int]:
        """See `RelayCommand.relay_of`."""
        return WebhookService(database, worker="relay").relay
