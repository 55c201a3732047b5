"""Reading the tables of a source, one after the other, and writing what is not there yet.

Rows are known by their keys, so it may be stopped at any moment and begun again: what is there is left as it is. A row
that cannot be kept is skipped, with the reason, and stops no other one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from django.db import models, router

from pikku_storage.db.bulk import insert_rows, present
from pikku_storage.db.querysets import EngineQuerySet
from pikku_storage.db.twins import rows_on
from pikku_storage.importing.sources import Row, Source
from pikku_storage.importing.tables import BY_NAME, Table, Values, fields_of
from pikku_storage.importing.values import BadValueError
from pikku_storage.workflows.errors import IMPORTED

BATCH_ROWS, BATCH_CHARACTERS = 200, 2_000_000
"""The most rows that are written at once, and about how much text they have."""
REASONS = 50
"""The most reasons that a report counts by themselves."""

Skipped: TypeAlias = Callable[[str, str, str], None]
"""Is told of a row that is skipped: table, key, reason."""


@dataclass(slots=True)
class TableReport:
    """What became of the rows of one table. `read` is the sum of `written` (with a dry run: would be), `present` and
    `skipped`; `held` of the written ones wait until somebody resumes or enables them."""

    table: str
    read: int = 0
    written: int = 0
    present: int = 0
    skipped: int = 0
    held: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    left_out: dict[str, int] = field(default_factory=dict)
    """By column, in how many rows it has a value that has no place here."""
    is_installed: bool = True


@dataclass(frozen=True, slots=True)
class Importer:
    """Brings a source over. `using` is the alias of the database, by default the one that the routers name; with
    `dry_run` everything is read and checked, and nothing is written."""

    source: Source
    using: str | None = None
    dry_run: bool = False
    skipped: Skipped = lambda table, key, reason: None
    advanced: Callable[[int], None] = lambda rows: None
    """Is told how many more rows have been read."""

    def run(self, table: Table) -> TableReport:
        """Bring one table over."""
        report = TableReport(table.name)
        if table.model is None:
            report.is_installed = False
            report.read = report.skipped = self.source.count(table.name)
            report.reasons["the app is not installed"] = report.read
            return report
        rows = table.prepare(self.source.rows(table.name, table.key))
        for batch in _batches(rows):
            self._bring(table, batch, report)
            self.advanced(len(batch))
        return report

    def _bring(self, table: Table, rows: Sequence[Row], report: TableReport) -> None:
        assert table.model is not None  # noqa: S101 - seen by `run`
        report.read += len(rows)
        table.fetch(self.source, rows)
        pk = table.model._meta.pk.attname
        good: dict[Any, tuple[Row, Values]] = {}
        for row in rows:
            for column in table.left_out(row):
                report.left_out[column] = report.left_out.get(column, 0) + 1
            try:
                values = table.values(row, json_is_text=self.source.json_is_text)
            except BadValueError as error:
                self._skip(table, row, str(error), report)
                continue
            if values[pk] in good:
                self._skip(table, row, "another row has the same key", report)
            else:
                good[values[pk]] = row, values
        there = self._rows(table.model)
        for key in present(there, good):
            del good[key]
            report.present += 1
        for key, reason in (*self._orphans(table, good), *self._unsealable(table, good)):
            if key in good:
                self._skip(table, good.pop(key)[0], reason, report)
        self._write(table, good, report)

    def _write(self, table: Table, good: dict[Any, tuple[Row, Values]], report: TableReport) -> None:
        assert table.model is not None  # noqa: S101 - as above
        there = self._rows(table.model)
        if not self.dry_run:
            for key, reason in insert_rows(there, [values for _, values in good.values()]).items():
                self._skip(table, good.pop(key)[0], reason, report)
        report.written += len(good)
        report.held += sum(_is_held(table, row, values) for row, values in good.values())

    def _skip(self, table: Table, row: Row, reason: str, report: TableReport) -> None:
        report.skipped += 1
        # They are few, unless they show where in a payload something is.
        counted = reason if len(report.reasons) < REASONS else "other reasons"
        report.reasons[counted] = report.reasons.get(counted, 0) + 1
        self.skipped(table.name, table.show(row), reason)

    def _rows(self, model: type[models.Model]) -> EngineQuerySet[Any]:
        return rows_on(model, self.using or router.db_for_write(model))

    # -- what a row needs ----------------------------------------------------------------------------------------------

    def _orphans(self, table: Table, good: dict[Any, tuple[Row, Values]]) -> Iterator[tuple[Any, str]]:
        """Rows that belong to one that is not there."""
        assert table.model is not None  # noqa: S101 - as above
        for column, each in fields_of(table.model).items():
            if not isinstance(each, models.ForeignKey) or not each.db_constraint:  # type: ignore[attr-defined]
                continue
            wanted = {values[each.attname] for _, values in good.values()} - {None}
            parents = self._parents(each, wanted, table.parent_columns)
            for key, (_, values) in good.items():
                parent = parents.get(values[each.attname])
                if parent is None and values[each.attname] is not None:
                    yield key, f"{column}: there is no such row of {each.related_model._meta.verbose_name_plural}"
                elif parent is not None and table.adopt is not None and not self.dry_run:
                    table.adopt(values, parent)

    def _parents(
        self, key: models.ForeignKey[Any, Any], wanted: Iterable[Any], columns: Sequence[str]
    ) -> dict[Any, dict[str, Any]]:
        found = self._rows(key.related_model).filter(pk__in=list(wanted)).order_by().values("pk", *columns)
        parents = {row["pk"]: row for row in found}
        if self.dry_run:
            # It would be brought over before.
            theirs = next(each for each in BY_NAME.values() if each.model is key.related_model)
            column = theirs.key[0]
            missing = [value for value in wanted if value not in parents]
            if theirs.name in self.source.tables():
                parents |= {row[column]: {} for row in self.source.find(theirs.name, column, missing, (column,))}
        return parents

    def _unsealable(self, table: Table, good: dict[Any, tuple[Row, Values]]) -> Iterator[tuple[Any, str]]:
        """Sealed rows whose version has another salt here, under which they would not open."""
        if table.sealed_by is None or not good:
            return
        salts = BY_NAME[table.sealed_by]
        assert salts.model is not None  # noqa: S101 - in the same app
        versions = sorted({values["key_version"] for _, values in good.values()})
        theirs = {
            int(row["key_version"]): row["salt"]
            for row in self.source.find(salts.name, "key_version", versions, ("key_version", "salt"))
        }
        ours = dict(self._rows(salts.model).filter(pk__in=versions).order_by().values_list("pk", "salt"))
        if self.dry_run:
            ours = {**theirs, **ours}
        for key, (_, values) in good.items():
            version = values["key_version"]
            if version not in ours:
                yield key, f"key version {version} has no salt, without which it does not open"
            elif ours[version] != theirs.get(version):
                yield key, f"key version {version} has another salt here, with which it does not open"


def _batches(rows: Iterable[Row]) -> Iterator[list[Row]]:
    batch: list[Row] = []
    size = 0
    for row in rows:
        batch.append(row)
        # Documents have no length; few of them are as long as texts may be.
        size += sum(len(value) if isinstance(value, str) else 1_000 for value in row.values() if value is not None)
        if len(batch) == BATCH_ROWS or size >= BATCH_CHARACTERS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _is_held(table: Table, row: Row, values: Values) -> bool:
    if table.name == "workflow_runs":
        return isinstance(values["error"], dict) and values["error"].get("code") == IMPORTED
    return table.name == "virtual_user_schedule" and str(row.get("enabled")) in {"1", "True", "true"}
