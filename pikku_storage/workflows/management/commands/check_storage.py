"""`manage.py check_storage`: do the invariants of the stored runs hold?"""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from dataclasses import asdict
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from pikku_storage.commands import add_database, check_database
from pikku_storage.workflows.invariants import find_violations
from pikku_storage.workflows.runs import WorkflowRunService


class Command(BaseCommand):
    """Reads every run, or the given ones, and reports what must never be. Exit code 1 if something was found."""

    help = (
        "Check the invariants of stored runs: every step succeeded at most once, step and attempts agree, budgets are "
        "kept, nothing is stuck for ever. Reads only. On a database that workers are writing to, run it again before "
        "you believe a finding."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """See `--help`."""
        parser.add_argument("run_ids", nargs="*", metavar="RUN_ID", help="check these runs only")
        add_database(parser)
        parser.add_argument("--json", action="store_true", help="one JSON object a line")

    def handle(self, *args: Any, **options: Any) -> None:
        """Print each violation as it is found."""
        check_database(options)
        known = WorkflowRunService(options["database"])
        unknown = [run_id for run_id in options["run_ids"] if known.get_run(run_id) is None]
        if unknown:
            raise CommandError(f"No such run: {', '.join(unknown)}")
        count = 0
        for violation in find_violations(options["database"], options["run_ids"] or None):
            count += 1
            self.stdout.write(json.dumps(asdict(violation)) if options["json"] else str(violation))
        if not options["json"]:
            self.stdout.write(f"{count} violations" if count else "All invariants hold.")
        if count:
            sys.exit(1)
