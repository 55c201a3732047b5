"""MongoDB through djongo (`backends.djongo`).

The documents are those of `mongodb`, and so are the writes, which go to the driver: djongo's SQL has no counterpart for
most of them. What is left to it are the reads of the ORM.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from django.db import models

from pikku_storage.db.fields import PayloadField, field_of
from pikku_storage.db.mongodb import Document, MongodbEngine, _translated
from pikku_storage.db.operations import Conditions
from pikku_storage.db.parts import Part, Parts


class DjongoEngine(MongodbEngine):
    """See the module."""

    def read(
        self,
        model: type[models.Model],
        where: Conditions,
        columns: Sequence[str],
        *,
        order_by: Sequence[str] = (),
        limit: int | None = None,
    ) -> list[dict[str, Any]]:
        """See `Engine.read`: without SQL, which djongo takes some milliseconds to parse."""
        own, foreign = _by_table(columns)
        keys = [f"{key}_id" for key in foreign]
        with _translated():
            order = [(_column(model, name), 1) for name in order_by]
            found = self._find(model, self._filter(model, where), (*own, *keys), sort=order or None, limit=limit or 0)
            rows = [self._row(model, document, own) for document in found]
            for key, names in foreign.items():
                target, column = _target(model, key), _column(model, f"{key}_id")
                ids = list({document[column] for document in found if document.get(column) is not None})
                others = {each["_id"]: each for each in self._find(target, {"_id": {"$in": ids}}, names)}
                for row, document in zip(rows, found, strict=True):
                    other = self._row(target, others[document[column]], names)
                    row |= {f"{key}__{name}": value for name, value in other.items()}
        return rows

    def read_parts(
        self,
        model: type[models.Model],
        where: Conditions,
        columns: Sequence[str],
        parts: Parts,
        *,
        order_by: Sequence[str] = (),
    ) -> list[dict[str, Any]]:
        """See `Engine.read_parts`: a path is projected, and conditions are looked at here."""
        of_parts = [part for each in parts.values() for part in each]
        own = {*columns, *(name for part in of_parts for name in part.where)}
        projection = {_column(model, name): 1 for name in own}
        projection |= {f"{_column(model, part.column)}.{part.key}": 1 for part in of_parts}
        order = [(_column(model, name), 1) for name in order_by]
        with _translated():
            found = self._call(model._meta.db_table, "find", self._filter(model, where), projection, sort=order or None)
            return [
                {
                    **self._row(model, document, columns),
                    **{name: self._part(model, document, each) for name, each in parts.items()},
                }
                for document in found
            ]

    def _part(self, model: type[models.Model], document: Document, parts: Sequence[Part]) -> str | None:
        for part in parts:
            if all(
                document.get(_column(model, name)) == self._value(model, name, value)
                for name, value in part.where.items()
            ):
                return _text(document.get(_column(model, part.column)), part)
        return None

    def _find(
        self, model: type[models.Model], where: Document, columns: Sequence[str], **options: Any
    ) -> list[Document]:
        chosen = {_column(model, name): 1 for name in columns}
        return list(self._call(model._meta.db_table, "find", where, chosen, **options))

    def _row(self, model: type[models.Model], document: Document, names: Sequence[str]) -> dict[str, Any]:
        return {name: self._read_value(model, name, document.get(_column(model, name))) for name in names}

    def _read_value(self, model: type[models.Model], name: str, value: Any) -> Any:
        field = field_of(model, name)
        if value is None or isinstance(field, PayloadField):
            return value
        expression = field.get_col(model._meta.db_table)
        connection = self.connection
        for convert in (*connection.ops.get_db_converters(expression), *expression.get_db_converters(connection)):
            value = convert(value, expression, connection)
        return value


def _column(model: type[models.Model], name: str) -> str:
    return str(field_of(model, name).column)


def _text(payload: Any, part: Part) -> str | None:
    value = payload.get(part.key) if isinstance(payload, dict) else None
    text = value if value is None or isinstance(value, str) else json.dumps(value)
    return text if text is None else text[: part.most]


def _by_table(columns: Sequence[str]) -> tuple[list[str], dict[str, list[str]]]:
    """The columns of the table itself, and those of each foreign key's."""
    own, foreign = [], defaultdict(list)
    for name in columns:
        key, _, of_other = name.partition("__")
        if of_other:
            foreign[key].append(of_other)
        else:
            own.append(name)
    return own, foreign


def _target(model: type[models.Model], key: str) -> type[models.Model]:
    target: type[models.Model] = model._meta.get_field(key).related_model  # type: ignore[assignment]
    return target
