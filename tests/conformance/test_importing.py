"""`import_pikku`: everything that the TypeScript packages wrote is brought over, once, and nothing is carried out by
surprise."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from io import StringIO
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.core.management import CommandError, call_command

from pikku_storage.db.clock import travel
from pikku_storage.db.documents import are_kept_in, without_nulls
from pikku_storage.exceptions import WebhookInputError
from pikku_storage.importing import importer as importing
from pikku_storage.importing.sources import open_source
from pikku_storage.importing.tables import PARTS, TABLES
from pikku_storage.secrets import keyring
from pikku_storage.secrets.credentials import CredentialService
from pikku_storage.secrets.keys import StaticKeys
from pikku_storage.secrets.models import Secret, SecretKekSalt
from pikku_storage.secrets.service import SecretService
from pikku_storage.webhooks.service import WebhookService
from pikku_storage.workflows import function, workflow
from pikku_storage.workflows.flow import Flow
from pikku_storage.workflows.invariants import find_violations
from pikku_storage.workflows.models import WorkflowRun, WorkflowStep, WorkflowStepHistory
from pikku_storage.workflows.runs import WorkflowRunService
from pikku_storage.workflows.service import WorkflowService
from pikku_storage.workflows.timeline import build_run_timeline
from tests.conformance.recording import RecordingDispatcher
from tests.conformance.support import DATABASE, connection
from tests.conformance.typescript import (
    NOT_IN_MONGODB,
    changing,
    documents,
    empty,
    insert,
    meant,
    postgres_schema,
    sqlite_database,
    stored,
)
from tests.data.vectors import DATA, load, vectors

pytestmark = pytest.mark.django_db(transaction=True)

NATIVE = str(DATA / "fixture-native.sqlite")
SECRET_KEYS = StaticKeys("kek-passphrase-v2", 2, {1: "kek-passphrase-v1"})
CREDENTIAL_KEYS = StaticKeys("cred-passphrase-v1")
MOMENT = "2024-01-01T00:00:00.000Z"

Report = dict[str, Any]


def bring(source: str | Path, *options: str) -> Report:
    """Import, and answer with the report."""
    out, err = StringIO(), StringIO()
    code = 0
    try:
        call_command("import_pikku", str(source), *options, "--json", stdout=out, stderr=err)
    except SystemExit as ended:
        code = int(ended.code or 0)
    report: Report = json.loads(out.getvalue())
    tables = {table.pop("table"): table for table in report["tables"]}
    return {**report, "tables": tables, "code": code, "said": err.getvalue()}


def totals(report: Report) -> dict[str, int]:
    """The numbers of all tables together."""
    names = ("read", "written", "present", "skipped")
    return {name: sum(table[name] for table in report["tables"].values()) for name in names}


def model_of(table: str) -> Any:
    """The model of a table, found by its name."""
    return next(model for model in apps.get_models() if model._meta.original_attrs.get("db_table") == table)


def ours(table: str, columns: set[str]) -> list[dict[str, Any]]:
    """Our rows, by the names of the contract's columns."""
    model = model_of(table)
    names = {field.db_column or field.attname: field.attname for field in model._meta.concrete_fields}
    rows = model._base_manager.using(DATABASE).values()
    return [{column: row[names[column]] for column in columns & names.keys()} for row in rows]


def in_order(rows: list[dict[str, Any]]) -> list[str]:
    """Rows as texts that sort."""
    return sorted(json.dumps(row, sort_keys=True, default=str) for row in rows)


# -- sources -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def mongodb_source() -> Iterator[str]:
    """The address of a database as the services for MongoDB write it."""
    if connection.vendor != "mongodb":
        pytest.skip("needs MongoDB: set DATABASE_URL")
    name = f"{connection.settings_dict['NAME']}_source"
    database = connection.database.client[name]
    for collection, found in documents(stored("postgres")).items():
        database[collection].insert_many(found)
    host = connection.settings_dict["HOST"]
    yield host[: host.rindex("/") + 1] + name
    connection.database.client.drop_database(name)


@pytest.fixture
def postgres_source(postgres_url: str) -> Iterator[tuple[str, str]]:
    """The address of a PostgreSQL, and the schema in it that the services have written to."""
    schema = f"theirs_{os.getpid()}"
    with postgres_schema(postgres_url, schema):
        yield postgres_url, schema


