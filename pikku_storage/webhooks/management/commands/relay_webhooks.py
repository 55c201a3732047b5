"""`manage.py relay_webhooks`: the relay of webhooks for projects without Celery beat."""

from __future__ import annotations

import signal
import threading
from argparse import ArgumentParser
from types import FrameType
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import Error as DatabaseError
from django.db import connections

from pikku_storage.commands import add_database, check_database
from pikku_storage.conf import settings
from pikku_storage.durations import to_milliseconds
from pikku_storage.webhooks.service import WebhookService


class Command(BaseCommand):
    """Looks for what is due, again and again. Any number of these may run at once."""

    help = (
        "Send the messages of webhooks that are due again; without a broker (DISPATCHER is None) attempt them. Runs "
        "until it is stopped (Ctrl-C or SIGTERM). An alternative to an entry of Celery beat."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """See `--help`."""
        parser.add_argument("--once", action="store_true", help="one round, then stop")
        parser.add_argument("--interval", help="time between rounds, such as 500ms or 5s (default: RELAY_INTERVAL)")
        add_database(parser, default="where webhooks are kept")

    def handle(self, *args: Any, **options: Any) -> None:
        """Run rounds until told to stop."""
        try:
            interval = to_milliseconds(options["interval"]) if options["interval"] else settings.RELAY_INTERVAL
        except ValueError as error:
            raise CommandError(str(error)) from None
        check_database(options)
        service = WebhookService(options["database"], worker="relay")
        if options["once"]:
            self.stdout.write(f"{service.relay()} webhooks announced")
            return
        stop = threading.Event()

        def ask_to_stop(signum: int, frame: FrameType | None) -> None:
            stop.set()

        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, ask_to_stop)
        self.stdout.write(f"Looking every {interval} ms. Stop with Ctrl-C.")
        while not stop.is_set():
            self._round(service)
            stop.wait(interval / 1000)

    def _round(self, service: WebhookService) -> None:
        try:
            announced = service.relay()
        except DatabaseError as error:
            # The database may be restarting; the next round has a new connection.
            self.stderr.write(f"This round failed: {error}")
            connections.close_all()
            return
        if announced:
            self.stdout.write(f"{announced} webhooks announced")
