"""What an answer or a memory must look like: a Django form, a dataclass, a pydantic model or a JSON Schema.

Code names the schema. What is stored records only how it is called (`Schema.name`), so that whoever draws or checks an
answer elsewhere finds the same one, if its module is loaded there. What is validated is JSON, and so is what comes out.
"""

from __future__ import annotations

import dataclasses
import logging
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import reduce
from typing import Any, Generic, TypeAlias, TypeVar
from uuid import UUID

from dacite import Config, DaciteError, DaciteFieldError, from_dict
from django.core.exceptions import NON_FIELD_ERRORS
from django.db import Error as DatabaseError
from django.db.models import Model, QuerySet
from django.forms import BaseForm

from pikku_storage.exceptions import InvalidSchemaError, PayloadError
from pikku_storage.json import Json, to_json, to_json_object

logger = logging.getLogger(__name__)

_DECIMAL = re.compile(r"[+-]?\d+(\.\d+)?")
_FROM_TEXT: dict[Any, Any] = {
    date: date.fromisoformat,
    datetime: datetime.fromisoformat,
    time: time.fromisoformat,
    Decimal: lambda text: Decimal(text) if _DECIMAL.fullmatch(text) else text,
    UUID: UUID,
}
"""What the fields of a dataclass may be that JSON has only as text."""

T = TypeVar("T")
SchemaSource: TypeAlias = "type[Any] | Mapping[str, Any]"
"""What a `schema=…` takes."""
Problem: TypeAlias = dict[str, Json]
"""`{message, path}`: what is wrong, and the keys and indexes that lead to it."""


