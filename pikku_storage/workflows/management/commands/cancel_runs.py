"""`manage.py cancel_runs`."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from pikku_storage.workflows.bulk import BulkReport, RunFilter
from pikku_storage.workflows.management.bulk import BulkCommand
from pikku_storage.workflows.service import WorkflowService
from pikku_storage.workflows.statuses import LIVE_RUN_STATUSES


class Command(BulkCommand):
    """Cancels live runs."""

    help = "Cancel the live runs that the arguments say: nothing begins after the step that is under way."
    done = "cancelled"
    statuses = LIVE_RUN_STATUSES

    def add_arguments(self, parser: ArgumentParser) -> None:
        """See `--help`."""
        super().add_arguments(parser)
        parser.add_argument("--compensate", action="store_true", help="undo first what the runs did, by their on_error")

    def change(self, service: WorkflowService, where: RunFilter, options: dict[str, Any]) -> BulkReport:
        """See `BulkCommand.change`."""
        if not options["reason"]:
            raise CommandError("Say why: --reason.")
        return service.cancel_runs(
            where,
            reason=options["reason"],
            by=options["by"],
            compensate=options["compensate"],
            limit=options["limit"],
        )
