"""`manage.py rerun_run`."""

from __future__ import annotations

from typing import Any

from pikku_storage.workflows.handle import WorkflowRunHandle
from pikku_storage.workflows.management.copying import CopyingCommand
from pikku_storage.workflows.service import WorkflowService


class Command(CopyingCommand):
    """Starts a run's workflow once more."""

    help = "Start the workflow of a run once more, from the beginning, with the same input or with --input."

    def make(self, service: WorkflowService, options: dict[str, Any]) -> WorkflowRunHandle | None:
        """See `CopyingCommand.make`."""
        return service.rerun_run(options["run_id"], options["input"], reason=options["reason"], by=options["by"])
