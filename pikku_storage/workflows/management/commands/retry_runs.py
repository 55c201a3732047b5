"""`manage.py retry_runs`."""

from __future__ import annotations

from typing import Any

from pikku_storage.workflows.bulk import BulkReport, RunFilter
from pikku_storage.workflows.management.bulk import BulkCommand
from pikku_storage.workflows.operations import RETRIED_STATUSES
from pikku_storage.workflows.service import WorkflowService


class Command(BulkCommand):
    """Tries again what failed."""

    help = (
        "Try again what failed in the runs that the arguments say: a live run's waiting retries at once, a failed or "
        "cancelled run as a new one that goes on where it failed."
    )
    done = "retried"
    statuses = RETRIED_STATUSES

    def change(self, service: WorkflowService, where: RunFilter, options: dict[str, Any]) -> BulkReport:
        """See `BulkCommand.change`."""
        return service.retry_runs(where, reason=options["reason"], by=options["by"], limit=options["limit"])