@pytest.fixture(params=["sqlite-native", "sqlite-serialize", "postgres", "mongodb"])
def source(request: pytest.FixtureRequest) -> tuple[str, list[str]]:
    """A kind of source: where its rows are written down, and what the command is told."""
    if request.param == "postgres":
        url, schema = request.getfixturevalue("postgres_source")
        return "postgres", [url, "--schema", schema]
    if request.param == "mongodb":
        return "postgres", [request.getfixturevalue("mongodb_source")]
    return request.param, [str(DATA / f"fixture-{request.param.removeprefix('sqlite-')}.sqlite")]


def as_here(table: str, row: dict[str, Any]) -> dict[str, Any]:
    """What a row that means this must be here, where that is another thing."""
    if are_kept_in(DATABASE):
        row = without_nulls(table, row)
    if table == "workflow_runs" and row["status"] == "running":
        return {**row, "status": "suspended", "error": "held"}
    if table == "workflow_step_history" and row["status"] == "pending":
        # Of the one step that is scheduled.
        return {**row, "status": "scheduled"}
    if table == "virtual_user_schedule":
        return {**row, "enabled": False}
    return row


def test_every_row_of_every_table_is_brought_over(source: tuple[str, list[str]]) -> None:
    flavour, arguments = source
    is_mongodb = arguments[0].startswith("mongodb")
    rows = {
        table: found
        for table, found in stored(flavour).items()
        if table != "pikku_deployment_functions" and not (is_mongodb and NOT_IN_MONGODB.match(table))
    }

    dry, report = bring(arguments[0], *arguments[1:], "--dry-run"), bring(arguments[0], *arguments[1:])

    assert report["said"] == ""
    assert (report["ok"], report["code"]) == (True, 0)
    assert {table: found["written"] for table, found in report["tables"].items()} == {
        table: len(found) for table, found in rows.items()
    }
    assert {**dry, "dry_run": False} == report
    for table, found in rows.items():
        left = {"history_id", "pending_approvals"}
        columns = set(found[0]) - left
        mine = ours(table, columns)
        if table == "workflow_runs":
            mine = [{**row, "error": "held"} if row["status"] == "suspended" else row for row in mine]
        theirs = [
            as_here(table, {name: value for name, value in meant(table, row).items() if name in columns})
            for row in found
        ]
        assert in_order(mine) == in_order(theirs), table
    deployment = model_of("pikku_deployments").objects.using(DATABASE).get()
    assert deployment.functions == sorted(row["function_name"] for row in stored(flavour)["pikku_deployment_functions"])
    assert list(find_violations()) == []


def test_a_second_time_changes_nothing(source: tuple[str, list[str]]) -> None:
    _, arguments = source
    first = bring(arguments[0], *arguments[1:])
    WorkflowRun.objects.using(DATABASE).filter(workflow="bad").update(status="cancelled")

    second = bring(arguments[0], *arguments[1:])

    assert totals(second) == {**totals(first), "written": 0, "present": totals(first)["written"]}
    assert second["code"] == 0
    assert WorkflowRun.objects.using(DATABASE).get(workflow="bad").status == "cancelled"


@pytest.mark.parametrize("flavour", ["native", "serialize"])
def test_the_history_of_a_run_is_the_one_that_its_services_read(flavour: str) -> None:
    bring(DATA / f"fixture-{flavour}.sqlite")
    read = load(f"rows-sqlite-{flavour}")["readBack"]

    history = WorkflowRunService().get_run_history(read["getRun"]["id"])

    names = "stepId stepName result error attemptCount retries retryDelay fromStepName".split()
    stamps = "createdAt runningAt succeededAt failedAt".split()
    assert [
        {
            **dict(
                zip(
                    names,
                    (
                        e.step_id,
                        e.step_name,
                        e.result,
                        e.error,
                        e.attempt_count,
                        e.retries,
                        e.retry_delay,
                        e.from_step_name,
                    ),
                    strict=True,
                )
            ),
            **{
                name: at and f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03}Z"
                for name, at in zip(stamps, (e.created_at, e.running_at, e.succeeded_at, e.failed_at), strict=True)
            },
        }
        for e in history
    ] == [{name: row.get(name) for name in (*names, *stamps)} for row in read["getRunHistory"]]
    assert WorkflowService().get_run_state(read["getRun"]["id"]) == read["runState"]


