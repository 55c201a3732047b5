"""Code outside of `pikku_storage/db` asks the ORM only for what every database can do."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import pikku_storage

PACKAGE = Path(pikku_storage.__file__).parent
VENDORS = PACKAGE / "db"

EXPRESSIONS = {
    *("Case", "CheckConstraint", "Exists", "F", "GeneratedField", "KT", "OuterRef", "RawSQL", "Subquery", "Value"),
    *("When", "Window", "KeyTextTransform", "KeyTransform", "Cast", "Coalesce", "Concat", "Extract", "Now", "Trunc"),
}
METHODS = {"bulk_create", "bulk_update", "dates", "datetimes", "extra", "raw", "select_for_update"}
OF_SETS_AS_WELL = {"difference", "intersection", "union"}
"""Methods of querysets if they follow another method."""
OPTIONS = {"condition": "UniqueConstraint", "expressions": "UniqueConstraint"}
ATTRIBUTES = {"date_hierarchy"}

OTHERS = {
    # A field may be part of such an expression, which is the user's; it seals the values in it.
    "pikku_storage/secrets/fields.py": {"Case", "Cast", "Value", "When"},
    # A column as it is stored, without what its field would make of it.
    "pikku_storage/secrets/tables.py": {"F"},
}
"""What is allowed in a file, and why."""


def constructs(tree: ast.AST) -> Iterator[str]:
    """The names of what not every database can do, as often as it stands there."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("django.db.models"):
            yield from (alias.name for alias in node.names if alias.name in EXPRESSIONS)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "models":
            yield from {node.attr} & EXPRESSIONS
        elif isinstance(node, ast.Call):
            yield from called(node)
        elif is_negation(node) and any(map(is_negation, list(ast.walk(node))[1:])):
            yield "~~"
        elif isinstance(node, ast.Assign):
            yield from ATTRIBUTES & {target.id for target in node.targets if isinstance(target, ast.Name)}


def called(call: ast.Call) -> Iterator[str]:
    name = getattr(call.func, "attr", getattr(call.func, "id", ""))
    if isinstance(call.func, ast.Attribute) and (
        name in METHODS or (name in OF_SETS_AS_WELL and is_chained(call.func.value))
    ):
        yield name
    if name == "exclude" and any(map(is_negation, ast.walk(call))):
        yield "exclude(~)"
    for keyword in call.keywords:
        if OPTIONS.get(keyword.arg or "") == name:
            yield f"{name}({keyword.arg}=)"


def is_negation(node: ast.AST) -> bool:
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert)


def is_chained(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute)


def files() -> list[Path]:
    return [
        path for path in sorted(PACKAGE.rglob("*.py")) if VENDORS not in path.parents and "migrations" not in path.parts
    ]


def test_portable_code_has_no_construct_that_some_database_cannot_do() -> None:
    found = {}
    for path in files():
        name = str(path.relative_to(PACKAGE.parent))
        beyond = set(constructs(ast.parse(path.read_text(encoding="utf-8")))) - OTHERS.get(name, set())
        if beyond:
            found[name] = beyond
    assert found == {}


def test_what_is_allowed_is_needed() -> None:
    for name, allowed in OTHERS.items():
        tree = ast.parse((PACKAGE.parent / name).read_text(encoding="utf-8"))
        assert allowed <= set(constructs(tree)), name


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("from django.db.models import F, Q", "F"),
        ("from django.db.models.fields.json import KT", "KT"),
        ("rows.annotate(x=models.Exists(others))", "Exists"),
        ("Model.objects.bulk_update(rows, ['a'])", "bulk_update"),
        ("rows.filter(a=1).select_for_update()", "select_for_update"),
        ("rows.filter(a=1).union(others)", "union"),
        ("rows.exclude(~Q(a=1))", "exclude(~)"),
        ("rows.filter(~(Q(a=1) & ~Q(b=2)))", "~~"),
        ("models.UniqueConstraint(fields=['a'], condition=Q(b=1))", "UniqueConstraint(condition=)"),
        ("class Admin:\n    date_hierarchy = 'created_at'", "date_hierarchy"),
    ],
)
def test_each_of_them_is_found(text: str, expected: str) -> None:
    assert list(constructs(ast.parse(text))) == [expected]
