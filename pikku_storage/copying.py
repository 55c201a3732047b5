"""Copying everything of the package from one database of the project to another: `manage.py copy_storage`.

Both sides are read in the order of their keys, which is the same on every database, a page at a time. A row that is
there and equal is left, so it may be stopped at any moment and begun again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, TypeAlias

from django.db import connections, models
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder

from pikku_storage.conf import APP_LABELS
from pikku_storage.db import engine
from pikku_storage.db.bulk import insert_rows
from pikku_storage.db.documents import without_nulls
from pikku_storage.db.fields import cut
from pikku_storage.db.operations import Update
from pikku_storage.db.querysets import EngineQuerySet
from pikku_storage.db.twins import missing_tables, model_on, models_of_the_package, rows_on

PAGE_ROWS, PAGE_CHARACTERS = 500, 1_000_000
"""The most rows of a page, and about how much text they have."""
FIRST_ROWS = 20
SHOWN = 5
"""How many keys of a kind a report names."""

Model: TypeAlias = type[models.Model]
Values: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Stored:
    """A row as it is on one side, and what stands for all of its values: equal rows have equal fingerprints, on every
    database."""

    pk: Any
    values: Values
    fingerprint: str
    size: int


@dataclass(slots=True)
class Difference:
    """How the target differs from the source in one table: how many rows of each kind, and the first keys of them."""

    missing: int = 0
    different: int = 0
    extra: int = 0
    examples: dict[str, list[str]] = field(default_factory=dict)

    def add(self, kind: str, pk: Any) -> None:
        """One more."""
        setattr(self, kind, getattr(self, kind) + 1)
        shown = self.examples.setdefault(kind, [])
        if len(shown) < SHOWN:
            shown.append(str(pk))


@dataclass(slots=True)
class TableCopy:
    """What became of one table. `refused` has rows by the reason of the target's database."""

    table: str
    read: int = 0
    written: int = 0
    overwritten: int = 0
    equal: int = 0
    refused: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Verified:
    """Both sides of one table: how many rows, and a checksum of all of them."""

    table: str
    source_rows: int = 0
    target_rows: int = 0
    source_checksum: str = ""
    target_checksum: str = ""
    difference: Difference = field(default_factory=Difference)

    @property
    def is_equal(self) -> bool:
        """Whether there is no difference at all."""
        return self.source_checksum == self.target_checksum


@dataclass(frozen=True, slots=True)
class StorageCopy:
    """From one database alias to another. Nobody else should write to either meanwhile."""

    source: str
    target: str
    advanced: Callable[[int], None] = lambda rows: None
    """Is told how many more rows have been read."""

    def obstacles(self) -> list[str]:
        """Why it cannot begin: what is not migrated."""
        return [text for alias in (self.source, self.target) for text in _unmigrated(alias)]

    def settle(self) -> None:
        """On a database without transactions, finish what a process that died has begun in the source."""
        tables = [model_on(model, self.source) for model in models_of_the_package()]
        while engine(self.source).recover(*tables):
            pass

    def count(self, model: Model) -> int:
        """How many rows the source has."""
        return int(rows_on(model, self.source).count())

    def compare_target(self, model: Model) -> Difference:
        """What the target has and the source has otherwise, or not at all."""
        difference = Difference()
        for page in _pages(model, self.target):
            source = _by_key(model, self.source, page)
            for row in page:
                if row.pk not in source:
                    difference.add("extra", row.pk)
                elif source[row.pk].fingerprint != row.fingerprint:
                    difference.add("different", row.pk)
        return difference

    def copy(self, model: Model, *, dry_run: bool = False) -> TableCopy:
        """Write what the target has not, and overwrite what it has otherwise; with `dry_run` only count it."""
        report = TableCopy(_name(model))
        there = rows_on(model, self.target)
        for page in _pages(model, self.source):
            target = _by_key(model, self.target, page)
            missing = [row.values for row in page if row.pk not in target]
            different = [row for row in page if row.pk in target and target[row.pk].fingerprint != row.fingerprint]
            refused = {} if dry_run else insert_rows(there, missing)
            for reason in refused.values():
                report.refused[reason] = report.refused.get(reason, 0) + 1
            if not dry_run:
                _overwrite(there, different)
            report.read += len(page)
            report.written += len(missing) - len(refused)
            report.overwritten += len(different)
            report.equal += len(page) - len(missing) - len(different)
            self.advanced(len(page))
        return report

    def verify(self, model: Model) -> Verified:
        """Read both sides once more, and compare them row by row."""
        found = Verified(_name(model))
        sums = sha256(), sha256()
        for mine, theirs in _side_by_side(_rows(model, self.source), _rows(model, self.target)):
            for row, checksum in ((mine, sums[0]), (theirs, sums[1])):
                if row is not None:
                    checksum.update(row.fingerprint.encode())
            found.source_rows += mine is not None
            found.target_rows += theirs is not None
            self.advanced(mine is not None)
            if mine is None and theirs is not None:
                found.difference.add("extra", theirs.pk)
            elif mine is not None and theirs is None:
                found.difference.add("missing", mine.pk)
            elif mine is not None and theirs is not None and mine.fingerprint != theirs.fingerprint:
                found.difference.add("different", mine.pk)
        found.source_checksum, found.target_checksum = (checksum.hexdigest() for checksum in sums)
        return found


