"""The form in which an approval is answered, made from the schema that its step records.

A Django form is that form. Dataclasses, pydantic models and JSON Schemas become one field for each property: what has
no field of its own, such as a list, is written as JSON. The service validates what comes out once more.
"""

from __future__ import annotations

import dataclasses
import json
import types
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, time
from enum import Enum
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from django import forms
from django.http import QueryDict
from django.utils.translation import gettext_lazy as _

from pikku_storage.json import Json
from pikku_storage.schemas import DataclassSchema, FormSchema, JsonSchema, Problem, PydanticSchema, loaded_schema

PREFIX = "answer"
_WHOLE = "answer"
"""The field of an answer that is one value."""
_ANSWER = _("Answer")
_LONG_TEXT = 200
_MOST_CHOICES = 200

About = Mapping[str, Any]
"""The JSON Schema of one property."""


class AnswerForm(ABC):
    """A form, and how an answer is read from it. `note` says what whoever answers should know."""

    note: Any = ""
    is_plain = False
    """Whether two buttons say all there is to say."""

    form: forms.BaseForm

    def is_valid(self) -> bool:
        """Whether `decision` can be read."""
        return self.form.is_valid()

    @property
    @abstractmethod
    def decision(self) -> Json:
        """The answer."""

    def refuse(self, problems: Iterable[Problem]) -> None:
        """Put what the service found beside the fields that it is about."""
        for problem in problems:
            path = problem.get("path")
            name = path[0] if isinstance(path, list) and path else None
            if name is None and _WHOLE in self.form.fields and len(self.form.fields) == 1:
                name = _WHOLE
            self.form.add_error(name if name in self.form.fields else None, str(problem["message"]))


class _OfForm(AnswerForm):
    """A Django form. Its data is the answer: texts, and lists of texts, as a browser sends them."""

    def __init__(self, source: type[forms.BaseForm], data: QueryDict | None) -> None:
        self._data = data
        self.form = source(data=data, prefix=PREFIX)

    @property
    def decision(self) -> Json:
        """See `AnswerForm.decision`."""
        sent, start = self._data or QueryDict(), f"{PREFIX}-"
        return {name.removeprefix(start): self._value(name, sent) for name in sent if name.startswith(start)}

    def _value(self, name: str, sent: QueryDict) -> Json:
        field = self.form.fields.get(name.removeprefix(f"{PREFIX}-"))
        takes_several = isinstance(field, forms.MultipleChoiceField | forms.ModelMultipleChoiceField)
        values = sent.getlist(name)
        return [*values] if takes_several else values[-1]


class _OfFields(AnswerForm):
    """One field for each property; those that are left empty and need not be filled are no part of the answer."""

    def __init__(self, properties: Mapping[str, About], required: Iterable[str], data: QueryDict | None) -> None:
        needed = set(required)
        fields = {name: _field_of(name, about, name in needed) for name, about in properties.items()}
        self.form = type("PropertiesForm", (forms.Form,), fields)(data=data, prefix=PREFIX)

    @property
    def decision(self) -> Json:
        """See `AnswerForm.decision`."""
        return {name: _as_json(value) for name, value in self.form.cleaned_data.items() if not _is_left_out(value)}


class _OfWhole(AnswerForm):
    """An answer that is one value: of a schema without properties, or any JSON."""

    def __init__(self, about: About, data: QueryDict | None, *, note: Any = "", label: Any = _ANSWER) -> None:
        self.note = note
        field = _field_of(_WHOLE, about, True, label=label)
        self.form = type("ValueForm", (forms.Form,), {_WHOLE: field})(data=data, prefix=PREFIX)

    @property
    def decision(self) -> Json:
        """See `AnswerForm.decision`."""
        return _as_json(self.form.cleaned_data[_WHOLE])


class _YesOrNo(_OfWhole):
    """Where nothing says what an answer looks like, approving is `true` and denying is `false`."""

    is_plain = True

    def __init__(self, data: QueryDict | None) -> None:
        super().__init__({"type": "boolean"}, data)


def answer_form(recorded: Json, data: QueryDict | None = None) -> AnswerForm:
    """The form for an approval whose step records this schema, filled with what was sent."""
    if recorded is None:
        return _YesOrNo(data)
    schema = loaded_schema(recorded)
    if isinstance(schema, FormSchema):
        return _OfForm(schema.source, data)
    if isinstance(schema, DataclassSchema):
        properties, required = _of_dataclass(schema.source)
        return _OfFields(properties, required, data)
    if isinstance(schema, PydanticSchema):
        return _of_json_schema(schema.source.model_json_schema(), data)
    # A JSON Schema is recorded whole, so the form needs no package that validates it.
    if isinstance(recorded, Mapping) and recorded.get("kind") == JsonSchema.kind:
        whole = recorded.get("schema")
        return _of_json_schema(whole if isinstance(whole, Mapping) else {}, data)
    return _OfWhole(
        {},
        data,
        note=_("This server does not know what the answer must look like; the worker that goes on checks it."),
    )


def _of_json_schema(schema: About, data: QueryDict | None) -> AnswerForm:
    definitions = schema.get("$defs") or schema.get("definitions") or {}
    properties = schema.get("properties")
    if not isinstance(properties, Mapping) or not properties:
        return _OfWhole(_resolved(schema, definitions), data)
    return _OfFields(
        {str(name): _resolved(about, definitions) for name, about in properties.items()},
        schema.get("required") or (),
        data,
    )


