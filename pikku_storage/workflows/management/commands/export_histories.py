"""`manage.py export_histories`."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from pikku_storage.workflows.histories import read_histories
from pikku_storage.workflows.management.sampling import add_sample_arguments, sampled_ids


class Command(BaseCommand):
    """Writes what runs recorded into a file that `check_replay --file` reads."""

    help = (
        "Write what runs recorded, one JSON object a line, for check_replay --file. It holds their inputs and results."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """See `--help`."""
        add_sample_arguments(parser)
        parser.add_argument("--output", type=Path, help="the file to write (default: standard output)")

    def handle(self, *args: Any, **options: Any) -> None:
        """Write."""
        histories = read_histories(sampled_ids(options), options["database"])
        lines = (json.dumps(history.to_json(), ensure_ascii=False) for history in histories)
        if options["output"] is None:
            for line in lines:
                self.stdout.write(line)
            return
        try:
            with options["output"].open("w", encoding="utf-8") as file:
                count = sum(1 for line in lines if file.write(f"{line}\n"))
        except OSError as error:
            raise CommandError(f"{options['output']}: {error}") from None
        self.stdout.write(f"{count} histories written to {options['output']}")
