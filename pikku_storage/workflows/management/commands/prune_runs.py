"""`manage.py prune_runs`: delete runs that ended long ago."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import Error as DatabaseError

from pikku_storage.commands import add_database, check_database
from pikku_storage.workflows.querysets import TERMINAL
from pikku_storage.workflows.records import Pruned
from pikku_storage.workflows.service import WorkflowService

INTERRUPTED = 130
"""The exit code of a command that Ctrl-C stopped."""


class Command(BaseCommand):
    """Deletes in batches. It may be stopped at any moment, and any number may run at once."""

    help = (
        "Delete runs that ended longer ago than a given time, with their steps and attempts. Works in batches; may be "
        "stopped at any moment and called again."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """See `--help`."""
        parser.add_argument("--older-than", required=True, metavar="DURATION", help="since their end, such as 90d")
        parser.add_argument(
            "--status",
            required=True,
            action="append",
            choices=TERMINAL,
            help="how they ended; may be given again for more",
        )
        parser.add_argument("--workflow", metavar="NAME", help="only runs of this workflow")
        parser.add_argument("--batch", type=int, default=500, help="runs that are deleted at once (default: 500)")
        parser.add_argument("--dry-run", action="store_true", help="count them, and delete nothing")
        add_database(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        """Prune, one status after the other."""
        check_database(options)
        for status in sorted(set(options["status"])):
            self._prune(status, options)

    def _prune(self, status: str, options: dict[str, Any]) -> None:
        verb = "would be deleted" if options["dry_run"] else "deleted"
        sofar = Pruned()

        def tell(pruned: Pruned) -> None:
            nonlocal sofar
            sofar = pruned
            if options["verbosity"] > 1:
                self.stdout.write(f"{status}: {pruned.deleted} runs {verb} so far")

        try:
            sofar = WorkflowService(options["database"]).prune_runs(
                options["older_than"],
                statuses=[status],
                workflow_name=options["workflow"],
                batch=options["batch"],
                dry_run=options["dry_run"],
                progress=tell,
            )
        except ValueError as error:
            raise CommandError(str(error)) from None
        except DatabaseError as error:
            raise CommandError(
                f"The database failed after {sofar.deleted} {status} runs: {error}. Call it again to go on."
            ) from error
        except KeyboardInterrupt:
            raise CommandError(
                f"Stopped after {sofar.deleted} {status} runs. Call it again to go on.", returncode=INTERRUPTED
            ) from None
        kept = f", {sofar.kept} kept because something of them is still under way" if sofar.kept else ""
        self.stdout.write(f"{status}: {sofar.deleted} runs {verb}{kept}")
