"""Databases as the TypeScript packages make them, and what their rows mean (contract tables.md)."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

import psycopg
from psycopg import sql

from tests.data.vectors import DATA, load

Rows: TypeAlias = dict[str, list[dict[str, Any]]]
"""By table, rows as they are stored."""

JSON = {
    "agent_message": "content",
    "agent_run": "missing_rpcs pending_approvals",
    "agent_run_score": "metadata",
    "agent_threads": "metadata",
    "agent_tool_call": "args display_args",
    "agent_working_memory": "data",
    "channels": "opening_data state",
    "pikku_user_sessions": "session",
    "virtual_user_run": "goals memory findings intents tally",
    "virtual_user_run_step": "action response finding_kinds",
    "virtual_user_schedule": "goals budget",
    "workflow_runs": "input output error state planned_steps wire",
    "workflow_step": "data result error",
    "workflow_step_history": "result error",
    "workflow_versions": "graph",
}
BOOLEANS = {"declared", "deterministic", "enabled", "inline", "ok", "system"}
TIMES = re.compile("_at$|^last_wire$|^last_heartbeat$")
NOT_IN_MONGODB = re.compile("^(credential|pikku_(scopes|role|user_role|user_scope|deployment_f)|webhook|audit|virtual)")
CHILDREN = {"workflow_step_history": "workflow_step", "workflow_step": "workflow_runs"}


def stored(flavour: str) -> Rows:
    """The rows of `sqlite-native`, `sqlite-serialize` or `postgres`."""
    rows: dict[str, Any] = load(f"rows-{flavour}")["rows"]
    if flavour == "postgres":
        return {table: found["rows"] for table, found in rows.items()}
    return {
        table: [{name: cell["value"] for name, cell in row.items()} for row in found] for table, found in rows.items()
    }


def meant(table: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """What a stored row means: JSON decoded, times aware and cut to milliseconds, booleans and numbers as such."""
    return {column: _meant(table, column, value) for column, value in row.items()}


def _meant(table: str, column: str, value: Any) -> Any:
    if value is None:
        return None
    if column in JSON.get(table, "").split():
        return json.loads(value)
    if TIMES.search(column):
        moment = datetime.fromisoformat(value)
        moment = moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
        return moment.replace(microsecond=moment.microsecond // 1000 * 1000)
    if column in BOOLEANS:
        return {"true": True, "false": False, "1": True, "0": False}[str(value)]
    # PostgreSQL's rows are shown as text.
    is_number = isinstance(value, str) and re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", value) and column in _NUMBERS
    return json.loads(value) if is_number else value


_NUMBERS = set(
    "attempt attempt_number attempts current_attempt key_version max_interval_ms min_interval_ms retries score seed "
    "status_code step_index tokens_in tokens_out usage_input_tokens usage_output_tokens".split()
) | {"status"}


# -- databases ---------------------------------------------------------------------------------------------------------


def sqlite_database(folder: Path, flavour: str = "native") -> Path:
    """The fixture's file, to be changed at will."""
    return Path(shutil.copy(DATA / f"fixture-{flavour}.sqlite", folder / f"{flavour}.sqlite"))


@contextmanager
def changing(path: Path) -> Iterator[sqlite3.Connection]:
    """Change a file as a program would that does not look at foreign keys."""
    with closing(sqlite3.connect(path)) as connection:
        yield connection
        connection.commit()


def insert(connection: sqlite3.Connection, table: str, **row: Any) -> None:
    """One more row."""
    columns, marks = ", ".join(f'"{name}"' for name in row), ", ".join("?" * len(row))
    connection.execute(f'INSERT INTO "{table}" ({columns}) VALUES ({marks})', [*row.values()])  # noqa: S608


def empty(connection: sqlite3.Connection) -> None:
    """No rows at all."""
    for (table,) in list(connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")):
        connection.execute(f'DELETE FROM "{table}"')  # noqa: S608


@contextmanager
def postgres_schema(url: str, name: str) -> Iterator[None]:
    """A schema with the tables and rows of the fixture."""
    with psycopg.connect(url, autocommit=True) as connection:
        schema = sql.Identifier(name)
        connection.execute(sql.SQL("CREATE SCHEMA {}").format(schema))
        try:
            for table, found in load("rows-postgres")["rows"].items():
                columns = found["columns"]
                declared = [
                    sql.SQL("{} {}").format(sql.Identifier(each), sql.SQL(kind)) for each, kind in columns.items()
                ]
                place = sql.SQL("{}.{}").format(schema, sql.Identifier(table))
                connection.execute(sql.SQL("CREATE TABLE {} ({})").format(place, sql.SQL(", ").join(declared)))
                marks = [sql.SQL("%s::text::{}").format(sql.SQL(kind)) for kind in columns.values()]
                for row in found["rows"]:
                    text = sql.SQL("INSERT INTO {} VALUES ({})").format(place, sql.SQL(", ").join(marks))
                    connection.execute(text, [row[column] for column in columns])
            yield
        finally:
            connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(schema))


def documents(rows: Rows) -> dict[str, list[dict[str, Any]]]:
    """By collection, what the services for MongoDB keep in place of these rows."""
    found: dict[str, list[dict[str, Any]]] = {}
    for table, each in rows.items():
        if not NOT_IN_MONGODB.match(table):
            found[{"pikku_user_sessions": "pikkuUserSessions"}.get(table, table)] = [
                _document(table, row) for row in each
            ]
    for deployment in found.get("pikku_deployments", []):
        served = rows["pikku_deployment_functions"]
        deployment["functions"] = [row["function_name"] for row in served if row["deployment_id"] == deployment["_id"]]
    return found


_KEYS = {
    "agent_run": "run_id",
    "channels": "channel_id",
    "pikku_deployments": "deployment_id",
    "pikku_user_sessions": "pikku_user_id",
    "secret_kek_salts": "key_version",
    "secrets": "key",
    "workflow_runs": "workflow_run_id",
    "workflow_step": "workflow_step_id",
    "workflow_step_history": "history_id",
    "agent_message": "id",
    "agent_run_score": "id",
    "agent_threads": "id",
    "agent_tool_call": "id",
    "secrets_audit": "id",
}
_ABSENT = {"current_attempt", "attempt", "pending_approvals"}


def _document(table: str, row: Mapping[str, Any]) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for column, value in meant(table, row).items():
        name = "_id" if column == _KEYS.get(table) else re.sub("_([a-z])", lambda match: match[1].upper(), column)
        # What is not set is null there, or not there at all.
        if column not in _ABSENT and (value is not None or column != "child_run_id"):
            document[name] = row[column] if (table, column) == ("agent_message", "content") else value
    return document