@pytest.mark.parametrize("vector", vectors("run-timeline"), ids=itemgetter("name"))
def test_timelines_are_those_of_the_original(vector: dict[str, Any], tmp_path: Path) -> None:
    path = sqlite_database(tmp_path)
    with changing(path) as theirs:
        empty(theirs)
        insert(theirs, "workflow_runs", workflow_run_id="r", workflow="w", status="failed", input="{}")
        for number, row in enumerate(vector["history"]):
            step = {"workflow_step_id": row["stepId"], "workflow_run_id": "r", "step_name": row["stepName"]}
            said = {"from_step_name": row.get("fromStepName"), "child_run_id": row.get("childRunId")}
            is_known = theirs.execute(
                "SELECT 1 FROM workflow_step WHERE workflow_step_id = ?", [row["stepId"]]
            ).fetchone()
            if not is_known:
                insert(
                    theirs, "workflow_step", **step, **said, created_at=row["createdAt"], updated_at=row["updatedAt"]
                )
            insert(
                theirs,
                "workflow_step_history",
                history_id=f"h{number}",
                workflow_step_id=row["stepId"],
                attempt=row["attemptCount"],
                status=row["status"],
                created_at=row["createdAt"],
                result=json.dumps(row["result"]) if "result" in row else None,
                error=json.dumps(row["error"]) if "error" in row else None,
                running_at=row.get("runningAt"),
                scheduled_at=row.get("scheduledAt"),
                succeeded_at=row.get("succeededAt"),
                failed_at=row.get("failedAt"),
            )

    assert bring(path)["code"] == 0

    events = build_run_timeline(WorkflowRunService().get_run_history("r"))
    assert [(e.step_name, e.attempt_count, e.type, e.result, e.error) for e in events] == [
        (e["stepName"], e["attemptCount"], e["type"], e.get("result"), e.get("error")) for e in vector["timeline"]
    ]


@pytest.mark.parametrize("flavour", ["native", "serialize"])
def test_secrets_and_credentials_open_with_the_passphrases_that_they_had(
    flavour: str, use_keys: Callable[..., None]
) -> None:
    keyring._salts.clear()
    use_keys(SECRET_FORMAT="compatible")

    bring(DATA / f"fixture-{flavour}.sqlite", "--only", "secrets", "--only", "credentials")

    secrets, credentials = SecretService(keys=SECRET_KEYS), CredentialService(keys=CREDENTIAL_KEYS)
    expected = {"API_KEY": "sk-123", "JSON_SECRET": {"a": 1, "b": ["☕"]}, "NULL_SECRET": None, "V2_ONLY": "two"}
    assert {key: value.reveal() for key, value in secrets.get_secrets(expected).items()} == expected
    assert credentials.get("stripe") == {"apiKey": "k"}
    assert {user: credentials.get_all(user)["google"] for user in credentials.get_all_users()} == {
        "user-1": {"accessToken": "t"},
        "user-2": {"accessToken": "u"},
    }
    assert not WorkflowRun.objects.using(DATABASE).exists()


def test_what_is_sealed_under_a_salt_that_is_another_one_here_is_refused() -> None:
    SecretKekSalt.objects.using(DATABASE).create(key_version=1, salt="A" * 22, created_at=MOMENT)

    dry, report = bring(NATIVE, "--dry-run"), bring(NATIVE)

    for each in (dry, report):
        assert (each["tables"]["secrets"]["written"], each["tables"]["secrets"]["skipped"]) == (1, 3)
        assert list(each["tables"]["secrets"]["reasons"]) == [
            "key version 1 has another salt here, with which it does not open"
        ]
        assert (each["tables"]["credentials"]["skipped"], each["code"]) == (0, 1)
    assert [str(secret) for secret in Secret.objects.using(DATABASE)] == ["V2_ONLY"]


# -- bad rows ----------------------------------------------------------------------------------------------------------

