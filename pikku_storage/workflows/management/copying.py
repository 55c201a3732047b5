"""What the commands that make a run from another one have in common."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from pikku_storage.commands import add_database, check_database
from pikku_storage.exceptions import PikkuError
from pikku_storage.workflows.handle import WorkflowRunHandle
from pikku_storage.workflows.service import WorkflowService


class CopyingCommand(BaseCommand):
    """Makes a new run from an old one, and prints its id."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        """See `--help`."""
        parser.add_argument("run_id", metavar="RUN", help="the id of a run")
        parser.add_argument("--input", type=_json_object, help="a JSON object that replaces the run's input")
        parser.add_argument("--reason", help="why, kept with the new run")
        parser.add_argument("--by", help="who asks for it, kept with the new run")
        add_database(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        """Do it."""
        check_database(options)
        try:
            handle = self.make(WorkflowService(using=options["database"]), options)
        except PikkuError as error:
            raise CommandError(str(error)) from None
        if handle is not None:
            self.stdout.write(handle.id)

    def make(self, service: WorkflowService, options: dict[str, Any]) -> WorkflowRunHandle | None:
        """The new run, or `None` if there was only something to be said."""
        raise NotImplementedError


def _json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise CommandError(f"--input is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise CommandError('--input is a JSON object, such as \'{"sku": "tea"}\'.')
    return value
