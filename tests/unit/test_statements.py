"""What a statement touches, read from its text or command."""

from typing import Any

import pytest

from pikku_storage.audit.statements import LONGEST, MOST_ROWS, of_command, of_sql, shown


@pytest.mark.parametrize(
    ("text", "parameters", "expected"),
    [
        (
            'SELECT "a"."x" FROM "a" INNER JOIN "b" ON (1) WHERE "a"."y" = %s',
            ["from c"],
            ("select", ("a", "b"), (), ()),
        ),
        ('SELECT EXTRACT(YEAR FROM "a"."x") FROM "a" WHERE x = \'from d\'', [], ("select", ("a",), (), ())),
        ('SELECT x FROM "a" WHERE x IS DISTINCT FROM %s FOR UPDATE', [1], ("select", ("a",), (), ())),
        (
            'INSERT INTO "s"."a" ("x", "y") VALUES (%s, %s)',
            [1, "z"],
            ("insert", ("a",), ("x", "y"), ({"x": 1, "y": "z"},)),
        ),
        (
            "INSERT INTO `a` (`x`, `y`) VALUES (%s, NOW(%s))",
            [1, 2],
            ("insert", ("a",), ("x", "y"), ({"x": 1, "y": 2},)),
        ),
        (
            'INSERT INTO "a" ("x") SELECT %s WHERE EXISTS (SELECT 1 FROM "b")',
            [1],
            ("insert", ("a", "b"), ("x",), ({"x": 1},)),
        ),
        (
            'INSERT INTO "a" ("x") VALUES (%s), (%s) ON CONFLICT DO UPDATE SET "x" = 1',
            [1, 2],
            ("insert", ("a",), ("x",), ({"x": 1}, {"x": 2})),
        ),
        ('INSERT INTO "a" SELECT * FROM b', [], ("insert", ("a", "b"), (), ())),
        (
            'UPDATE "a" SET "x" = COALESCE("x", %s), "y" = NULL, "z" = f(%s, %s), "u" = %s WHERE "x" = %s',
            [1, 2, 3, 4, 5],
            ("update", ("a",), ("x", "y", "z", "u"), ({"x": 1, "u": 4},)),
        ),
        ('DELETE FROM "a" WHERE "x" IN (SELECT y FROM "b")', [], ("delete", ("a", "b"), (), ())),
        (
            'WITH t AS (SELECT 1 FROM "b") UPDATE "a" SET "x" = %s FROM t',
            [1],
            ("update", ("b", "a"), ("x",), ({"x": 1},)),
        ),
        ("WITH t AS (SELECT 1 FROM b) SELECT * FROM t", [], ("select", ("b",), (), ())),
    ],
)
def test_sql(text: str, parameters: list[Any], expected: Any) -> None:
    found = of_sql(text, [parameters])
    assert found is not None
    assert (found.kind, found.tables, found.columns, found.values) == expected


@pytest.mark.parametrize("text", ["BEGIN", "SAVEPOINT x", "SELECT 1", "PRAGMA foreign_keys", "CREATE TABLE a (x)"])
def test_what_touches_no_rows(text: str) -> None:
    assert of_sql(text, [None]) is None


def test_many_rows_are_cut() -> None:
    found = of_sql('INSERT INTO "a" ("x") VALUES (%s)', [[number] for number in range(MOST_ROWS + 5)])
    assert found is not None
    assert len(found.values) == MOST_ROWS


@pytest.mark.parametrize(
    ("name", "command", "expected"),
    [
        ("find", {"find": "a", "filter": {}}, ("select", ("a",), (), ())),
        (
            "aggregate",
            {"aggregate": "a", "pipeline": [{"$lookup": {"from": "b"}}, {"$match": {}}]},
            ("select", ("a", "b"), (), ()),
        ),
        (
            "insert",
            {"insert": "a", "documents": [{"x": 1}, {"y": 2}]},
            ("insert", ("a",), ("x", "y"), ({"x": 1}, {"y": 2})),
        ),
        ("update", {"update": "a", "updates": [{"u": {"$set": {"x": 1}}}]}, ("update", ("a",), ("x",), ({"x": 1},))),
        (
            "update",
            {"update": "a", "updates": [{"u": [{"$set": {"x": {"$literal": 1}}}]}]},
            ("update", ("a",), ("x",), ({"x": 1},)),
        ),
        ("findAndModify", {"findAndModify": "a", "update": {"x": 1}}, ("update", ("a",), ("x",), ({"x": 1},))),
        ("delete", {"delete": "a", "deletes": [{}]}, ("delete", ("a",), (), ())),
    ],
)
def test_commands(name: str, command: Any, expected: Any) -> None:
    found = of_command(name, command)
    assert found is not None
    assert (found.kind, found.tables, found.columns, found.values) == expected


def test_commands_that_touch_no_documents() -> None:
    assert of_command("hello", {"hello": 1}) is None
    assert of_command("aggregate", {"aggregate": 1, "pipeline": []}) is None


def test_values_are_plain_and_short() -> None:
    assert [shown(value) for value in (None, True, 1.5, b"abc", "x\x00y")] == [None, True, 1.5, "<3 bytes>", "xy"]
    assert len(shown("x" * 2 * LONGEST)) == LONGEST