RUN = {"workflow_run_id": "bad", "workflow": "w", "status": "completed", "input": "{}"}
BAD_ROWS: dict[str, tuple[str, dict[str, Any], str]] = {
    "no JSON": ("workflow_runs", {**RUN, "input": "{"}, "input: it is no JSON"),
    "not a number in JSON": ("workflow_runs", {**RUN, "output": "NaN"}, "output: $: nan is not a JSON number"),
    "half a character": ("workflow_runs", {**RUN, "output": '"\\ud800"'}, "output: $: text with a lone surrogate"),
    "a NUL": ("workflow_runs", {**RUN, "output": '["\\u0000"]'}, "output: $[0]: text with a NUL character"),
    "no UTF-8": ("workflow_runs", {**RUN, "workflow": b"\xff\xfe"}, "workflow: it is no text"),
    "a long name": ("workflow_runs", {**RUN, "workflow": "w" * 256}, "workflow: it has 256 characters, more than 255"),
    "no time": ("workflow_runs", {**RUN, "created_at": "yesterday"}, "created_at: it is no time"),
    "a time that never comes": ("workflow_runs", {**RUN, "created_at": 1e300}, "created_at: it is no time"),
    "no boolean": ("workflow_runs", {**RUN, "inline": "maybe"}, "inline: it is neither true nor false"),
    "no number": (
        "webhook_delivery",
        {"delivery_id": "bad", "url": "u", "attempts": "some"},
        "attempts: it is no whole number",
    ),
    "half an attempt": (
        "webhook_delivery",
        {"delivery_id": "bad", "url": "u", "attempts": 1.5},
        "attempts: it is no whole number",
    ),
    "no time of an event": (
        "audit",
        {"audit_id": "bad", "occurred_at": "", "type": "t"},
        "occurred_at: it is no time",
    ),
    "a step of no run": (
        "workflow_step",
        {"workflow_step_id": "bad", "workflow_run_id": "none", "step_name": "s"},
        "workflow_run_id: there is no such row of runs",
    ),
    "a message of no thread": (
        "agent_message",
        {"id": "bad", "thread_id": "none", "role": "user"},
        "thread_id: there is no such row of threads",
    ),
    "a subscription of no channel": (
        "channel_subscriptions",
        {"channel_id": "none", "topic": "bad"},
        "channel_id: there is no such row of channels",
    ),
    "a secret without its salt": (
        "secrets",
        {"key": "bad", "ciphertext": "c", "wrapped_dek": "w", "key_version": 7},
        "key version 7 has no salt, without which it does not open",
    ),
}


@pytest.mark.parametrize("case", BAD_ROWS)
def test_a_row_that_cannot_be_kept_is_skipped_and_named_and_the_others_are_not(case: str, tmp_path: Path) -> None:
    table, row, reason = BAD_ROWS[case]
    path = sqlite_database(tmp_path)
    with changing(path) as theirs:
        insert(theirs, table, **row)
    good = totals(bring(NATIVE, "--dry-run"))["written"]

    dry, report = bring(path, "--dry-run"), bring(path)

    assert totals(report) == {"read": good + 1, "written": good, "present": 0, "skipped": 1}
    assert totals(dry) == totals(report)
    assert report["code"] == dry["code"] == 1
    assert [found.startswith(reason) for found in report["tables"][table]["reasons"]] == [True]
    (said,) = report["said"].splitlines()
    assert said.startswith(f"  {table}: ")
    assert f"skipped, {reason}" in said
    assert totals(bring(path))["present"] == good


def test_a_text_that_is_no_utf8_costs_its_own_row(tmp_path: Path) -> None:
    path = sqlite_database(tmp_path)
    with changing(path) as theirs:
        theirs.execute("UPDATE workflow_step SET workflow_step_id = CAST(x'ff' AS TEXT), current_attempt = NULL "
                       "WHERE step_name = 'bool'")  # fmt: skip

    report = bring(path)

    assert report["tables"]["workflow_step"]["reasons"] == {"workflow_step_id: it is no Unicode": 1}
    assert report["tables"]["workflow_step_history"]["skipped"] == 1
    assert "  workflow_step: \\udcff: skipped" in report["said"]
    assert report["tables"]["audit"]["written"] == 2


def test_what_a_skipped_row_had_is_skipped_with_it(tmp_path: Path) -> None:
    path = sqlite_database(tmp_path)
    with changing(path) as theirs:
        theirs.execute("UPDATE workflow_runs SET input = '{' WHERE workflow = 'orders'")

    report = bring(path)

    assert {table: report["tables"][table]["skipped"] for table in ("workflow_runs", "workflow_step")} == {
        "workflow_runs": 1,
        "workflow_step": 6,
    }
    assert report["tables"]["workflow_step_history"]["skipped"] == 7
    assert not WorkflowStep.objects.using(DATABASE).exists()


