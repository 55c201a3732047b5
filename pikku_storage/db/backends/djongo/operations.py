"""How values are stored, and what SQL there is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from bson import Decimal128
from django.core.management.color import Style
from django.db import NotSupportedError
from djongo import operations


class DatabaseOperations(operations.DatabaseOperations):
    """Documents as django-mongodb-backend stores them, so that one may follow the other on the same database."""

    compiler_module = "pikku_storage.db.backends.djongo.compiler"
    connection: Any

    def conditional_expression_supported_in_where_clause(self, expression: Any) -> bool:
        """A column is no condition: it is compared with `True`."""
        return False

    # -- values --------------------------------------------------------------------------------------------------------

    def adapt_json_value(self, value: Any, encoder: Any) -> Any:
        """JSON is a document."""
        return value if encoder is None else json.loads(json.dumps(value, cls=encoder))

    def get_db_converters(self, expression: Any) -> list[Any]:
        """See `BaseDatabaseOperations.get_db_converters`."""
        converters: list[Any] = super().get_db_converters(expression)
        kind = expression.output_field.get_internal_type()
        if kind == "JSONField":
            converters.append(_json_text)
        elif kind == "DecimalField":
            converters.append(_decimal)
        return converters

    # -- emptying tables -----------------------------------------------------------------------------------------------

    def sql_flush(
        self, style: Style, tables: Sequence[str], *, reset_sequences: bool = False, allow_cascade: bool = False
    ) -> list[str]:
        """The tables, for `execute_sql_flush`."""
        return list(tables)

    def execute_sql_flush(self, sql_list: Sequence[str]) -> None:
        """Empty the tables."""
        for table in sql_list:
            self.connection.database[table].delete_many({})

    # -- what there is not ---------------------------------------------------------------------------------------------

    def _of_dates(self, *arguments: Any) -> Any:
        raise NotSupportedError("djongo has no functions of dates")

    date_extract_sql = date_trunc_sql = _of_dates
    datetime_extract_sql = datetime_trunc_sql = _of_dates
    datetime_cast_date_sql = datetime_cast_time_sql = _of_dates
    time_extract_sql = time_trunc_sql = _of_dates


def _json_text(value: Any, expression: Any, connection: Any) -> str | None:
    """The text that `JSONField` reads."""
    return None if value is None else json.dumps(value)


def _decimal(value: Any, expression: Any, connection: Any) -> Any:
    return Decimal(str(value)) if isinstance(value, Decimal128) else value