def _name(model: Model) -> str:
    return str(model._meta.original_attrs.get("db_table", model._meta.db_table))


def _unmigrated(alias: str) -> Iterator[str]:
    missing = missing_tables(alias, models_of_the_package())
    if missing:
        yield f"The database {alias!r} has no table {', '.join(missing)}"
        return
    # Not whole rows: their keys are of the kind that the project's default database has.
    applied = set(MigrationRecorder(connections[alias]).migration_qs.values_list("app", "name"))
    for app, name in sorted(MigrationLoader(None).graph.nodes):
        if app.startswith(APP_LABELS) and (app, name) not in applied:
            yield f"The database {alias!r} lacks the migration {app}.{name}"


# -- rows --------------------------------------------------------------------------------------------------------------


def _pages(model: Model, using: str) -> Iterator[list[Stored]]:
    """All rows by their keys. A page has fewer rows where these are long."""
    rows = rows_on(model, using).order_by("pk")
    columns = _columns(model)
    limit, last = FIRST_ROWS, None
    while True:
        after = rows if last is None else rows.filter(pk__gt=last)
        page = [_stored(model, values) for values in after.values(*columns)[:limit]]
        if not page:
            return
        yield page
        last = page[-1].pk
        size = sum(row.size for row in page)
        limit = max(1, min(PAGE_ROWS, limit * 2, limit * PAGE_CHARACTERS // size))


def _rows(model: Model, using: str) -> Iterator[Stored]:
    for page in _pages(model, using):
        yield from page


def _by_key(model: Model, using: str, page: list[Stored]) -> dict[Any, Stored]:
    found = rows_on(model, using).filter(pk__in=[row.pk for row in page]).order_by()
    return {row.pk: row for row in (_stored(model, values) for values in found.values(*_columns(model)))}


def _columns(model: Model) -> list[str]:
    return [each.attname for each in model._meta.concrete_fields]


def _stored(model: Model, values: Values) -> Stored:
    held = without_nulls(model._meta.db_table, values)
    text = json.dumps([_plain(value) for value in held.values()], ensure_ascii=False, sort_keys=True)
    return Stored(
        values[model._meta.pk.attname], values, sha256(text.encode("utf-8", "replace")).hexdigest(), len(text)
    )


def _plain(value: Any) -> Any:
    """What is compared: times in UTC to the millisecond, as every database of ours keeps them; a zero has no sign."""
    if isinstance(value, datetime):
        return cut(value.astimezone(UTC)).isoformat()
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value + 0.0 if isinstance(value, float) else value


def _side_by_side(source: Iterator[Stored], target: Iterator[Stored]) -> Iterator[tuple[Stored | None, Stored | None]]:
    """Rows of two sides that are ordered by their keys, those with the same key together."""
    mine, theirs = next(source, None), next(target, None)
    while mine is not None or theirs is not None:
        if theirs is None or (mine is not None and mine.pk < theirs.pk):
            yield mine, None
            mine = next(source, None)
        elif mine is None or theirs.pk < mine.pk:
            yield None, theirs
            theirs = next(target, None)
        else:
            yield mine, theirs
            mine, theirs = next(source, None), next(target, None)


def _overwrite(there: EngineQuerySet[Any], rows: list[Stored]) -> None:
    pk = there.model._meta.pk.attname
    for row in rows:
        values = {name: value for name, value in row.values.items() if name != pk}
        there.engine.apply(Update(there.model, {pk: row.pk}, values))
