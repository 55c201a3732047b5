"""`copy_storage`: everything of the package is brought to another database, of whatever kind, and is the same there."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from django.apps import apps
from django.core.management import CommandError, call_command
from django.db import connections, models
from django.db.migrations.loader import MigrationLoader
from django.db.utils import ConnectionHandler
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pytest_django import DjangoDbBlocker

from pikku_storage import copying
from pikku_storage.conf import APP_LABELS
from pikku_storage.copying import StorageCopy
from pikku_storage.db import engine
from pikku_storage.db.clock import travel
from pikku_storage.db.documents import are_kept_in, without_nulls
from pikku_storage.db.fields import JsonTextField, PayloadField
from pikku_storage.db.operations import Insert, InsertMany, Update
from pikku_storage.db.twins import model_on, models_of_the_package, rows_on
from pikku_storage.workflows.models import WorkflowRun, WorkflowStep
from tests.conformance.failing import failing
from tests.conformance.support import DATABASE, connection
from tests.data.vectors import DATA

OTHER = "other"
"""Alias of a database on SQLite, beside the one of the run."""
pytestmark = [
    pytest.mark.usefixtures("other_database"),
    pytest.mark.django_db(transaction=True, databases=[DATABASE, OTHER]),
]
START = datetime(2024, 5, 6, 7, 8, 9, 123000, tzinfo=UTC)
JSON: dict[str, Any] = {"ä\u2028": [1, 1.0, -0.0, 2**53 + 1, 1e300, 5e-324, True, None, "", "🚀", {"b": {}, "a": []}]}


@pytest.fixture(scope="module")
def other_database(
    tmp_path_factory: pytest.TempPathFactory, django_db_setup: None, django_db_blocker: DjangoDbBlocker
) -> Iterator[None]:
    """A second database, on SQLite whatever the first one is, with our tables."""
    path = tmp_path_factory.mktemp("copying") / "other.sqlite3"
    options = {"init_command": "PRAGMA synchronous=OFF"}
    database = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(path), "OPTIONS": options}
    connections.settings[OTHER] = ConnectionHandler({"default": database}).settings["default"]
    with django_db_blocker.unblock():
        with connections[OTHER].schema_editor() as editor:
            for model in models_of_the_package():
                editor.create_model(model_on(model, OTHER))
        with connections[OTHER].cursor() as cursor:
            cursor.execute("CREATE TABLE django_migrations (id integer PRIMARY KEY, app text, name text, applied text)")
            nodes = [key for key in MigrationLoader(None).graph.nodes if key[0].startswith(APP_LABELS)]
            cursor.executemany("INSERT INTO django_migrations (app, name, applied) VALUES (%s, %s, '')", nodes)
        connections[OTHER].close()
    yield
    connections[OTHER].close()
    del connections[OTHER], connections.settings[OTHER]


@pytest.fixture
def other(other_database: None, transactional_db: None) -> str:
    """The second database, empty; its alias."""
    for model in reversed(models_of_the_package()):
        rows_on(model, OTHER).all().delete()
    return OTHER


# -- rows of every table -----------------------------------------------------------------------------------------------


def value_for(field: models.Field[Any, Any], number: int) -> Any:
    """A value of the `number`-th row for a field, whatever fields there are."""
    if isinstance(field, models.ForeignKey):
        return value_for(field.related_model._meta.pk, number)
    if field.null and number == 1:
        return None
    if isinstance(field, PayloadField | JsonTextField):
        return JSON if number else {}
    if isinstance(field, models.DateTimeField):
        return START + timedelta(milliseconds=number)
    if isinstance(field, models.BooleanField):
        return bool(number)
    if isinstance(field, models.FloatField):
        return number / 3
    if isinstance(field, models.IntegerField):
        return number
    return f"{number}·{field.name}🚀ä "[: field.max_length]


def fill(alias: str, rows: int = 3) -> None:
    """So many rows in each table of the package."""
    for model in models_of_the_package():
        there = rows_on(model, alias)
        columns = model._meta.concrete_fields
        found = [{field.attname: value_for(field, number) for field in columns} for number in range(rows)]
        assert there.insert(InsertMany(there.model, {}, found)), model


def copy(source: str, target: str, *options: str) -> dict[str, Any]:
    """Copy, and answer with the report."""
    out = StringIO()
    code = 0
    try:
        call_command("copy_storage", "--from", source, "--to", target, "--json", *options, stdout=out)
    except SystemExit as ended:
        code = int(ended.code or 0)
    report: dict[str, Any] = json.loads(out.getvalue())
    return {**report, "code": code}


def total(report: dict[str, Any], name: str) -> int:
    return int(sum(table[name] for table in report["copied"]))


def contents(alias: str) -> dict[str, list[Any]]:
    """Everything in a database, as Python sees it; where MongoDB is a side, with what documents have for a null."""
    found = {}
    for model in models_of_the_package():
        columns = [field.attname for field in model._meta.concrete_fields]
        rows = list(rows_on(model, alias).order_by("pk").values(*columns))
        is_normal = are_kept_in(DATABASE)
        found[model._meta.label] = [without_nulls(model._meta.db_table, row) if is_normal else row for row in rows]
    return found


def test_every_model_of_the_package_is_copied() -> None:
    labels = {config.label for config in apps.get_app_configs() if config.name.startswith("pikku_storage.")}
    there = {
        model
        for model in apps.get_models(include_auto_created=True)
        if model._meta.app_label in labels and not model._meta.proxy
    }

    assert set(models_of_the_package()) == there
    assert len(there) > 30
    seen: set[type[models.Model]] = set()
    for model in models_of_the_package():
        seen.add(model)
        parents = {field.related_model for field in model._meta.concrete_fields if field.related_model}
        assert parents <= seen, f"{model} is copied before what it refers to"


@pytest.mark.parametrize("is_back", [False, True])
def test_everything_is_there_and_the_same(other: str, is_back: bool) -> None:
    source, target = (other, DATABASE) if is_back else (DATABASE, other)
    fill(source)

    dry, report = copy(source, target, "--dry-run"), copy(source, target)

    rows = 3 * len(models_of_the_package())
    assert (total(dry, "written"), dry["verified"]) == (rows, [])
    assert (total(report, "written"), report["ok"], report["code"]) == (rows, True, 0)
    assert contents(target) == contents(source)
    for table in report["verified"]:
        assert (table["source_rows"], table["target_rows"]) == (3, 3), table
        assert table["source_checksum"] == table["target_checksum"]
    again = copy(source, target)
    assert (total(again, "written"), total(again, "equal"), again["ok"]) == (0, rows, True)


def test_there_and_back_again_is_what_it_was(other: str) -> None:
    call_command("import_pikku", str(DATA / "fixture-native.sqlite"), "--json", stdout=StringIO())
    before = contents(DATABASE)
    copy(DATABASE, other)
    for model in reversed(models_of_the_package()):
        rows_on(model, DATABASE).all().delete()

    assert copy(other, DATABASE)["ok"]

    assert contents(DATABASE) == before


def test_a_dry_run_writes_nothing(other: str) -> None:
    fill(DATABASE, rows=1)
    copy(DATABASE, other, "--dry-run")
    assert not any(contents(other).values())


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=20)
# MongoDB has its own ideas of names with a dollar or a dot.
NAMES = st.text(st.characters(codec="ascii", exclude_characters="\x00$."), max_size=5)
NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
PAYLOADS = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)


@given(payload=PAYLOADS, at=st.datetimes(datetime(1970, 1, 2), datetime(2200, 1, 1)))  # noqa: DTZ001 - made aware
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_payload_and_time_is_copied_as_it_is(other: str, payload: Any, at: datetime) -> None:
    for alias in (DATABASE, other):
        rows_on(WorkflowRun, alias).all().delete()
    values = {field.attname: None for field in WorkflowRun._meta.concrete_fields if field.null}
    moment = at.replace(tzinfo=UTC)
    run = {"id": "r", "workflow": "w", "status": "completed", "created_at": moment, "updated_at": moment}
    mine = rows_on(WorkflowRun, DATABASE)
    mine.insert(Insert(mine.model, {**values, **run, "state": payload}))

    StorageCopy(DATABASE, other).copy(WorkflowRun)

    (there,) = rows_on(WorkflowRun, other).values("state", "created_at")
    assert (repr(there["state"]), there["created_at"]) == (
        repr(rows_on(WorkflowRun, DATABASE).values_list("state", flat=True).get()),
        moment.replace(microsecond=moment.microsecond // 1000 * 1000),
    )
    assert StorageCopy(DATABASE, other).verify(WorkflowRun).is_equal


# -- targets that are not empty ----------------------------------------------------------------------------------------


def test_a_target_with_other_rows_is_refused_unless_they_may_be_overwritten(other: str) -> None:
    fill(DATABASE)
    fill(other, rows=1)
    rows_on(WorkflowRun, other).update(workflow="another")
    alone = rows_on(WorkflowStep, other)
    values = {field.attname: value_for(field, 9) for field in WorkflowStep._meta.concrete_fields}
    alone.insert(Insert(alone.model, {**values, "run_id": value_for(WorkflowRun._meta.pk, 0)}))
    before = contents(other)

    for options in ((), ("--dry-run",)):
        with pytest.raises(CommandError, match="is not empty, and not like") as caught:
            copy(DATABASE, other, *options)
        assert caught.value.returncode == 2
        assert "WorkflowRun: 1 rows are different, such as 0·id" in str(caught.value)
        assert "WorkflowStep: 1 rows are only in the target, such as 9·id" in str(caught.value)
    assert contents(other) == before

    report = copy(DATABASE, other, "--overwrite")

    assert (total(report, "overwritten"), report["ok"]) == (1, True)
    mine, theirs = contents(DATABASE), contents(other)
    assert len(theirs.pop("pikku_workflows.WorkflowStep")) == len(mine.pop("pikku_workflows.WorkflowStep")) + 1
    assert theirs == mine


def test_what_differs_is_found_and_said(other: str) -> None:
    fill(DATABASE)
    copy(DATABASE, other)
    rows_on(WorkflowRun, other).filter(pk=value_for(WorkflowRun._meta.pk, 1)).update(status="failed")

    report = copy(DATABASE, other, "--verify")

    assert (report["ok"], report["code"], report["copied"]) == (False, 1, [])
    (found,) = [table for table in report["verified"] if table["source_checksum"] != table["target_checksum"]]
    assert (found["table"], found["difference"]["different"]) == ("workflow_runs", 1)
    assert found["difference"]["examples"] == {"different": [value_for(WorkflowRun._meta.pk, 1)]}


@pytest.mark.parametrize(
    ("broken", "mended", "said"),
    [
        (
            "ALTER TABLE audit RENAME TO gone",
            "ALTER TABLE gone RENAME TO audit",
            "'other' has no table audit",
        ),
        (
            "UPDATE django_migrations SET app = 'gone' WHERE app = 'pikku_audit'",
            "UPDATE django_migrations SET app = 'pikku_audit' WHERE app = 'gone'",
            "'other' lacks the migration pikku_audit.0001",
        ),
    ],
)
def test_a_database_that_is_not_migrated_is_refused(other: str, broken: str, mended: str, said: str) -> None:
    with connections[OTHER].cursor() as cursor:
        cursor.execute(broken)
        try:
            for source, target in ((DATABASE, other), (other, DATABASE)):
                with pytest.raises(CommandError, match=re.escape(said)) as caught:
                    copy(source, target)
                assert caught.value.returncode == 2
        finally:
            cursor.execute(mended)


@pytest.mark.parametrize(("source", "target"), [(DATABASE, DATABASE), (DATABASE, "none"), ("none", DATABASE)])
def test_what_makes_no_sense_is_refused(source: str, target: str) -> None:
    with pytest.raises(CommandError, match=r"the same database|There is no database 'none'"):
        copy(source, target)


# -- interruptions -----------------------------------------------------------------------------------------------------


def test_a_copy_that_is_interrupted_is_begun_again(other: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "FIRST_ROWS", 2)
    monkeypatch.setattr(copying, "PAGE_ROWS", 2)
    fill(DATABASE, rows=5)
    pages = 0

    def interrupted(rows: int) -> None:
        nonlocal pages
        pages += 1
        if pages == 10:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(map(StorageCopy(DATABASE, other, interrupted).copy, models_of_the_package()))
    done = sum(map(len, contents(other).values()))
    assert 0 < done < 5 * len(models_of_the_package())

    report = copy(DATABASE, other)

    assert (total(report, "equal"), report["ok"]) == (done, True)
    assert contents(other) == contents(DATABASE)


def test_pages_are_short_where_rows_are_long(other: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "PAGE_CHARACTERS", 20_000)
    mine = rows_on(WorkflowRun, other)
    values = {field.attname: value_for(field, 0) for field in WorkflowRun._meta.concrete_fields}
    for number in range(60):
        mine.insert(Insert(mine.model, {**values, "id": f"{number:03}", "state": "x" * 5_000}))
    pages: list[int] = []

    report = StorageCopy(other, DATABASE, pages.append).copy(WorkflowRun)

    assert (report.written, sum(pages)) == (60, 60)
    assert pages[0] == copying.FIRST_ROWS
    assert max(pages[1:]) <= 4
    assert rows_on(WorkflowRun, DATABASE).count() == 60


@pytest.mark.skipif(connection.vendor != "mongodb", reason="about a database without transactions")
def test_what_a_dead_process_had_begun_is_finished_before(other: str) -> None:
    fill(DATABASE, rows=1)
    run_id, step_id = (value_for(model._meta.pk, 0) for model in (WorkflowRun, WorkflowStep))
    outcome = Update(WorkflowStep, {"id": step_id}, {"status": "succeeded"})
    # The clock has been asked, so that only the writes are counted.
    engine(DATABASE).now()
    with failing(2, "down"):
        engine(DATABASE).apply(outcome, Update(WorkflowRun, {"id": run_id}, {"wake_token": "awake"}))
    assert WorkflowRun.objects.using(DATABASE).get(pk=run_id).wake_token != "awake"

    with travel(timedelta(minutes=1)):
        copy(DATABASE, other)

    assert rows_on(WorkflowRun, other).get(pk=run_id).wake_token == "awake"
