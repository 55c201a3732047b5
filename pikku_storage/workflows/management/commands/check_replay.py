"""`manage.py check_replay`."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from pikku_storage.workflows.engine.checking import check_replay
from pikku_storage.workflows.histories import History, read_histories
from pikku_storage.workflows.management.sampling import add_sample_arguments, sampled_ids


class Command(BaseCommand):
    """Says where today's code would do otherwise than runs recorded. Ends with 1 if it does."""

    help = (
        "Run today's workflows over what runs recorded, and report for each run the first step where they part. "
        "No step function is called and nothing is written."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """See `--help`."""
        add_sample_arguments(parser)
        parser.add_argument("--file", type=Path, help="histories from export_histories, instead of the database's runs")
        parser.add_argument("--json", action="store_true", help="one JSON object a line for each divergence")

    def handle(self, *args: Any, **options: Any) -> None:
        """Check."""
        checked = diverged = 0
        for history in _from_file(options["file"]) if options["file"] else _from_database(options):
            checked += 1
            divergence = check_replay(history)
            if divergence is None:
                continue
            diverged += 1
            self.stdout.write(json.dumps(asdict(divergence)) if options["json"] else str(divergence))
        if not options["json"]:
            self.stdout.write(f"{checked} runs checked, {diverged} diverge")
        if diverged:
            sys.exit(1)


def _from_database(options: dict[str, Any]) -> Iterator[History]:
    return read_histories(sampled_ids(options), options["database"])


def _from_file(path: Path) -> Iterator[History]:
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, start=1):
                try:
                    yield History.from_json(json.loads(line))
                except ValueError as error:
                    raise CommandError(f"{path}, line {number}: {error}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{path}: {error}") from None
