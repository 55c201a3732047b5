"""What the management commands of all apps have in common."""

from __future__ import annotations

import signal
import threading
from argparse import ArgumentParser
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import Error as DatabaseError
from django.db import connections

from pikku_storage.conf import settings
from pikku_storage.durations import to_milliseconds


def add_database(parser: ArgumentParser, default: str = "where runs are written") -> None:
    """The option `--database`; `default` says what is meant without it."""
    parser.add_argument("--database", help=f"the database alias (default: {default})")


def check_database(options: Mapping[str, Any], *, returncode: int = 1) -> None:
    """Raise `CommandError` for an alias that is none."""
    if options["database"] not in {None, *connections}:
        raise CommandError(f"There is no database {options['database']!r} in DATABASES.", returncode=returncode)


class RelayCommand(BaseCommand):
    """Looks for what is due, again and again. Any number of these may run at once."""

    database_default = "where runs are written"
    """What is meant without `--database`."""
    said: str
    """What is said of a round that found so many: `"{} runs driven on"`."""

    def relay_of(self, database: str | None) -> Callable[[], int]:
        """One round on that database: answers how many it found."""
        raise NotImplementedError

    def add_arguments(self, parser: ArgumentParser) -> None:
        """See `--help`."""
        parser.add_argument("--once", action="store_true", help="one round, then stop")
        parser.add_argument("--interval", help="time between rounds, such as 500ms or 5s (default: RELAY_INTERVAL)")
        add_database(parser, default=self.database_default)

    def handle(self, *args: Any, **options: Any) -> None:
        """Run rounds until told to stop."""
        try:
            interval = to_milliseconds(options["interval"]) if options["interval"] else settings.RELAY_INTERVAL
        except ValueError as error:
            raise CommandError(str(error)) from None
        check_database(options)
        relay = self.relay_of(options["database"])
        if options["once"]:
            self.stdout.write(self.said.format(relay()))
            return
        stop = threading.Event()

        def ask_to_stop(signum: int, frame: FrameType | None) -> None:
            stop.set()

        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, ask_to_stop)
        self.stdout.write(f"Looking every {interval} ms. Stop with Ctrl-C.")
        while not stop.is_set():
            self._round(relay)
            stop.wait(interval / 1000)

    def _round(self, relay: Callable[[], int]) -> None:
        try:
            found = relay()
        except DatabaseError as error:
            # The database may be restarting; the next round has a new connection.
            self.stderr.write(f"This round failed: {error}")
            connections.close_all()
            return
        if found:
            self.stdout.write(self.said.format(found))
