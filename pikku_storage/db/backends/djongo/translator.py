"""What djongo does otherwise than SQL says."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import sqlparse
from djongo import cursor
from djongo.sql2mongo import operators, query
from djongo.sql2mongo.sql_tokens import SQLIdentifier

_TOKEN = re.compile(r"\\(.)|(%)|(_)|([^\\%_]+|\\)", re.DOTALL)


class Like:
    """A pattern of LIKE, as a regular expression. djongo passes the parameter on as one, so whoever wrote it could ask
    for anything, and takes what looks like JSON for a path."""

    field_ext = ""

    def __init__(self, to_match: str) -> None:
        self.regex = rf"\A{_TOKEN.sub(_expression, to_match)}$(?![\s\S])"


def _expression(match: re.Match[str]) -> str:
    escaped, some, one, plain = match.groups()
    if some or one:
        return r"[\s\S]*" if some else r"[\s\S]"
    return re.escape(escaped if plain is None else plain)


class AnyOf(tuple[Any, ...]):
    """A parameter that stands for all of these."""


class Comparison(operators.CmpOp):
    """Compares as SQL does, also where it is denied: case counts unless it is said not to."""

    _constant: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self._operator in operators.NEW_OPERATORS:
            lists = [each if isinstance(each, AnyOf) else (each,) for each in self._constant]
            self._constant = [value for each in lists for value in each]

    def to_mongo(self) -> Any:
        """See `CmpOp.to_mongo`."""
        if self._sql_operator not in operators.LIKE_OPERATOR_MAP:
            return super().to_mongo()
        expression = re.compile(self._constant, re.IGNORECASE if self._sql_operator == "iLIKE" else 0)
        condition = {"$regex": expression.pattern}
        if expression.flags & re.IGNORECASE:
            condition["$options"] = "i"
        return {self._identifier.field: {"$not": condition} if self.is_negated else condition}


class Select(query.SelectQuery):
    """Looks for rows before it joins others to them, and finds out once where a row's values are."""

    _places: list[tuple[str | None, str]] | None = None

    def _align_results(self, doc: dict[str, Any]) -> tuple[Any, ...]:
        if self._places is None:
            selected = (self.distinct or self.selected_columns).sql_tokens
            self._places = [self._place(token) for token in selected]
        return tuple(
            doc.get(column) if table is None else (doc.get(table) or {}).get(column) for table, column in self._places
        )

    def _place(self, token: Any) -> tuple[str | None, str]:
        """The joined table, if it is one, and the name of a value."""
        if not isinstance(token, SQLIdentifier):
            return None, token.alias
        return (None if token.table == self.left_table else token.table), token.column

    def _make_pipeline(self) -> list[dict[str, Any]]:
        pipeline: list[dict[str, Any]] = super()._make_pipeline()
        if not (self.joins and self.where):
            return pipeline
        own = [clause for clause in _clauses(self.where.op.to_mongo()) if not _is_joined(clause)]
        return [{"$match": {"$and": own}}, *pipeline] if own else pipeline


def _clauses(condition: dict[str, Any]) -> list[dict[str, Any]]:
    if list(condition) != ["$and"]:
        return [condition]
    return [clause for each in condition["$and"] for clause in _clauses(each)]


def _is_joined(condition: Any) -> bool:
    """Whether a field of another table is in it, which has a dot in its name."""
    if isinstance(condition, list):
        return any(map(_is_joined, condition))
    return any("." in name or (name in {"$and", "$or"} and _is_joined(part)) for name, part in condition.items())


class Update(query.UpdateQuery):
    """May be without WHERE."""

    def parse(self) -> None:
        """See `UpdateQuery.parse`."""
        super().parse()
        self.kwargs.setdefault("filter", {})


class Translated(query.Query):
    """Parses a text once. Most of the time that djongo takes goes into that, and Django has few texts."""

    def parse(self) -> Any:
        """See `Query.parse`. The condition that is a column, which djongo looks for here, is never written."""
        statement = _parsed(self._sql)
        return self.FUNC_MAP[statement.get_type()](self, statement)


@lru_cache(maxsize=1024)
def _parsed(sql: str) -> Any:
    return sqlparse.parse(sql)[0]


def _say_nothing(feature: str | None = None, message: str | None = None) -> None:
    pass


def install() -> None:
    """Put them in the places of djongo's own."""
    operators.LikeOp = Like
    operators.CmpOp = Comparison
    query.SelectQuery = Select
    query.UpdateQuery = Update
    cursor.Query = Translated
    # It would tell whoever migrates, on standard output, about constraints that `schema` sees to.
    query.print_warn = _say_nothing
