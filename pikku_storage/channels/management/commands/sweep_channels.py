"""`manage.py sweep_channels`: remove channels of servers that are gone."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import Error as DatabaseError

from pikku_storage.channels.service import ChannelStore, EventHubStore
from pikku_storage.commands import add_database, check_database


class Command(BaseCommand):
    """May be stopped at any moment, and any number may run at once."""

    help = "Remove the channels whose lease ran out, with their subscriptions, and old events."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """See `--help`."""
        add_database(parser, default="where channels are kept")

    def handle(self, *args: Any, **options: Any) -> None:
        """Remove them."""
        check_database(options)
        try:
            swept = ChannelStore(options["database"]).sweep()
            pruned = EventHubStore(options["database"]).prune_events()
        except DatabaseError as error:
            raise CommandError(f"The database failed: {error}. Call it again to go on.") from error
        self.stdout.write(f"{swept} channels and {pruned} old events removed")
