"""`manage.py replay_webhook`: send webhooks once more."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from pikku_storage.commands import add_database, check_database
from pikku_storage.exceptions import WebhookInputError, WebhookNotFoundError
from pikku_storage.webhooks.service import WebhookService


class Command(BaseCommand):
    """Goes on after an id that there is not, and then ends with an error."""

    help = "Send webhooks that were delivered or have failed once more."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """See `--help`."""
        parser.add_argument("deliveries", nargs="+", metavar="DELIVERY", help="the id of a delivery")
        parser.add_argument("--by", metavar="USER", help="whose name the audit trail gets")
        add_database(parser, default="where webhooks are kept")

    def handle(self, *args: Any, **options: Any) -> None:
        """Replay them."""
        check_database(options)
        service = WebhookService(options["database"])
        missing = []
        for delivery_id in options["deliveries"]:
            try:
                delivery = service.replay(delivery_id, by=options["by"])
            except (WebhookNotFoundError, WebhookInputError) as error:
                missing.append(str(error))
            else:
                self.stdout.write(f"{delivery_id}: {delivery.status} after {delivery.attempts} attempts")
        if missing:
            raise CommandError("; ".join(missing))
