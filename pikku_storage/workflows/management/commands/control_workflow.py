"""`manage.py control_workflow`: pause a workflow, let it go on, change its limits."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import connections

from pikku_storage.exceptions import WorkflowInputError, WorkflowNotFoundError
from pikku_storage.workflows.engine.rules import rules_of
from pikku_storage.workflows.service import WorkflowService

_LIMITS = ("concurrency", "concurrency_per_key", "rate_limit")
_CODE = "code"


class Command(BaseCommand):
    """Without an option it only shows what holds."""

    help = (
        "Pause a workflow, let it go on, or change its limits: for all processes, without a restart. Shows what holds "
        "afterwards."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """See `--help`."""
        parser.add_argument("workflow", metavar="WORKFLOW", help="the name of the workflow")
        which = parser.add_mutually_exclusive_group()
        which.add_argument("--pause", action="store_true", help="let no run of it go on")
        which.add_argument("--unpause", action="store_true", help="let its runs go on")
        parser.add_argument("--reason", help="why it is paused, for those who look")
        parser.add_argument("--concurrency", help="the most runs inside at once; 'code' for what the code says")
        parser.add_argument("--concurrency-per-key", help="the most runs of one key inside at once, or 'code'")
        parser.add_argument("--rate-limit", help="the most runs that begin in a period, such as 100/1m, or 'code'")
        parser.add_argument("--by", help="who does it, as text")
        parser.add_argument("--database", help="the database alias (default: where runs are written)")

    def handle(self, *args: Any, **options: Any) -> None:
        """Change what is asked for, and show what holds."""
        if options["database"] not in {None, *connections}:
            raise CommandError(f"There is no database {options['database']!r} in DATABASES.")
        if options["reason"] and not options["pause"]:
            raise CommandError("--reason belongs to --pause.")
        service, name, by = WorkflowService(using=options["database"]), options["workflow"], options["by"]
        limits: dict[str, Any] = {
            limit: _limit(limit, options[limit]) for limit in _LIMITS if options[limit] is not None
        }
        try:
            if limits:
                service.set_limits(name, by=by, **limits)
            if options["pause"] and not service.pause_workflow(name, reason=options["reason"], by=by):
                self.stdout.write(f"{name} was paused already.")
            if options["unpause"] and not service.unpause_workflow(name, by=by):
                self.stdout.write(f"{name} was not paused.")
        except (WorkflowInputError, WorkflowNotFoundError) as error:
            raise CommandError(str(error)) from None
        self._show(service, name)

    def _show(self, service: WorkflowService, name: str) -> None:
        rules = rules_of(service._runtime, name, fresh=True)
        if rules.paused is not None:
            by = f" by {rules.paused.paused_by}" if rules.paused.paused_by else ""
            why = f": {rules.paused.paused_reason}" if rules.paused.paused_reason else ""
            self.stdout.write(f"{name} is paused{by}{why}")
        rate = None if rules.rate is None else rules.rate.text
        for title, value in (
            ("concurrency", rules.concurrency),
            ("concurrency per key", rules.concurrency_per_key),
            ("rate limit", rate),
        ):
            self.stdout.write(f"{title}: {'none' if value is None else value}")


def _limit(name: str, text: str) -> int | str | None:
    if text == _CODE:
        return None
    if name == "rate_limit":
        return text
    try:
        return int(text)
    except ValueError:
        raise CommandError(f"--{name.replace('_', '-')} takes a number or 'code', not {text!r}.") from None