def test_the_second_of_two_steps_with_one_name_is_skipped(tmp_path: Path) -> None:
    path = sqlite_database(tmp_path)
    bring(path)
    with changing(path) as theirs:
        theirs.execute("DELETE FROM workflow_step WHERE step_name = 'nap'")
        run_id = theirs.execute("SELECT workflow_run_id FROM workflow_runs WHERE workflow = 'orders'").fetchone()[0]
        insert(theirs, "workflow_step", workflow_step_id="x", workflow_run_id=run_id, step_name="nap")
        insert(theirs, "workflow_step", workflow_step_id="y", workflow_run_id=run_id, step_name="another")

    report = bring(path, "--only", "workflows")

    assert report["tables"]["workflow_step"]["reasons"] == {"another row here has what must be unique": 1}
    assert report["tables"]["workflow_step"]["written"] == 1


@pytest.mark.parametrize(
    ("given", "expected"),
    {
        "2024-05-06T07:08:09.123Z": "2024-05-06 07:08:09.123000+00:00",
        "2024-05-06T07:08:09.123456Z": "2024-05-06 07:08:09.123000+00:00",
        "2024-05-06 07:08:09": "2024-05-06 07:08:09+00:00",
        "2024-05-06T09:08:09.5+02:00": "2024-05-06 07:08:09.500000+00:00",
        1714979289123: "2024-05-06 07:08:09.123000+00:00",
    }.items(),
)
def test_every_form_of_a_time_is_understood(given: Any, expected: str, tmp_path: Path) -> None:
    path = sqlite_database(tmp_path)
    with changing(path) as theirs:
        empty(theirs)
        insert(theirs, "workflow_runs", **RUN, created_at=given)

    assert bring(path)["code"] == 0
    assert str(WorkflowRun.objects.using(DATABASE).get().created_at) == expected


ATTEMPTS: dict[str, list[int | None]] = {
    "none": [None, None, None],
    "twice": [1, 1, 2],
    "some": [2, None, 1],
    "kept": [3, 1, 2],
}


def test_attempts_without_numbers_are_counted_as_they_were_made(tmp_path: Path) -> None:
    path = sqlite_database(tmp_path)
    with changing(path) as theirs:
        empty(theirs)
        insert(theirs, "workflow_runs", **RUN)
        for step, numbers in ATTEMPTS.items():
            insert(theirs, "workflow_step", workflow_step_id=step, workflow_run_id="bad", step_name=step)
            for place, number in enumerate(numbers):
                # The oldest one has the last id.
                history = {"history_id": f"{step}-{9 - place}", "workflow_step_id": step, "attempt": number}
                made = f"2024-01-01T00:00:0{place}.000Z"
                insert(
                    theirs,
                    "workflow_step_history",
                    **history,
                    status="failed",
                    error=f'{{"message": "{place}"}}',
                    created_at=made,
                )

    assert bring(path)["code"] == 0

    rows = (
        WorkflowStepHistory.objects.using(DATABASE).order_by("step_id", "attempt").values("step_id", "attempt", "error")
    )
    found = {
        step: [(row["attempt"], (row["error"] or {})["message"]) for row in each]
        for step, each in groupby(rows, itemgetter("step_id"))
    }
    counted = [(1, "0"), (2, "1"), (3, "2")]
    assert found == {"none": counted, "twice": counted, "some": counted, "kept": [(1, "1"), (2, "2"), (3, "0")]}
    counts = WorkflowStep.objects.using(DATABASE).values_list("id", "current_attempt")
    assert dict(counts) == {"none": 3, "twice": 3, "some": 3, "kept": 3}


# -- what was under way ------------------------------------------------------------------------------------------------


def a_run_under_way(path: Path) -> None:
    """A run that was killed in its second step's first attempt, beside a sleep of an hour from tomorrow on."""
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    with changing(path) as theirs:
        empty(theirs)
        insert(theirs, "workflow_runs", workflow_run_id="r", workflow="moved", status="running", input='{"n": 1}')
        steps: dict[str, tuple[str | None, str | None, str, str | None]] = {
            "first": ("moved_first", '{"n": 1}', "succeeded", "10"),
            "second": ("moved_second", '{"n": 10}', "running", None),
            "nap": (None, '{"duration": 3600000}', "scheduled", None),
        }
        for name, (rpc, data, status, result) in steps.items():
            made = {"created_at": tomorrow if name == "nap" else MOMENT, "updated_at": MOMENT}
            insert(
                theirs, "workflow_step", workflow_step_id=name, workflow_run_id="r", step_name=name, rpc_name=rpc,
                data=data, status=status, result=result, retries=1, retry_delay="0", current_attempt=1, **made,
            )  # fmt: skip
            known = "pending" if status == "scheduled" else status
            insert(theirs, "workflow_step_history", history_id=f"h-{name}", workflow_step_id=name, status=known,
                   result=result, attempt=1, created_at=made["created_at"])  # fmt: skip