def _resolved(about: Any, definitions: Mapping[str, Any]) -> About:
    """The schema that a reference means, and of alternatives with `null` the other one."""
    if not isinstance(about, Mapping):
        return {}
    reference = about.get("$ref")
    if isinstance(reference, str):
        found = definitions.get(reference.rpartition("/")[2])
        return {**(found if isinstance(found, Mapping) else {}), **{k: v for k, v in about.items() if k != "$ref"}}
    ways = about.get("anyOf") or about.get("oneOf")
    if isinstance(ways, list):
        others = [way for way in ways if not (isinstance(way, Mapping) and way.get("type") == "null")]
        if len(others) == 1 and len(others) < len(ways):
            return {**about, **_resolved(others[0], definitions), "anyOf": None, "nullable": True}
    kinds = about.get("type")
    if isinstance(kinds, list) and len(kinds) == 2 and "null" in kinds:
        return {**about, "type": next(kind for kind in kinds if kind != "null"), "nullable": True}
    return about


# -- dataclasses -----------------------------------------------------------------------------------------------------

_TYPES: Mapping[Any, About] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    date: {"type": "string", "format": "date"},
    datetime: {"type": "string", "format": "date-time"},
    time: {"type": "string", "format": "time"},
}


def _of_dataclass(source: type[Any]) -> tuple[dict[str, About], list[str]]:
    hints = get_type_hints(source)
    properties: dict[str, About] = {}
    required = []
    for field in dataclasses.fields(source):
        about = _of_type(hints[field.name])
        if field.default is not dataclasses.MISSING:
            about = {**about, "default": field.default}
        elif field.default_factory is dataclasses.MISSING and not about.get("nullable"):
            required.append(field.name)
        properties[field.name] = about
    return properties, required


def _of_type(hint: Any) -> About:
    if get_origin(hint) is Literal:
        return {"enum": list(get_args(hint))}
    if get_origin(hint) in (Union, types.UnionType):
        others = [each for each in get_args(hint) if each is not type(None)]
        return {**_of_type(others[0]), "nullable": True} if len(others) == 1 else {}
    if isinstance(hint, type) and issubclass(hint, Enum):
        return {"enum": [member.value for member in hint]}
    if isinstance(hint, type) and not get_args(hint) and hint not in _TYPES and hint.__module__ in {"decimal", "uuid"}:
        return _TYPES[str]
    return _TYPES.get(hint, {})


# -- fields ----------------------------------------------------------------------------------------------------------


def _field_of(name: str, about: About, needed: bool, *, label: Any = None) -> forms.Field:
    default = about.get("default")
    options: dict[str, Any] = {
        "label": label or str(about.get("title") or name.replace("_", " ").capitalize()),
        "required": needed and not about.get("nullable"),
        "help_text": str(about.get("description") or ""),
        "initial": default.value if isinstance(default, Enum) else default,
    }
    choices = [about["const"]] if "const" in about else about.get("enum")
    if isinstance(choices, list) and len(choices) <= _MOST_CHOICES:
        return _choice(choices, options)
    make = _MAKERS.get(str(about.get("type")))
    return _json(about, options) if make is None else make(about, options)


def _choice(values: list[Any], options: dict[str, Any]) -> forms.Field:
    given = options.pop("initial")
    blank = [] if options["required"] else [("", "—")]
    return forms.TypedChoiceField(
        choices=[*blank, *((json.dumps(value), str(value)) for value in values)],
        coerce=json.loads,
        empty_value=None,
        initial=None if given is None else json.dumps(given),
        **options,
    )


def _boolean(about: About, options: dict[str, Any]) -> forms.Field:
    # Not a checkbox: nobody shall deny by not having seen it.
    given = options.pop("initial")
    return forms.TypedChoiceField(
        choices=[("true", _("yes")), ("false", _("no"))],
        coerce=json.loads,
        empty_value=None,
        widget=forms.RadioSelect,
        initial=None if given is None else json.dumps(bool(given)),
        **options,
    )


def _integer(about: About, options: dict[str, Any]) -> forms.Field:
    return forms.IntegerField(min_value=about.get("minimum"), max_value=about.get("maximum"), **options)


def _number(about: About, options: dict[str, Any]) -> forms.Field:
    widget = forms.NumberInput(attrs={"step": "any"})
    return forms.FloatField(min_value=about.get("minimum"), max_value=about.get("maximum"), widget=widget, **options)


def _string(about: About, options: dict[str, Any]) -> forms.Field:
    given = str(about.get("format"))
    if given == "date":
        return forms.DateField(widget=forms.DateInput(attrs={"type": "date"}), **options)
    if given == "date-time":
        return forms.DateTimeField(widget=forms.DateTimeInput(attrs={"type": "datetime-local"}), **options)
    if given == "time":
        return forms.TimeField(widget=forms.TimeInput(attrs={"type": "time"}), **options)
    if given == "email":
        return forms.EmailField(**options)
    longest = about.get("maxLength")
    is_long = longest is None or longest > _LONG_TEXT
    return forms.CharField(
        min_length=about.get("minLength"),
        max_length=longest,
        widget=forms.Textarea(attrs={"rows": 2}) if is_long else forms.TextInput,
        empty_value=None if not options["required"] else "",
        **options,
    )


def _json(about: About, options: dict[str, Any]) -> forms.Field:
    attrs = {"rows": 4, "spellcheck": "false", "class": "pk-json"}
    return forms.JSONField(widget=forms.Textarea(attrs=attrs), **options)


_MAKERS: Mapping[str, Callable[[About, dict[str, Any]], forms.Field]] = {
    "boolean": _boolean,
    "integer": _integer,
    "number": _number,
    "string": _string,
}


def _as_json(value: Any) -> Json:
    return value.isoformat() if isinstance(value, datetime | date | time) else value


def _is_left_out(value: Any) -> bool:
    return value is None
