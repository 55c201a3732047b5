"""What an answer must look like."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from typing import Any, Literal
from uuid import UUID

import pydantic
import pytest
from django import forms
from django.contrib.auth.models import User

from pikku_storage.exceptions import InvalidSchemaError
from pikku_storage.schemas import AnswerInvalidError, loaded_schema, schema_of

KEY = "01a22b99-c9de-74cc-8c5a-40ccde0fc2f8"


class Size(Enum):
    SMALL = "s"
    LARGE = "l"


@dataclass
class Line:
    sku: str
    quantity: int = 1


@dataclass
class Parcel:
    size: Size
    lines: list[Line]
    weight: Decimal
    day: date
    at: datetime
    until: time
    key: UUID
    kind: Literal["letter", "box"] = "box"
    note: str | None = None
    tags: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.lines:
            raise ValueError("a parcel is not empty")


PARCEL: dict[str, Any] = {
    "size": "l",
    "lines": [{"sku": "tea", "quantity": 2}, {"sku": "pot"}],
    "weight": "1.50",
    "day": "2026-03-02",
    "at": "2026-03-02T09:00:00+00:00",
    "until": "17:30:00",
    "key": KEY,
}


class Model(pydantic.BaseModel):
    amount: int = pydantic.Field(le=100)
    day: date | None = None


class Form(forms.Form):
    amount = forms.DecimalField(max_digits=5, decimal_places=2)
    days = forms.MultipleChoiceField(choices=[("mo", "Monday"), ("tu", "Tuesday")], required=False)
    day = forms.DateField(required=False)

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        if cleaned.get("amount") == 13:
            raise forms.ValidationError("not thirteen")
        return cleaned


class PersonForm(forms.Form):
    person = forms.ModelChoiceField(User.objects.all())
    others = forms.ModelMultipleChoiceField(User.objects.all(), required=False)


def problems(schema: Any, answer: Any) -> list[dict[str, Any]]:
    with pytest.raises(AnswerInvalidError) as caught:
        schema_of(schema).validate(answer)
    return caught.value.problems


def test_a_dataclass_is_built_and_written_as_json() -> None:
    assert schema_of(Parcel).validate(PARCEL) == {
        **PARCEL,
        "lines": [{"sku": "tea", "quantity": 2}, {"sku": "pot", "quantity": 1}],
        "kind": "box",
        "note": None,
        "tags": {},
    }


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"lines": [{"sku": 3}]}, "lines.sku"),
        ({"note": 3}, "note"),
        ({"tags": {"a": "b"}}, "tags"),
        ({"kind": "bag"}, "kind"),
        ({"weight": "heavy"}, "weight"),
    ],
    ids=repr,
)
def test_a_dataclass_takes_its_types_only(change: dict[str, Any], path: str) -> None:
    (problem,) = problems(Parcel, {**PARCEL, **change})
    assert ".".join(problem["path"]).startswith(path.split(".")[0])


@pytest.mark.parametrize(
    "change",
    [{"lines": []}, {"more": 1}, {"size": "xl"}, {"day": "tomorrow"}, {"key": "none"}, {"lines": None}],
    ids=repr,
)
def test_a_dataclass_refuses_what_cannot_be_built(change: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    assert problems(Parcel, {**PARCEL, **change})
    assert caplog.records == [], "and it is no fault of the schema"


def test_a_missing_field_is_named() -> None:
    (problem,) = problems(Line, {})
    assert problem["path"] == ["sku"]


def test_a_form_is_cleaned_and_written_as_json() -> None:
    cleaned = schema_of(Form).validate({"amount": 1.5, "days": ["mo", "tu"], "day": "2026-03-02"})
    assert cleaned == {"amount": "1.5", "days": ["mo", "tu"], "day": "2026-03-02"}


def test_every_problem_of_a_form_is_told() -> None:
    found = problems(Form, {"amount": "x", "days": ["su"]})
    assert [problem["path"] for problem in found] == [["amount"], ["days"]]
    assert problems(Form, {"amount": 13}) == [{"message": "not thirteen", "path": []}]


@pytest.mark.django_db
def test_the_users_that_a_form_chooses_are_their_keys() -> None:
    ada, bob = (User.objects.create(username=name) for name in ("ada", "bob"))
    cleaned = schema_of(PersonForm).validate({"person": ada.pk, "others": [ada.pk, bob.pk]})
    assert cleaned["person"] == ada.pk
    assert sorted(cleaned["others"]) == sorted([ada.pk, bob.pk])


def test_a_pydantic_model_is_validated_and_dumped() -> None:
    assert schema_of(Model).validate({"amount": 3, "day": "2026-03-02"}) == {"amount": 3, "day": "2026-03-02"}
    (problem,) = problems(Model, {"amount": 300})
    assert problem["path"] == ["amount"]


def test_a_json_schema_tells_every_problem() -> None:
    schema = {"type": "object", "properties": {"lines": {"type": "array", "items": {"type": "integer"}}}}
    assert schema_of(schema).validate({"lines": [1, 2]}) == {"lines": [1, 2]}
    found = problems(schema, {"lines": [1, "two", "three"]})
    assert [problem["path"] for problem in found] == [["lines", 1], ["lines", 2]]


def test_a_json_schema_needs_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jsonschema.exceptions", None)
    with pytest.raises(InvalidSchemaError, match=r"django-pikku-storage\[jsonschema\]"):
        schema_of({"type": "object"})


@pytest.mark.parametrize("source", [{"type": "nonsense"}, int, 3, "form", None], ids=repr)
def test_what_is_no_schema_is_refused(source: Any) -> None:
    with pytest.raises(InvalidSchemaError):
        schema_of(source)


@pytest.mark.parametrize("source", [Form, Parcel, Model, {"type": "object"}], ids=repr)
def test_a_schema_is_found_again_by_its_name(source: Any) -> None:
    schema = schema_of(source)
    found = loaded_schema(schema.name)
    assert found is not None
    assert (type(found), found.source) == (type(schema), schema.source)


@pytest.mark.parametrize(
    "name",
    [
        None,
        "form",
        {},
        {"kind": "form", "path": "this.module.is.not:There"},
        {"kind": "form", "path": f"{__name__}:NotThere"},
        {"kind": "form", "path": "os:system"},
        {"kind": "json", "schema": {"type": "nonsense"}},
    ],
    ids=repr,
)
def test_a_name_that_leads_nowhere_is_no_schema(name: Any) -> None:
    loaded_schema({"kind": "json", "schema": {}})
    before = set(sys.modules)
    assert loaded_schema(name) is None
    assert set(sys.modules) == before, "nothing is imported for it"


def test_a_schema_defined_in_a_function_is_not_at_hand_elsewhere() -> None:
    class Local(forms.Form):
        pass

    assert loaded_schema(schema_of(Local).name) is None


def test_the_fields_of_a_schema_are_told_in_a_few_words() -> None:
    given = {
        "city": {"type": "string", "description": "where they live"},
        "age": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "any": True,
    }
    assert schema_of({"properties": given}).fields == {
        "city": "string: where they live",
        "age": "integer or null",
        "any": "any JSON",
    }
    assert schema_of({"type": "object"}).fields == {}
    for source in (Form, Parcel, Model):
        fields = schema_of(source).fields
        assert fields
        assert all(fields.values())