def test_a_run_that_was_under_way_is_held_and_goes_on_when_it_is_resumed(
    tmp_path: Path, outbox: RecordingDispatcher
) -> None:
    calls: Counter[str] = Counter()

    @function(name="moved_first")
    def first(n: int) -> int:
        calls["first"] += 1
        return n * 10

    @function(name="moved_second", retries=1, retry_delay=0)
    def second(n: int) -> int:
        calls["second"] += 1
        return n + 1

    @workflow(name="moved")
    def moved(flow: Flow, n: int) -> int:
        found = flow.do("first", first, {"n": n})
        answer = flow.do("second", second, {"n": found})
        flow.sleep("nap", "1h")
        return int(answer)

    path = sqlite_database(tmp_path)
    a_run_under_way(path)
    service = WorkflowService()

    assert bring(path)["tables"]["workflow_runs"]["held"] == 1

    with travel(timedelta(days=400)):
        assert service.relay() == []
    run = service.get_run("r")
    assert run is not None
    assert (run.status, run.due_at, (run.error or {})["code"], outbox.sent) == ("suspended", None, "IMPORTED", [])
    assert (run.waits_for or {})["kind"] == "resume"
    assert list(find_violations()) == []

    assert service.resume_workflow("r")
    for minutes in range(3):
        with travel(timedelta(minutes=minutes)):
            service.relay()
            outbox.deliver()
    attempts = WorkflowStepHistory.objects.using(DATABASE).filter(step_id="second").order_by("attempt")
    assert [(row.status, (row.error or {}).get("code")) for row in attempts] == [
        ("failed", "WORKER_LOST"),
        ("succeeded", None),
    ]
    nap = WorkflowStep.objects.using(DATABASE).get(pk="nap")
    assert (nap.status, nap.due_at) == ("scheduled", nap.created_at + timedelta(hours=1))
    with travel(timedelta(days=1, hours=2)):
        service.relay()
        outbox.deliver()
    run = service.get_run("r")
    assert run is not None
    assert (run.status, run.output, calls) == ("completed", 11, {"second": 1})
    assert list(find_violations()) == []


def test_resume_lets_what_is_held_go_on_at_once(tmp_path: Path) -> None:
    path = sqlite_database(tmp_path)
    a_run_under_way(path)
    assert bring(path)["resumed"] == 0

    assert bring(path, "--resume")["resumed"] == 1

    run = WorkflowService().get_run("r")
    assert run is not None
    assert (run.status, run.error, run.due_at is not None) == ("running", None, True)
    assert bring(path, "--resume")["resumed"] == 0


def test_no_webhook_is_sent_and_no_virtual_user_begins(tmp_path: Path) -> None:
    path = sqlite_database(tmp_path)
    with changing(path) as theirs:
        insert(theirs, "webhook_delivery", delivery_id="waits", url="https://example.com")

    report = bring(path)

    assert WebhookService().relay() == 0
    with pytest.raises(WebhookInputError, match="brought over without its body"):
        WebhookService().replay("waits")
    assert report["tables"]["virtual_user_schedule"]["held"] == 1
    with travel(timedelta(days=400)):
        assert model_of("virtual_user_schedule").objects.using(DATABASE).filter(enabled=True).count() == 0


# -- the command -------------------------------------------------------------------------------------------------------


def test_a_dry_run_writes_nothing() -> None:
    report = bring(f"sqlite:///{NATIVE}", "--dry-run")

    assert totals(report)["written"] > 60
    assert not any(table.model._base_manager.using(DATABASE).exists() for table in TABLES if table.model is not None)


@pytest.mark.parametrize("part", PARTS)
def test_each_part_can_be_brought_over_by_itself(part: str) -> None:
    report = bring(NATIVE, "--only", part)

    assert set(report["tables"]) == {table.name for table in TABLES if table.part == part}
    assert (report["code"], totals(report)["skipped"]) == (0, 0)


