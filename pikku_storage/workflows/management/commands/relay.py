"""`manage.py relay`: the relay for projects without Celery beat."""

from __future__ import annotations

from collections.abc import Callable

from pikku_storage.commands import RelayCommand
from pikku_storage.workflows.service import WorkflowService


class Command(RelayCommand):
    """Looks for runs and steps that are due."""

    help = (
        "Drive on what is due: sleeps, retries, undispatched steps, expired leases, stalled runs. Runs until it is "
        "stopped (Ctrl-C or SIGTERM). An alternative to the beat entry; any number may run at once."
    )
    said = "{} runs driven on"

    def relay_of(self, database: str | None) -> Callable[[], int]:
        """See `RelayCommand.relay_of`."""
        service = WorkflowService(using=database)
        return lambda: len(service.relay())
