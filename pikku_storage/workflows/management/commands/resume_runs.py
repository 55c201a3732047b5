"""`manage.py resume_runs`."""

from __future__ import annotations

from typing import Any

from pikku_storage.workflows.bulk import BulkReport, RunFilter
from pikku_storage.workflows.management.bulk import BulkCommand
from pikku_storage.workflows.service import WorkflowService
from pikku_storage.workflows.statuses import LIVE_RUN_STATUSES


class Command(BulkCommand):
    """Looks at live runs again."""

    help = "Look again, now, at the live runs that the arguments say: what they wait for may be there."
    done = "resumed"
    statuses = LIVE_RUN_STATUSES

    def change(self, service: WorkflowService, where: RunFilter, options: dict[str, Any]) -> BulkReport:
        """See `BulkCommand.change`."""
        return service.resume_runs(where, reason=options["reason"], by=options["by"], limit=options["limit"])
