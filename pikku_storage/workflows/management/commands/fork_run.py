"""`manage.py fork_run`."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from pikku_storage.workflows.handle import WorkflowRunHandle
from pikku_storage.workflows.management.copying import CopyingCommand
from pikku_storage.workflows.service import WorkflowService


class Command(CopyingCommand):
    """Goes on from a step of a run, in a new one."""

    help = "Make a new run that takes over what a run recorded before a step, and goes on from that step."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """See `--help`."""
        super().add_arguments(parser)
        parser.add_argument("--from-step", required=True, help="the first step to be carried out again")
        parser.add_argument("--preview", action="store_true", help="say what would be taken over, and make nothing")

    def make(self, service: WorkflowService, options: dict[str, Any]) -> WorkflowRunHandle | None:
        """See `CopyingCommand.make`."""
        if not options["preview"]:
            return service.fork_run(
                options["run_id"], options["from_step"], options["input"], reason=options["reason"], by=options["by"]
            )
        preview = service.preview_fork(options["run_id"], options["from_step"])
        for label, names in (("taken over", preview.kept), ("carried out again", preview.again)):
            self.stdout.write(f"{label}: {', '.join(names) or 'nothing'}")
        if preview.is_same_version is False:
            self.stdout.write(f"Today's code of {preview.workflow} is not what the run was started with.")
        return None
