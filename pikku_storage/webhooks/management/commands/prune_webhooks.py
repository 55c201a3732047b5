"""`manage.py prune_webhooks`: delete webhooks that ended long ago."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import Error as DatabaseError

from pikku_storage.commands import add_database, check_database
from pikku_storage.webhooks.service import WebhookService


class Command(BaseCommand):
    """May be stopped at any moment, and any number may run at once."""

    help = "Delete webhooks that were delivered or failed longer ago than a given time, with their attempts."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """See `--help`."""
        parser.add_argument("--older-than", required=True, metavar="DURATION", help="since their end, such as 30d")
        parser.add_argument("--dry-run", action="store_true", help="count them, and delete nothing")
        add_database(parser, default="where webhooks are kept")

    def handle(self, *args: Any, **options: Any) -> None:
        """Delete them."""
        check_database(options)
        try:
            pruned = WebhookService(options["database"]).prune(options["older_than"], dry_run=options["dry_run"])
        except ValueError as error:
            raise CommandError(str(error)) from None
        except DatabaseError as error:
            raise CommandError(f"The database failed: {error}. Call it again to go on.") from error
        verb = "would be deleted" if options["dry_run"] else "deleted"
        self.stdout.write(f"{pruned} webhooks {verb}")
