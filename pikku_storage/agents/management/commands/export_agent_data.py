"""`manage.py export_agent_data`: hand out what is kept of somebody."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import Error as DatabaseError

from pikku_storage.agents.service import AgentStorageService
from pikku_storage.commands import add_database, check_database
from pikku_storage.exceptions import PayloadError


class Command(BaseCommand):
    """Writes one JSON document, thread by thread, so that it takes no more memory than the largest thread."""

    help = (
        "Write all that agents keep of a user or an organisation as JSON: threads with their messages, tool calls, "
        "runs, approvals and scores, and working memory."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """See `--help`."""
        parser.add_argument("owner", metavar="OWNER", help="the id of the user or the organisation")
        parser.add_argument("--output", type=Path, metavar="FILE", help="where to (default: standard output)")
        add_database(parser, default="where agents are kept")

    def handle(self, *args: Any, **options: Any) -> None:
        """Write it."""
        check_database(options)
        try:
            pieces = AgentStorageService(options["database"]).export_user(options["owner"])
            if options["output"] is None:
                for piece in pieces:
                    self.stdout.write(piece, ending="")
                return
            with options["output"].open("w", encoding="utf-8") as file:
                file.writelines(pieces)
        except (PayloadError, OSError) as error:
            raise CommandError(str(error)) from None
        except DatabaseError as error:
            raise CommandError(f"The database failed, and what was written is not whole: {error}") from error
        self.stdout.write(f"Written to {options['output']}")
