"""`manage.py backfill_schedule`: the runs of fires that are over."""

from __future__ import annotations

from argparse import ArgumentParser
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from django.core.management.base import BaseCommand, CommandError
from django.db import connections

from pikku_storage.exceptions import WorkflowInputError
from pikku_storage.workflows.schedules.fires import local
from pikku_storage.workflows.schedules.service import ScheduleService


class Command(BaseCommand):
    """Starts what has not run yet. It may be done twice: a fire that has a run gets no other."""

    help = (
        "Start the runs of all fires of a schedule between two times that have no run yet. Times are written as "
        "2026-03-01 or 2026-03-01T03:00, in the schedule's time zone, or with an offset of their own."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """See `--help`."""
        parser.add_argument("name", metavar="NAME", help="the schedule")
        parser.add_argument("--from", dest="start", required=True, help="the first time that counts")
        parser.add_argument("--to", dest="end", required=True, help="the last time that counts")
        parser.add_argument("--dry-run", action="store_true", help="only say what would be started")
        parser.add_argument("--database", help="the database alias (default: where runs are written)")

    def handle(self, *args: Any, **options: Any) -> None:
        """Print each fire and its run."""
        if options["database"] not in {None, *connections}:
            raise CommandError(f"There is no database {options['database']!r} in DATABASES.")
        service = ScheduleService(options["database"])
        service.synchronise()
        name = options["name"]
        schedule = service.get(name)
        if schedule is None:
            raise CommandError(f"There is no schedule {name!r}; `manage.py list_schedules` shows those there are.")
        start, end = (_moment(options[key], schedule.timezone) for key in ("start", "end"))
        try:
            fires = service.backfill(name, start=start, end=end, dry_run=options["dry_run"])
        except WorkflowInputError as error:
            raise CommandError(str(error)) from None
        started = "would start" if options["dry_run"] else "started"
        for fire in fires:
            said = started if fire.created else "has run already:"
            self.stdout.write(f"{local(fire.fire_at, schedule.timezone):%Y-%m-%d %H:%M %Z}  {said} {fire.run_id}")
        self.stdout.write(f"{sum(fire.created for fire in fires)} of {len(fires)} fires {started}")


def _moment(text: str, timezone: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise CommandError(f"{text!r} is no time; write it as 2026-03-01 or 2026-03-01T03:00") from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=ZoneInfo(timezone))
