"""`manage.py prune_threads`: delete threads that nobody went on with for long."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import Error as DatabaseError

from pikku_storage.agents.service import AgentStorageService
from pikku_storage.commands import add_database, check_database


class Command(BaseCommand):
    """May be stopped at any moment, and any number may run at once."""

    help = "Delete threads that changed last longer ago than a given time, with all that belongs to them."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """See `--help`."""
        parser.add_argument(
            "--older-than", required=True, metavar="DURATION", help="since their last change, such as 90d"
        )
        parser.add_argument("--agent", metavar="NAME", help="only threads in which this agent ran")
        parser.add_argument("--dry-run", action="store_true", help="count them, and delete nothing")
        add_database(parser, default="where agents are kept")

    def handle(self, *args: Any, **options: Any) -> None:
        """Delete them."""
        check_database(options)
        try:
            pruned = AgentStorageService(options["database"]).prune_threads(
                options["older_than"], agent_name=options["agent"], dry_run=options["dry_run"]
            )
        except ValueError as error:
            raise CommandError(str(error)) from None
        except DatabaseError as error:
            raise CommandError(f"The database failed: {error}. Call it again to go on.") from error
        verb = "would be deleted" if options["dry_run"] else "deleted"
        self.stdout.write(f"{pruned} threads {verb}")
