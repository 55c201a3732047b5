"""SQL of the kind that djongo reads."""

from __future__ import annotations

import re
from itertools import chain
from typing import Any

from django.core.exceptions import EmptyResultSet
from django.db import NotSupportedError
from django.db.models import Count, Value
from django.db.models.expressions import Col, Star
from django.db.models.lookups import GreaterThanOrEqual, In, LessThanOrEqual, Range
from django.db.models.sql import Query, compiler
from django.db.models.sql.compiler import PositionRef
from django.db.models.sql.constants import MULTI, SINGLE
from django.db.models.sql.where import AND, OR, WhereNode

from pikku_storage.db.backends.djongo.translator import AnyOf

_OPPOSITES = {AND: OR, OR: AND}
_SEVERAL = re.compile(r"([^%]+ IN )\((?:%s, )+%s\)")
_BOUNDS = (GreaterThanOrEqual, LessThanOrEqual)


class SQLCompiler(compiler.SQLCompiler):
    """See the module."""

    def compile(self, node: Any) -> Any:
        """An order by the place of a column names the column. A subquery is asked first, and stands as what it
        found. Conditions are simple ones, and a list is one parameter: to parse a thousand takes seconds."""
        if isinstance(node, PositionRef):
            # What is computed has a name of its own, and only that.
            place: Any = node
            is_column = isinstance(place.source, Col)
            return self.compile(place.source) if is_column else (self.connection.ops.quote_name(place.refs), ())
        if isinstance(node, Query):
            return self._found(node)
        sql, params = super().compile(_simple(node) if isinstance(node, WhereNode) else node)
        if isinstance(node, In) and (several := _SEVERAL.fullmatch(sql)):
            return f"{several[1]}(%s)", [AnyOf(params)]
        return sql, params

    def _found(self, query: Query) -> tuple[str, list[Any]]:
        rows = query.get_compiler(self.using).execute_sql(MULTI)
        found = [row[0] for row in chain.from_iterable(rows or ())]
        if not found:
            raise EmptyResultSet
        return "(%s)", [AnyOf(found)]

    def get_select(self, *args: Any, **kwargs: Any) -> Any:
        """A number, as `exists()` asks for, stands in brackets."""
        select, *others = super().get_select(*args, **kwargs)
        return [(node, _in_brackets(node) or sql, alias) for node, sql, alias in select], *others


def _in_brackets(node: Any) -> Any:
    return (f"({node.value:d})", ()) if isinstance(node, Value) and isinstance(node.value, int) else None


def _simple(node: Any, *, is_denied: bool = False) -> Any:
    """The same condition, without what djongo refuses or gets wrong: NOT stands before single comparisons only, which
    are De Morgan's laws, and BETWEEN is two of them, because its AND would be taken for another one."""
    if isinstance(node, Range):
        bounds: list[Any] = [lookup(node.lhs, bound) for lookup, bound in zip(_BOUNDS, node.rhs, strict=True)]
        node = WhereNode(bounds)
    if not isinstance(node, WhereNode):
        return WhereNode([node], negated=True) if is_denied else node
    is_denied = is_denied is not node.negated
    if node.connector not in _OPPOSITES:
        raise NotSupportedError("djongo has no XOR")
    connector = _OPPOSITES[node.connector] if is_denied else node.connector
    if is_denied and len(node.children) == 1 and not isinstance(node.children[0], WhereNode | Range):
        return WhereNode(node.children, negated=True)
    return WhereNode([_simple(child, is_denied=is_denied) for child in node.children], connector)


class SQLInsertCompiler(compiler.SQLInsertCompiler, SQLCompiler):
    """See the module."""


class SQLDeleteCompiler(compiler.SQLDeleteCompiler, SQLCompiler):
    """See the module."""


class SQLUpdateCompiler(compiler.SQLUpdateCompiler, SQLCompiler):
    """See the module."""


class SQLAggregateCompiler(compiler.SQLAggregateCompiler, SQLCompiler):
    """Counts what is distinct, or a slice: there is no SELECT from a SELECT, so the rows are fetched."""

    def execute_sql(self, result_type: str = SINGLE, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        """See `SQLCompiler.execute_sql`."""
        asked = list(self.query.annotation_select.values())
        if not all(isinstance(each, Count) and isinstance(each.source_expressions[0], Star) for each in asked):
            raise NotSupportedError("djongo can count rows of a subquery, and nothing else")
        rows = self.query.inner_query.get_compiler(self.using).execute_sql(MULTI)
        count = sum(1 for _ in chain.from_iterable(rows or ()))
        return (count,) * len(asked)
