"""`manage.py approve_run`: answers an approval of a run."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand, CommandError
from django.db import connections

from pikku_storage.exceptions import PikkuError
from pikku_storage.workflows.service import WorkflowService


class Command(BaseCommand):
    """Enters one answer, in the name of a user of this project."""

    help = (
        "Answer an approval of a run. The decision is JSON, such as true or '{\"amount\": 3}'. The run decides whether "
        "the answer counts."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """See `--help`."""
        parser.add_argument("run_id", metavar="RUN_ID", help="the run")
        parser.add_argument("--reason", required=True, help="the reason of the approval, as in flow.approval(reason)")
        parser.add_argument("--decision", required=True, help="the answer, as JSON")
        parser.add_argument("--by", help="the name of the user who answers (default: nobody)")
        parser.add_argument("--database", help="the database alias (default: where runs are written)")

    def handle(self, *args: Any, **options: Any) -> None:
        """Answer, or say why not."""
        if options["database"] not in {None, *connections}:
            raise CommandError(f"There is no database {options['database']!r} in DATABASES.")
        try:
            decision = json.loads(options["decision"])
        except ValueError as error:
            raise CommandError(f"The decision is no JSON: {error}") from None
        by = None
        if options["by"] is not None:
            users = get_user_model()
            by = users._default_manager.filter(**{users.USERNAME_FIELD: options["by"]}).first()
            if by is None:
                raise CommandError(f"There is no user {options['by']!r}.")
        try:
            WorkflowService(using=options["database"]).approve_step(
                options["run_id"], options["reason"], decision, by=by
            )
        except PikkuError as error:
            raise CommandError(str(error)) from None
        self.stdout.write(f"Answered; run {options['run_id']} goes on if the answer counts.")
