"""`manage.py list_schedules`: what will be started when."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from datetime import datetime
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import connections

from pikku_storage.workflows.records import Schedule
from pikku_storage.workflows.schedules.fires import local
from pikku_storage.workflows.schedules.service import ScheduleService, next_fires_of

FIRES = 5


class Command(BaseCommand):
    """Reads the schedules, after bringing those that the code declares up to date."""

    help = (
        "List the schedules with their next five fires, each in the schedule's own time zone. What the code declares "
        "is brought up to date first."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """See `--help`."""
        parser.add_argument("--json", action="store_true", help="one JSON object a line, with times in UTC")
        parser.add_argument("--database", help="the database alias (default: where runs are written)")

    def handle(self, *args: Any, **options: Any) -> None:
        """Print each schedule."""
        if options["database"] not in {None, *connections}:
            raise CommandError(f"There is no database {options['database']!r} in DATABASES.")
        service = ScheduleService(options["database"])
        service.synchronise()
        schedules = service.list()
        for schedule in schedules:
            self.stdout.write(_as_json(schedule) if options["json"] else _as_text(schedule))
        if not schedules and not options["json"]:
            self.stdout.write("There are no schedules.")


def _as_text(schedule: Schedule) -> str:
    state = "" if schedule.is_active else f" [{schedule.state}]"
    policies = f"missed: {schedule.catch_up}, overlap: {schedule.overlap}, made by {schedule.source}"
    when = f"{schedule.cron!r} in {schedule.timezone}"
    lines = [f"{schedule.name}{state}: {schedule.workflow} at {when} ({policies})"]
    if schedule.last_fire_at is not None:
        lines.append(f"  last  {_shown(schedule.last_fire_at, schedule)}, run {schedule.last_run_id}")
    lines += [f"  next  {_shown(fire, schedule)}" for fire in next_fires_of(schedule, FIRES)]
    return "\n".join(lines)


def _shown(moment: datetime, schedule: Schedule) -> str:
    return f"{local(moment, schedule.timezone):%a %Y-%m-%d %H:%M %Z}"


def _as_json(schedule: Schedule) -> str:
    names = ("name", "state", "workflow", "cron", "timezone", "catch_up", "overlap", "source", "owner_id", "input")
    last = schedule.last_fire_at
    return json.dumps(
        {
            **{name: getattr(schedule, name) for name in names},
            "last_fire_at": None if last is None else last.isoformat(),
            "last_run_id": schedule.last_run_id,
            "next_fires": [fire.isoformat() for fire in next_fires_of(schedule, FIRES)],
        }
    )