def test_every_table_of_theirs_has_a_place() -> None:
    theirs = set(stored("sqlite-native")) - {"pikku_deployment_functions"}
    assert {table.name for table in TABLES} == theirs
    for table in TABLES:
        assert {*table.key, *table.columns} >= set(stored("sqlite-native")[table.name][0]), table.name


def test_what_belongs_to_an_app_that_is_not_installed_is_counted_and_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(apps.app_configs, "pikku_audit")

    report = bring(NATIVE)

    audit = report["tables"]["audit"]
    assert (audit["read"], audit["skipped"], audit["is_installed"], report["code"]) == (2, 2, False, 1)
    assert totals(report)["skipped"] == 2


def test_a_column_that_has_no_place_here_is_named() -> None:
    report = bring(DATA / "fixture-serialize.sqlite")
    assert report["tables"]["agent_run"]["left_out"] == {"pending_approvals": 1}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "Say where from"),
        (["/nowhere.sqlite"], "There is no file /nowhere.sqlite"),
        (["redis://127.0.0.1/0"], "There is no source of the scheme 'redis'"),
        ([NATIVE, "--database", "none"], "There is no database 'none'"),
        (["postgres://u:hush@127.0.0.1:1/x"], "PostgreSQL: "),
        ([str(DATA / "empty.sqlite")], "There is no file"),
    ],
)
def test_what_cannot_begin_says_why_and_shows_no_password(
    arguments: list[str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PIKKU_SOURCE_URL", raising=False)
    with pytest.raises(CommandError, match=said) as caught:
        call_command("import_pikku", *arguments)
    assert caught.value.returncode == 2
    assert "hush" not in str(caught.value)


def test_a_database_without_tables_of_pikku_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.sqlite"
    with changing(path) as other:
        other.execute("CREATE TABLE books (id)")
    with pytest.raises(CommandError, match="has no table of Pikku"):
        call_command("import_pikku", str(path))


def test_few_rows_are_in_memory_however_many_there_are(tmp_path: Path) -> None:
    path = sqlite_database(tmp_path)
    fill(path, runs=600, text="x" * 20_000)
    held: list[int] = []

    with open_source(str(path)) as opened:
        runs = next(table for table in TABLES if table.name == "workflow_runs")
        report = importing.Importer(opened, dry_run=True, advanced=held.append).run(runs)

    assert report.read == sum(held) == 600
    assert max(held) * 20_000 <= importing.BATCH_CHARACTERS + 20_000


def fill(path: Path, *, runs: int, text: str = "") -> None:
    """That many runs with a step and an attempt each, and nothing else."""
    with changing(path) as theirs:
        empty(theirs)
        for number in range(runs):
            run = {"workflow_run_id": f"r{number:05}", "workflow": "w", "status": "completed"}
            insert(theirs, "workflow_runs", **run, input=json.dumps({"text": text}))
            step = {"workflow_step_id": f"s{number:05}", "workflow_run_id": run["workflow_run_id"], "step_name": "s"}
            insert(theirs, "workflow_step", **step, status="succeeded", current_attempt=1)
            history = {"history_id": f"h{number:05}", "workflow_step_id": step["workflow_step_id"], "attempt": 1}
            insert(theirs, "workflow_step_history", **history, status="succeeded")


def test_an_import_that_is_killed_is_begun_again_and_ends_as_if_it_had_not_been(
    tmp_path: Path, process_env: dict[str, str]
) -> None:
    path = sqlite_database(tmp_path)
    fill(path, runs=120)
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.conformance.importing_process", str(path)],
        env=process_env,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    # In the middle of the steps: the runs are 24 batches.
    for _ in range(30):
        assert process.stdout.readline() == "batch\n"
    process.send_signal(signal.SIGKILL)
    process.stdout.close()
    assert process.wait() == -signal.SIGKILL
    before = [model.objects.using(DATABASE).count() for model in (WorkflowRun, WorkflowStep, WorkflowStepHistory)]
    assert before[0] == 120
    assert 0 < before[1] < 120
    assert before[2] == 0

    report = bring(path)

    assert totals(report) == {"read": 360, "written": 360 - sum(before), "present": sum(before), "skipped": 0}
    for model in (WorkflowRun, WorkflowStep, WorkflowStepHistory):
        assert model.objects.using(DATABASE).count() == 120
    assert totals(bring(path))["present"] == 360
