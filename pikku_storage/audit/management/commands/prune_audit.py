"""`manage.py prune_audit`: delete old events of the audit trail."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import Error as DatabaseError

from pikku_storage.audit.service import AuditService
from pikku_storage.commands import add_database, check_database


class Command(BaseCommand):
    """May be stopped at any moment, and any number may run at once."""

    help = "Delete the events of the audit trail that are older than a given time."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """See `--help`."""
        parser.add_argument("--older-than", required=True, metavar="DURATION", help="their age, such as 400d")
        parser.add_argument("--dry-run", action="store_true", help="count them, and delete nothing")
        add_database(parser, default="where the trail is kept")

    def handle(self, *args: Any, **options: Any) -> None:
        """Delete them."""
        check_database(options)
        try:
            pruned = AuditService(options["database"]).prune(options["older_than"], dry_run=options["dry_run"])
        except ValueError as error:
            raise CommandError(str(error)) from None
        except DatabaseError as error:
            raise CommandError(f"The database failed: {error}. Call it again to go on.") from error
        verb = "would be deleted" if options["dry_run"] else "deleted"
        self.stdout.write(f"{pruned} events {verb}")