class AnswerInvalidError(ValueError):
    """An answer does not fit its schema."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("; ".join(str(problem["message"]) for problem in problems))
        self.problems = problems


class Schema(ABC, Generic[T]):
    """One kind of schema."""

    kind: str

    def __init__(self, source: T) -> None:
        self.source = source

    def validate(self, answer: Json) -> Json:
        """What comes of this answer, as JSON; raises `AnswerInvalidError`."""
        try:
            return to_json(_plain(self._validated(answer)), root="$answer")
        except (AnswerInvalidError, DatabaseError):
            raise
        except PayloadError as error:
            raise AnswerInvalidError([_problem(str(error))]) from error
        except Exception as error:
            # A fault in somebody's validation must not decide an approval, nor fail the run.
            logger.exception("The schema %s cannot be applied", self.name)
            raise AnswerInvalidError(
                [_problem(f"The schema cannot be applied: {type(error).__name__}: {error}")]
            ) from error

    @property
    def name(self) -> dict[str, Json]:
        """How a step records the schema."""
        kind: Any = self.source
        return {"kind": self.kind, "path": f"{kind.__module__}:{kind.__qualname__}"}

    @property
    @abstractmethod
    def fields(self) -> dict[str, str]:
        """The fields, and what each takes, in a few words for people and models."""

    @abstractmethod
    def _validated(self, answer: Json) -> Any: ...


class FormSchema(Schema[type[BaseForm]]):
    """A Django form: the answer is its data, and its cleaned data is what comes of it."""

    kind = "form"

    @property
    def fields(self) -> dict[str, str]:
        """See `Schema.fields`."""
        return {
            name: _described(type(field).__name__.removesuffix("Field").lower(), str(field.help_text))
            for name, field in self.source.base_fields.items()  # type: ignore[attr-defined]
        }

    def _validated(self, answer: Json) -> Any:
        form = self.source(data=_object(answer))
        if not form.is_valid():
            raise AnswerInvalidError(
                [
                    _problem(str(message), *([] if field == NON_FIELD_ERRORS else [field]))
                    for field, errors in form.errors.items()
                    for message in errors
                ]
            )
        return form.cleaned_data


class DataclassSchema(Schema[type[Any]]):
    """A dataclass: the answer has its fields, with values of their types."""

    kind = "dataclass"

    @property
    def fields(self) -> dict[str, str]:
        """See `Schema.fields`."""
        return {field.name: _type_text(field.type) for field in dataclasses.fields(self.source)}

    def _validated(self, answer: Json) -> Any:
        try:
            made = from_dict(self.source, _object(answer), Config(strict=True, cast=[Enum], type_hooks=_FROM_TEXT))
        except DaciteFieldError as error:
            raise AnswerInvalidError([_problem(str(error), *(error.field_path or "").split("."))]) from None
        except (DaciteError, ValueError, TypeError) as error:
            # A ValueError is from its own __post_init__.
            raise AnswerInvalidError([_problem(str(error))]) from None
        return dataclasses.asdict(made)


class PydanticSchema(Schema[type[Any]]):
    """A pydantic model."""

    kind = "pydantic"

    @property
    def fields(self) -> dict[str, str]:
        """See `Schema.fields`."""
        return _properties_of(self.source.model_json_schema())

    def _validated(self, answer: Json) -> Any:
        from pydantic import ValidationError

        try:
            return self.source.model_validate(answer).model_dump(mode="json")
        except ValidationError as error:
            raise AnswerInvalidError([_problem(each["msg"], *each["loc"]) for each in error.errors()]) from None


class JsonSchema(Schema[Mapping[str, Any]]):
    """A JSON Schema, of the draft that its `$schema` names (the newest by default). Needs the package `jsonschema`."""

    kind = "json"

    def __init__(self, source: Mapping[str, Any]) -> None:
        plain = to_json_object(source, root="$schema")
        super().__init__(plain)
        try:
            from jsonschema.exceptions import SchemaError
            from jsonschema.validators import validator_for
        except ImportError:
            raise InvalidSchemaError(
                'A JSON Schema needs the package jsonschema: install "django-pikku-storage[jsonschema]"'
            ) from None
        validator = validator_for(plain)
        try:
            validator.check_schema(plain)
        except SchemaError as error:
            raise InvalidSchemaError(f"The schema is no JSON Schema: {error.message}") from None
        self._validator = validator(plain)

    @property
    def name(self) -> dict[str, Json]:
        """A JSON Schema is recorded whole."""
        return {"kind": self.kind, "schema": dict(self.source)}

    @property
    def fields(self) -> dict[str, str]:
        """See `Schema.fields`."""
        return _properties_of(self.source)

    def _validated(self, answer: Json) -> Any:
        problems = [_problem(error.message, *error.absolute_path) for error in self._validator.iter_errors(answer)]
        if problems:
            raise AnswerInvalidError(problems)
        return answer


def schema_of(source: SchemaSource) -> Schema[Any]:
    """The schema that is meant; raises `InvalidSchemaError` if it is none."""
    if isinstance(source, Mapping):
        return JsonSchema(source)
    if isinstance(source, type):
        if issubclass(source, BaseForm):
            return FormSchema(source)
        if dataclasses.is_dataclass(source):
            return DataclassSchema(source)
        # Whoever made a pydantic model has imported pydantic.
        pydantic = sys.modules.get("pydantic")
        if pydantic is not None and issubclass(source, pydantic.BaseModel):
            return PydanticSchema(source)
    raise InvalidSchemaError(
        f"A schema is a Django form, a dataclass, a pydantic model or a JSON Schema (a dict), not {source!r}"
    )


def loaded_schema(name: Json) -> Schema[Any] | None:
    """The schema that a step records, if it is at hand: `None` if its module is not loaded in this process.

    Nothing is imported for it, because the name comes from the database.
    """
    if not isinstance(name, dict):
        return None
    try:
        if name.get("kind") == JsonSchema.kind:
            return JsonSchema(name["schema"])
        module, _, path = str(name["path"]).partition(":")
        return schema_of(reduce(getattr, path.split("."), sys.modules[module]))  # type: ignore[arg-type]
    except (KeyError, AttributeError, InvalidSchemaError):
        return None


def _properties_of(schema: Mapping[str, Any]) -> dict[str, str]:
    """The fields of a JSON Schema's own properties."""
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return {}
    found = {}
    for name, given in properties.items():
        about = given if isinstance(given, Mapping) else {}
        kinds = about.get("type") or [each.get("type") for each in about.get("anyOf", ()) if isinstance(each, Mapping)]
        kind = kinds if isinstance(kinds, str) else " or ".join(str(each) for each in kinds if each)
        found[str(name)] = _described(kind or "any JSON", str(about.get("description") or ""))
    return found


def _described(kind: str, description: str) -> str:
    return f"{kind}: {description}" if description else kind


def _type_text(annotation: Any) -> str:
    # `list[str]` is an instance of a class of its own, and has the name of `list`.
    is_plain = isinstance(annotation, type) and not hasattr(annotation, "__args__")
    return annotation.__name__ if is_plain else str(annotation)


def _problem(message: str, *path: Json) -> Problem:
    return {"message": message, "path": [part for part in path if part != ""]}


def _object(answer: Json) -> dict[str, Json]:
    if not isinstance(answer, dict):
        raise AnswerInvalidError([_problem("The answer must be an object with the fields of the schema")])
    return answer


def _plain(value: Any) -> Any:
    """`value` with the objects that forms and dataclasses make in it written as text, and model instances as their
    keys."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, Model):
        return _plain(value.pk)
    if isinstance(value, Enum):
        return _plain(value.value)
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Decimal | UUID):
        return str(value)
    if isinstance(value, list | tuple | QuerySet):
        return [_plain(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted(_plain(item) for item in value)
    return value
