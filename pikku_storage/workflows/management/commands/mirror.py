"""`manage.py mirror`: is the mirror like its source, and if not, make it so."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError

from pikku_storage.durations import to_milliseconds
from pikku_storage.workflows.catch_up import Pair
from pikku_storage.workflows.mirror import WorkflowMirror


class Command(BaseCommand):
    """Compares, and exits with code 1 if something differs; with `--catch-up`, brings over what does."""

    help = (
        "Compare the mirror with the database that it mirrors: all runs, or the given ones, with their steps, attempts "
        "and versions. With --catch-up, bring over what the mirror missed, and remove what is gone. Safe beside "
        "workers, and as often as you like. On a database that workers are writing to, a row may be on its way: "
        "compare again before you believe a difference."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """See `--help`."""
        parser.add_argument("run_ids", nargs="*", metavar="RUN_ID", help="these runs only")
        parser.add_argument("--catch-up", action="store_true", help="make the mirror like its source")
        parser.add_argument(
            "--since", help="only what may have changed since then: an ISO time, or how long ago, such as 2h"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Print how much differs, or how much was brought over."""
        try:
            pair = WorkflowMirror().pair
        except ImproperlyConfigured as error:
            raise CommandError(str(error)) from None
        since = _since(options["since"], pair)
        run_ids = options["run_ids"]
        if options["catch_up"]:
            written = pair.copy_runs(run_ids) if run_ids else pair.copy(since)
            self.stdout.write(f"{written} rows brought over")
            return
        different: Counter[str] = Counter()
        for gap in pair.compare_runs(run_ids) if run_ids else pair.compare(since):
            different[gap.model._meta.db_table] += len(gap)
        for table, rows in sorted(different.items()):
            self.stdout.write(f"{table}: {rows} rows differ")
        if different.total():
            sys.exit(1)


def _since(text: str | None, pair: Pair) -> datetime | None:
    if text is None:
        return None
    try:
        return pair.source.now() - timedelta(milliseconds=to_milliseconds(text))
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise CommandError(f"--since {text}: neither an ISO time nor a duration such as 2h") from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
