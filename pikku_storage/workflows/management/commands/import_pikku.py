"""`manage.py import_pikku`: bring over what the TypeScript packages wrote."""

from __future__ import annotations

import json
import os
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import Error as DatabaseError
from django.db import router

from pikku_storage.commands import add_database, check_database
from pikku_storage.db.twins import missing_tables
from pikku_storage.importing.importer import Importer, TableReport
from pikku_storage.importing.sources import Source, SourceError, open_source
from pikku_storage.importing.tables import PARTS, Table, tables_of
from pikku_storage.secrets.progress import ProgressBar
from pikku_storage.workflows.engine.imported import held_runs
from pikku_storage.workflows.service import WorkflowService

CANNOT_GO_ON = 2
VARIABLE = "PIKKU_SOURCE_URL"


class Command(BaseCommand):
    """Exit code 0: everything is here. 1: some rows were skipped. 2: it could not begin, or a database broke off."""

    help = (
        "Bring runs, agents, secrets and all the rest over from a database of the TypeScript packages. The source is "
        "never changed, and what is here already is left as it is; so it may be stopped at any moment and run again. "
        "Runs that were under way are held until somebody resumes them."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """See `--help`."""
        parser.add_argument(
            "source",
            nargs="?",
            default=os.environ.get(VARIABLE),
            metavar="SOURCE",
            help="sqlite:///file, postgres://… or mongodb://host/name (default: the environment's PIKKU_SOURCE_URL, "
            "which others on the machine do not see)",
        )
        parser.add_argument("--schema", help="where the tables are in PostgreSQL (default: its own search path)")
        parser.add_argument("--only", action="append", choices=PARTS, help="only this; may be repeated")
        parser.add_argument("--dry-run", action="store_true", help="read and check everything, and write nothing")
        parser.add_argument("--resume", action="store_true", help="afterwards resume the runs that are held")
        add_database(parser, "where the routers put each table")
        parser.add_argument("--json", action="store_true", help="one JSON object in place of the text")

    def handle(self, *args: Any, **options: Any) -> None:
        """Do it, table by table; the exit code says how it went."""
        check_database(options, returncode=CANNOT_GO_ON)
        if not options["source"]:
            raise CommandError(f"Say where from: SOURCE, or {VARIABLE}.", returncode=CANNOT_GO_ON)
        self._is_json = options["json"]
        try:
            with open_source(options["source"], schema=options["schema"]) as source:
                reports = self._bring(source, options)
        except (SourceError, DatabaseError) as error:
            message = f"{error}\nWhat was brought over is here; run it again to go on."
            raise CommandError(message, returncode=CANNOT_GO_ON) from error
        resumed = self._resume(options) if options["resume"] and not options["dry_run"] else 0
        self._end(reports, resumed, is_dry_run=options["dry_run"])
        if any(report.skipped for report in reports):
            sys.exit(1)

    def _bring(self, source: Source, options: dict[str, Any]) -> list[TableReport]:
        there = source.tables()
        tables = [table for table in tables_of(options["only"]) if table.name in there]
        if not tables:
            raise CommandError(f"This {source.kind} has no table of Pikku's.", returncode=CANNOT_GO_ON)
        _check_tables(tables, options["database"])
        return [self._bring_table(source, table, options) for table in tables]

    def _bring_table(self, source: Source, table: Table, options: dict[str, Any]) -> TableReport:
        is_shown = not self._is_json and sys.stderr.isatty()
        with ProgressBar(table.name, source.count(table.name), sys.stderr if is_shown else None) as bar:
            importer = Importer(
                source, options["database"], dry_run=options["dry_run"], skipped=self._skipped, advanced=bar.advance
            )
            report = importer.run(table)
        self._say(report, is_dry_run=options["dry_run"])
        return report

    def _resume(self, options: dict[str, Any]) -> int:
        service = WorkflowService(using=options["database"])
        return sum(service.resume_workflow(run_id, reason="import") for run_id in held_runs(options["database"]))

    # -- what it says --------------------------------------------------------------------------------------------------

    def _skipped(self, table: str, key: str, reason: str) -> None:
        self.stderr.write(f"  {table}: {key}: skipped, {reason}")

    def _say(self, report: TableReport, *, is_dry_run: bool) -> None:
        if self._is_json:
            return
        would = "would be written" if is_dry_run else "written"
        held = f" ({report.held:,} held)" if report.held else ""
        self.stdout.write(
            f"{report.table}: {report.read:,} read, {report.written:,} {would}{held}, {report.present:,} here already, "
            f"{report.skipped:,} skipped"
        )
        if not report.is_installed:
            self.stderr.write(f"  {report.table}: its app is not installed")
        for column, rows in sorted(report.left_out.items()):
            self.stderr.write(f"  {report.table}: {column} has no place here ({rows:,} rows)")

    def _end(self, reports: Sequence[TableReport], resumed: int, *, is_dry_run: bool) -> None:
        skipped = sum(report.skipped for report in reports)
        if self._is_json:
            tables = [asdict(report) for report in reports]
            said = {"ok": not skipped, "dry_run": is_dry_run, "resumed": resumed, "tables": tables}
            self.stdout.write(json.dumps(said))
            return
        if resumed:
            self.stdout.write(f"{resumed:,} runs resumed")
        if skipped:
            self.stderr.write(f"{skipped:,} rows are not here, for the reasons above.")
        else:
            self.stdout.write(self.style.SUCCESS("Nothing would be missing." if is_dry_run else "Everything is here."))


def _check_tables(tables: Sequence[Table], database: str | None) -> None:
    for table in tables:
        if table.model is None:
            continue
        using = database or router.db_for_write(table.model)
        if missing := missing_tables(using, [table.model]):
            message = f"The database {using!r} has no {missing[0]}. Run: manage.py migrate --database {using}"
            raise CommandError(message, returncode=CANNOT_GO_ON)
