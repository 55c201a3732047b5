"""`manage.py copy_storage`: move everything of the package to another database."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import Error as DatabaseError
from django.db import connections

from pikku_storage.copying import Difference, StorageCopy, TableCopy, Verified
from pikku_storage.db.twins import models_of_the_package
from pikku_storage.secrets.progress import ProgressBar

CANNOT_GO_ON = 2


class Command(BaseCommand):
    """Exit code 0: both are equal (or, with a dry run, could be). 1: they differ. 2: it could not begin, or a database
    broke off."""

    help = (
        "Copy every table of the package from one database of DATABASES to another one, which must be migrated, and "
        "compare them row by row at the end. Stop the workers first. It may be stopped at any moment and run again."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """See `--help`."""
        parser.add_argument("--from", required=True, dest="source", metavar="ALIAS", help="where everything is")
        parser.add_argument("--to", required=True, dest="target", metavar="ALIAS", help="where it shall be")
        parser.add_argument("--overwrite", action="store_true", help="also change rows of the target that differ")
        what = parser.add_mutually_exclusive_group()
        what.add_argument("--dry-run", action="store_true", help="count what would be written, and write nothing")
        what.add_argument("--verify", action="store_true", help="only compare")
        parser.add_argument("--json", action="store_true", help="one JSON object in place of the text")

    def handle(self, *args: Any, **options: Any) -> None:
        """Do it, table by table; the exit code says how it went."""
        self._is_json, self._is_overwriting = options["json"], options["overwrite"]
        copy = _copy_of(options)
        try:
            if obstacles := copy.obstacles():
                raise CommandError("\n".join(obstacles) + "\nRun migrate there first.", returncode=CANNOT_GO_ON)
            copies = [] if options["verify"] else self._copy(copy, dry_run=options["dry_run"])
            verified = [] if options["dry_run"] else [self._verify(copy, model) for model in models_of_the_package()]
        except DatabaseError as error:
            message = f"{error}\nWhat was copied is there; run it again to go on."
            raise CommandError(message, returncode=CANNOT_GO_ON) from error
        self._end(copies, verified)

    def _copy(self, copy: StorageCopy, *, dry_run: bool) -> list[TableCopy]:
        tables = models_of_the_package()
        if not self._is_overwriting:
            found = {model._meta.label: copy.compare_target(model) for model in tables}
            if unequal := [text for label, each in found.items() for text in _described(label, each)]:
                message = f"{copy.target!r} is not empty, and not like {copy.source!r}:\n" + "\n".join(unequal)
                raise CommandError(f"{message}\nNothing was written. See --overwrite.", returncode=CANNOT_GO_ON)
        if not dry_run:
            copy.settle()
        reports = []
        for model in tables:
            with self._bar(model._meta.db_table, copy.count(model)) as bar:
                report = StorageCopy(copy.source, copy.target, bar.advance).copy(model, dry_run=dry_run)
            self._say(report, is_dry_run=dry_run)
            reports.append(report)
        return reports

    def _verify(self, copy: StorageCopy, model: Any) -> Verified:
        with self._bar(f"{model._meta.db_table} compared", copy.count(model)) as bar:
            return StorageCopy(copy.source, copy.target, bar.advance).verify(model)

    # -- what it says --------------------------------------------------------------------------------------------------

    def _bar(self, label: str, total: int) -> ProgressBar:
        is_shown = not self._is_json and sys.stderr.isatty()
        return ProgressBar(label, total, sys.stderr if is_shown else None)

    def _say(self, report: TableCopy, *, is_dry_run: bool) -> None:
        if self._is_json:
            return
        would = "would be written" if is_dry_run else "written"
        changed = f", {report.overwritten:,} overwritten" if report.overwritten else ""
        self.stdout.write(
            f"{report.table}: {report.read:,} read, {report.written:,} {would}{changed}, {report.equal:,} equal already"
        )
        for reason, rows in report.refused.items():
            self.stderr.write(f"  {report.table}: {rows:,} rows are not there: {reason}")

    def _end(self, copies: Sequence[TableCopy], verified: Sequence[Verified]) -> None:
        # With --overwrite, what only the target has was said to be of no matter.
        failed = [
            each
            for each in verified
            if not each.is_equal
            and not (self._is_overwriting and not each.difference.missing and not each.difference.different)
        ]
        if self._is_json:
            said = {"ok": not failed, "copied": [asdict(each) for each in copies]}
            self.stdout.write(json.dumps({**said, "verified": [asdict(each) for each in verified]}))
        else:
            self._say_verified(verified, is_well=not failed)
        if failed:
            sys.exit(1)

    def _say_verified(self, verified: Sequence[Verified], *, is_well: bool) -> None:
        for each in verified:
            if each.source_rows or each.target_rows:
                self.stdout.write(f"{each.table}: {each.source_rows:,} rows, checksum {each.source_checksum[:16]}")
            for text in _described(each.table, each.difference):
                self.stderr.write(text)
        rows = sum(each.source_rows for each in verified)
        if not is_well:
            self.stderr.write("They are not equal.")
        elif verified:
            self.stdout.write(self.style.SUCCESS(f"Both have the same {rows:,} rows."))


def _copy_of(options: dict[str, Any]) -> StorageCopy:
    source, target = options["source"], options["target"]
    for alias in (source, target):
        if alias not in connections:
            raise CommandError(f"There is no database {alias!r} in DATABASES.", returncode=CANNOT_GO_ON)
    if source == target:
        raise CommandError("Both are the same database.", returncode=CANNOT_GO_ON)
    return StorageCopy(source, target)


def _described(table: str, difference: Difference) -> list[str]:
    said = {"missing": "not in the target", "different": "different", "extra": "only in the target"}
    return [
        f"  {table}: {getattr(difference, kind):,} rows are {what}, such as {', '.join(difference.examples[kind])}"
        for kind, what in said.items()
        if getattr(difference, kind)
    ]
