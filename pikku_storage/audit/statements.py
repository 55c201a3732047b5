"""What a statement touches, read from its text or its command.

SQL is read as Django writes it: by its keywords and names, not by a grammar. Tables that a view, a trigger or a stored
procedure touches are not named in it, and so are not seen.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, TypeAlias

from pikku_storage.json import Json

Kind: TypeAlias = Literal["select", "insert", "update", "delete"]

LONGEST = 1_000
"""Characters of a value."""
MOST_ROWS = 20
"""Rows of one statement whose values are kept."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement: what it does, to which tables, and what it sets. Values are those that it names as parameters, row
    by row."""

    kind: Kind
    tables: tuple[str, ...]
    columns: tuple[str, ...] = ()
    values: tuple[dict[str, Json], ...] = field(default=(), repr=False)


# -- SQL ---------------------------------------------------------------------------------------------------------------

_NAME = r'(?:"[^"]+"|`[^`]+`|[A-Za-z_][\w$]*)'
_LITERAL = re.compile(r"'(?:[^']|'')*'|--[^\n]*|/\*.*?\*/", re.DOTALL)
# Here FROM does not stand before a table.
_FUNCTION = re.compile(
    r"\b(?:EXTRACT|TRIM|SUBSTRING|OVERLAY)\s*\([^()]*\)|\bIS\s+(?:NOT\s+)?DISTINCT\s+FROM", re.IGNORECASE
)
_TEMPORARY = re.compile(rf"(?:\bWITH\s+(?:RECURSIVE\s+)?|,\s*)({_NAME})\s*(?:\([^()]*\)\s*)?AS\s*\(", re.IGNORECASE)
_BEGINS = re.compile(r"\s*\(?\s*(SELECT|INSERT|REPLACE|UPDATE|DELETE|WITH)\b", re.IGNORECASE)
_CHANGE = re.compile(r"\b(INSERT|REPLACE|(?<!FOR )(?<!DO )UPDATE|DELETE)\b", re.IGNORECASE)
_TABLE = re.compile(
    rf"\b(?:FROM|JOIN|INTO|(?<!FOR )(?<!DO )(?<!KEY )UPDATE)\s+(?:ONLY\s+)?((?:{_NAME}\s*\.\s*)?{_NAME})", re.IGNORECASE
)
_INSERTED = re.compile(rf"\bINTO\s+(?:{_NAME}\s*\.\s*)?{_NAME}\s*\(([^()]*)\)\s*(?:VALUES|SELECT)?\s*", re.IGNORECASE)
_SET = re.compile(r"\bSET\s+", re.IGNORECASE)
_END_OF_SET = re.compile(r"\s(?:WHERE|FROM|RETURNING)\s", re.IGNORECASE)
_ASSIGNED = re.compile(rf"\s*((?:{_NAME}\s*\.\s*)?{_NAME})\s*=\s*(.*)", re.DOTALL)
_NO_TABLES = {"select", "set", "values", "lateral", "unnest"}


@dataclass(frozen=True, slots=True)
class _Plan:
    """What the text alone says. `slots` gives for each parameter the column that it sets, as far as that is clear."""

    kind: Kind
    tables: tuple[str, ...]
    columns: tuple[str, ...]
    slots: tuple[str | None, ...] | None


def of_sql(text: str, parameters: Iterable[Any]) -> Statement | None:
    """What an SQL statement touches, carried out once for each of these parameters; `None` for one that touches no
    rows, such as BEGIN."""
    plan = _plan(text)
    if plan is None:
        return None
    values: list[dict[str, Json]] = []
    if plan.slots is not None:
        for each in parameters:
            if isinstance(each, Sequence) and len(values) < MOST_ROWS:
                values += _rows(plan, plan.slots, each)
    return Statement(plan.kind, plan.tables, plan.columns, tuple(values[:MOST_ROWS]))


def _rows(plan: _Plan, slots: tuple[str | None, ...], parameters: Sequence[Any]) -> list[dict[str, Json]]:
    if plan.kind == "update" or not slots or len(parameters) % len(slots):
        pairs = zip(slots, parameters, strict=False)
        return [{name: shown(value) for name, value in pairs if name is not None}]
    # VALUES with several rows repeats the marks of one.
    starts = range(0, len(parameters), len(slots))
    rows = [zip(slots, parameters[start : start + len(slots)], strict=True) for start in starts]
    return [{name: shown(value) for name, value in row if name is not None} for row in rows]


@lru_cache(maxsize=512)
def _plan(text: str) -> _Plan | None:
    begins = _BEGINS.match(text)
    if begins is None:
        return None
    bare = _FUNCTION.sub("", _LITERAL.sub("''", text))
    word = begins[1].lower()
    if word == "with":
        change = _CHANGE.search(bare)
        word = change[1].lower() if change else "select"
    kind: Kind = "insert" if word == "replace" else word  # type: ignore[assignment]  # one of the four by the pattern
    temporary = {_unquoted(name) for name in _TEMPORARY.findall(bare)}
    names = dict.fromkeys(_unquoted(name) for name in _TABLE.findall(bare))
    tables = tuple(name for name in names if name not in temporary and name.lower() not in _NO_TABLES)
    if not tables:
        return None
    if kind == "insert":
        return _Plan(kind, tables, *_inserted(bare))
    if kind == "update":
        return _Plan(kind, tables, *_assigned(bare))
    return _Plan(kind, tables, (), None)


def _inserted(text: str) -> tuple[tuple[str, ...], tuple[str | None, ...] | None]:
    found = _INSERTED.search(text)
    if found is None:
        return (), None
    columns = tuple(_unquoted(name) for name in found[1].split(",") if name.strip())
    given = text[found.end() :].lstrip()
    row = _inside(given) if given.startswith("(") else _END_OF_SET.split(f"{given} ")[0]
    marks = _split(row)
    # A list of columns and another number of expressions: it is not the form that Django writes.
    return columns, _slots(zip(columns, marks, strict=False)) if len(marks) == len(columns) else None


def _assigned(text: str) -> tuple[tuple[str, ...], tuple[str | None, ...] | None]:
    found = _SET.search(text)
    if found is None:
        return (), None
    pairs = []
    for part in _split(_END_OF_SET.split(f"{text[found.end() :]} ")[0]):
        assigned = _ASSIGNED.fullmatch(part)
        if assigned is not None:
            pairs.append((_unquoted(assigned[1]), assigned[2]))
    return tuple(name for name, _ in pairs), _slots(pairs)


def _slots(pairs: Iterable[tuple[str, str]]) -> tuple[str | None, ...]:
    slots: list[str | None] = []
    for name, expression in pairs:
        marks = expression.count("%s")
        slots += [name] if marks == 1 else [None] * marks
    return tuple(slots)


def _inside(text: str) -> str:
    depth = 0
    for place, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return text[1:place]
    return text[1:]


def _split(text: str) -> list[str]:
    """The parts between the commas that are in no parentheses."""
    parts, depth = [""], 0
    for character in text:
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


def _unquoted(name: str) -> str:
    return name.rpartition(".")[2].strip().strip('"`')


# -- MongoDB -----------------------------------------------------------------------------------------------------------

_COMMANDS: dict[str, Kind] = {
    "find": "select",
    "aggregate": "select",
    "count": "select",
    "distinct": "select",
    "insert": "insert",
    "update": "update",
    "delete": "delete",
    "findAndModify": "update",
}


def of_command(name: str, command: Mapping[str, Any]) -> Statement | None:
    """What a command touches; `None` for one that touches no documents."""
    kind = _COMMANDS.get(name)
    table = command.get(name)
    if kind is None or not isinstance(table, str):
        return None
    if kind == "insert":
        rows = list(command.get("documents") or ())
    elif kind == "update":
        changes = [each.get("u") for each in command.get("updates") or ()] or [command.get("update")]
        rows = [_set_by(change) for change in changes]
    else:
        rows = []
    columns = tuple(dict.fromkeys(column for row in rows for column in row))
    values = tuple({column: shown(value) for column, value in row.items()} for row in rows[:MOST_ROWS])
    return Statement(kind, (table, *_joined(command)), columns, values)


def _joined(command: Mapping[str, Any]) -> list[str]:
    stages = [stage for stage in command.get("pipeline") or () if isinstance(stage, Mapping)]
    looked_up = [stage["$lookup"].get("from") for stage in stages if isinstance(stage.get("$lookup"), Mapping)]
    return [name for name in dict.fromkeys(looked_up) if isinstance(name, str)]


def _set_by(change: Any) -> dict[str, Any]:
    """The fields that an update sets: of `{"$set": …}`, of a pipeline of such, or of a document in place of another."""
    if isinstance(change, list):
        return {name: value for stage in change for name, value in _set_by(stage).items()}
    if not isinstance(change, Mapping):
        return {}
    given = {name: value for key, value in change.items() if key.startswith("$") for name, value in value.items()}
    given = given or {name: value for name, value in change.items() if not name.startswith("$")}
    return {name: _meant(value) for name, value in given.items()}


def _meant(value: Any) -> Any:
    """A value that stands in a pipeline."""
    return value["$literal"] if isinstance(value, Mapping) and set(value) == {"$literal"} else value


# -- values ------------------------------------------------------------------------------------------------------------


def shown(value: Any) -> Json:
    """A value as it is kept: plain ones as they are, bytes as how many there are, others as text that is not too
    long."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return f"<{len(value)} bytes>"
    return str(value).replace("\x00", "")[:LONGEST]
