"""`manage.py erase_agent_data`: delete what is kept of somebody."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import Error as DatabaseError

from pikku_storage.agents.service import AgentStorageService
from pikku_storage.commands import add_database, check_database
from pikku_storage.exceptions import PayloadError


class Command(BaseCommand):
    """May be stopped at any moment, and called again to go on."""

    help = (
        "Delete all that agents keep of a user or an organisation, on every database: threads with all that belongs to "
        "them, and working memory. What they decided in threads of others stays, without their id."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """See `--help`."""
        parser.add_argument("owner", metavar="OWNER", help="the id of the user or the organisation")
        parser.add_argument("--noinput", "--no-input", action="store_false", dest="interactive", help="do not ask")
        parser.add_argument("--by", metavar="USER", help="whose name the audit trail gets")
        add_database(parser, default="where agents are kept")

    def handle(self, *args: Any, **options: Any) -> None:
        """Ask, and delete."""
        check_database(options)
        owner = options["owner"]
        if options["interactive"] and input(f"Delete all that agents keep of {owner}? Type the id to go on: ") != owner:
            raise CommandError("Nothing was deleted.")
        try:
            erased = AgentStorageService(options["database"]).erase_user(owner, by=options["by"])
        except PayloadError as error:
            raise CommandError(str(error)) from None
        except DatabaseError as error:
            raise CommandError(f"The database failed: {error}. Call it again to go on.") from error
        self.stdout.write(f"{owner}: {erased.threads} threads and {erased.memories} working memories deleted")
