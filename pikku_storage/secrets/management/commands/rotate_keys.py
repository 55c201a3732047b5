"""`manage.py rotate_keys`: seal everything under the current key, or say how far that is."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import connections

from pikku_storage.exceptions import KeyNotAvailableError
from pikku_storage.secrets.progress import ProgressBar
from pikku_storage.secrets.retirement import retire
from pikku_storage.secrets.rotation import Failure, SealedTable, rotate, verify
from pikku_storage.secrets.tables import sealed_tables

CANNOT_BEGIN = 2


@dataclass(slots=True)
class Report:
    """What became of one table, or what was found in it."""

    table: str
    key_version: int
    read: int = 0
    rotated: int = 0
    left: int = 0
    versions: dict[int, int] = field(default_factory=dict)
    unbound: int = 0
    failures: list[Failure] = field(default_factory=list)


class Command(BaseCommand):
    """Exit code 0: all is well. 1: something does not open, is left, or is still needed. 2: it could not begin."""

    help = (
        "Seal secrets, credentials and encrypted fields of older key versions under the current one. Safe while the "
        "application runs, from any number of processes, and after any interruption: run it again."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """See `--help`."""
        what = parser.add_mutually_exclusive_group()
        what.add_argument("--dry-run", action="store_true", help="open what would be rotated, and write nothing")
        what.add_argument("--verify", action="store_true", help="open every value, and count them by key version")
        what.add_argument(
            "--retire", type=int, metavar="N", help="take version N out of use, unless something needs it"
        )
        parser.add_argument("--upgrade-format", action="store_true", help="also bind what is not bound to its place")
        parser.add_argument("--database", help="the database alias (default: where the routers put each table)")
        parser.add_argument("--json", action="store_true", help="one JSON object in place of the text")

    def handle(self, *args: Any, **options: Any) -> None:
        """Do it, table by table; the exit code says how it went."""
        if options["database"] not in {None, *connections}:
            raise CommandError(f"There is no database {options['database']!r} in DATABASES.", returncode=CANNOT_BEGIN)
        self._is_json = options["json"]
        tables = sealed_tables(options["database"])
        try:
            if options["retire"] is not None:
                is_well = self._retire(options["retire"], tables)
            elif options["verify"]:
                is_well = self._verify(tables)
            else:
                is_well = self._rotate(tables, upgrade=options["upgrade_format"], dry_run=options["dry_run"])
        except KeyNotAvailableError as error:
            raise CommandError(str(error), returncode=CANNOT_BEGIN) from error
        if not is_well:
            sys.exit(1)

    # -- what it does --------------------------------------------------------------------------------------------------

    def _rotate(self, tables: list[SealedTable], *, upgrade: bool, dry_run: bool) -> bool:
        reports = []
        for table in tables:
            report = Report(table.label, table.keyring.current_version)
            with self._bar(table, table.count_outdated(report.key_version, upgrade=upgrade)) as bar:
                for progress in rotate(table, upgrade=upgrade, dry_run=dry_run):
                    report.read += progress.read
                    report.rotated += progress.rotated
                    report.failures += progress.failures
                    bar.advance(progress.rotated + len(progress.failures))
            report.left = table.count_outdated(report.key_version, upgrade=upgrade) - dry_run * report.rotated
            would = "would be sealed" if dry_run else "sealed"
            self._say(f"{table.label}: {report.rotated:,} {would} under version {report.key_version}", report)
            reports.append(report)
        is_well = not any(report.left or report.failures for report in reports)
        left = sum(report.left for report in reports)
        self._end(
            "dry-run" if dry_run else "rotate",
            reports,
            is_well=is_well,
            well="Nothing would be left." if dry_run else "Nothing is left.",
            failed=f"{left:,} are left as they were.",
        )
        return is_well

    def _verify(self, tables: list[SealedTable]) -> bool:
        reports = []
        for table in tables:
            report = Report(table.label, table.keyring.current_version)
            with self._bar(table, table.count()) as bar:
                for found in verify(table):
                    report.read += found.read
                    report.versions = dict(Counter(report.versions) + found.versions)
                    report.unbound += found.unbound
                    report.failures += found.failures
                    bar.advance(found.read)
            counts = ", ".join(f"version {version}: {count:,}" for version, count in sorted(report.versions.items()))
            unbound = f"; {report.unbound:,} not bound to their place" if report.unbound else ""
            self._say(f"{table.label}: {report.read:,} read ({counts or 'none'}){unbound}", report)
            reports.append(report)
        failed = sum(len(report.failures) for report in reports)
        self._end("verify", reports, is_well=not failed, well="Everything opens.", failed=f"{failed:,} do not open.")
        return not failed

    def _retire(self, version: int, tables: list[SealedTable]) -> bool:
        needed = retire(version, tables)
        if self._is_json:
            self.stdout.write(json.dumps({"action": "retire", "ok": not needed, "version": version, "needed": needed}))
        elif needed:
            counts = ", ".join(f"{table}: {count:,}" for table, count in needed.items())
            self.stderr.write(f"Version {version} is still needed ({counts}). Rotate first; it stays in use.")
        else:
            self.stdout.write(f"Version {version} is retired. Remove its passphrase from the settings.")
        return not needed

    # -- what it says --------------------------------------------------------------------------------------------------

    def _bar(self, table: SealedTable, total: int) -> ProgressBar:
        is_shown = not self._is_json and sys.stderr.isatty()
        return ProgressBar(table.label, total, sys.stderr if is_shown else None)

    def _say(self, text: str, report: Report) -> None:
        if not self._is_json:
            self.stdout.write(text)
            for failure in report.failures:
                self.stderr.write(f"  {failure}")

    def _end(self, action: str, reports: list[Report], *, is_well: bool, well: str, failed: str) -> None:
        if self._is_json:
            tables = [asdict(report) for report in reports]
            self.stdout.write(json.dumps({"action": action, "ok": is_well, "tables": tables}))
        elif is_well:
            self.stdout.write(self.style.SUCCESS(well))
        else:
            self.stderr.write(failed)
