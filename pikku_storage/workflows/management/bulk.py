"""What the commands that change many runs have in common."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from datetime import datetime
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone
from django.utils.dateparse import parse_date, parse_datetime

from pikku_storage.commands import add_database, check_database
from pikku_storage.exceptions import WorkflowInputError
from pikku_storage.workflows.bulk import BulkReport, RunFilter
from pikku_storage.workflows.service import WorkflowService
from pikku_storage.workflows.statuses import RunStatus


class BulkCommand(BaseCommand):
    """Does one thing to the runs that its arguments say. Ends with 1 if some failed."""

    done = "changed"
    statuses: frozenset[RunStatus]
    """Of the runs with these, those that the arguments say are changed."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        """See `--help`."""
        parser.add_argument("run_ids", nargs="*", metavar="RUN", help="ids of runs")
        parser.add_argument("--workflow", help="only runs of this workflow")
        parser.add_argument("--status", action="append", choices=RunStatus.values, help="only these; may be repeated")
        parser.add_argument("--owner", help="only runs of this owner's id")
        parser.add_argument("--started-after", help="a date or a time such as 2026-03-01T12:00:00+01:00, inclusive")
        parser.add_argument("--started-before", help="likewise, exclusive")
        parser.add_argument("--limit", type=int, help="at most so many, the oldest first")
        parser.add_argument("--by", help="who asks for it, kept with the runs")
        parser.add_argument("--reason", help="why, kept with the runs")
        parser.add_argument("--dry-run", action="store_true", help="say which runs it would be, and change nothing")
        add_database(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        """Do it."""
        check_database(options)
        if options["limit"] is not None and options["limit"] < 1:
            raise CommandError("--limit must be at least 1.")
        try:
            where = RunFilter(
                run_ids=options["run_ids"] or None,
                workflow=options["workflow"],
                statuses=options["status"],
                owner_id=options["owner"],
                started_after=_moment("--started-after", options["started_after"]),
                started_before=_moment("--started-before", options["started_before"]),
            )
        except WorkflowInputError as error:
            raise CommandError(f"{error}.") from None
        service = WorkflowService(using=options["database"])
        if options["dry_run"]:
            self._show(service, where, options["limit"])
            return
        report = self.change(service, where, options)
        self.stdout.write(f"{len(report.done)} runs {self.done}, {len(report.skipped)} left as they are")
        for run_id, reason in report.failed.items():
            self.stderr.write(f"{run_id}: {reason}")
        if report.failed:
            sys.exit(1)

    def _show(self, service: WorkflowService, where: RunFilter, limit: int | None) -> None:
        found = service.find_runs(where, statuses=self.statuses, limit=limit)
        for run_id in found:
            self.stdout.write(run_id)
        self.stdout.write(f"{len(found)} runs would be {self.done}")

    def change(self, service: WorkflowService, where: RunFilter, options: dict[str, Any]) -> BulkReport:
        """What the command does."""
        raise NotImplementedError


def _moment(option: str, text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        moment = parse_datetime(text)
        if moment is None and (day := parse_date(text)) is not None:
            moment = datetime(day.year, day.month, day.day)  # noqa: DTZ001 - made aware below
    except ValueError as error:
        raise CommandError(f"{option}: {error}.") from None
    if moment is None:
        raise CommandError(f"{option}: {text!r} is neither a date nor a time.")
    return timezone.make_aware(moment) if timezone.is_naive(moment) else moment
