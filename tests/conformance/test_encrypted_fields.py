"""Fields of other apps' models that are encrypted at rest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.core import serializers
from django.core.exceptions import FieldError
from django.db import models
from django.db.models.functions import Upper
from django.forms import modelform_factory
from django.test.utils import isolate_apps

from pikku_storage.exceptions import KeyNotAvailableError, PayloadError, SecretDecryptionError, SecretError
from pikku_storage.secrets import SecretValue
from pikku_storage.secrets.fields import EncryptedJSONField, EncryptedTextField
from tests.shelf.models import Box, put_raw, raw

pytestmark = pytest.mark.django_db(transaction=True)

UseKeys = Callable[..., None]


@pytest.fixture
def box(use_keys: UseKeys) -> Box:
    return Box.objects.create(id="A", note="under the stone", map={"x": [1, 2.5, None, "☕"]})


def test_values_are_sealed_and_opened(box: Box) -> None:
    read = Box.objects.get(pk="A")
    assert (read.note, read.map) == ("under the stone", {"x": [1, 2.5, None, "☕"]})
    assert list(Box.objects.values_list("note", flat=True)) == ["under the stone"]
    assert list(Box.objects.values("map")) == [{"map": {"x": [1, 2.5, None, "☕"]}}]
    for column in ("note", "treasure_map"):
        assert raw("A", column).startswith("pk2.1.")
        assert "stone" not in raw("A", column)


@pytest.mark.parametrize("value", ["", "text", "☕ 🚀", "[secret]"])
def test_any_text(use_keys: UseKeys, value: str) -> None:
    Box.objects.create(id="A", note=value)
    assert Box.objects.get().note == value


@pytest.mark.parametrize("value", ["", 0, False, [], {}, {"a": {"b": [None]}}, 2**53, "null"])
def test_any_json(use_keys: UseKeys, value: Any) -> None:
    Box.objects.create(id="A", map=value)
    assert Box.objects.get().map == value


def test_nothing_is_null(use_keys: UseKeys) -> None:
    Box.objects.create(id="A")
    box = Box.objects.get()
    assert (box.note, box.map) == (None, None)
    assert Box.objects.filter(note__isnull=True, map__isnull=True).count() == 1


def test_however_it_is_saved_it_is_sealed_once(box: Box) -> None:
    def save() -> None:
        read = Box.objects.get()
        read.label = "changed"
        read.save()

    def update_many() -> None:
        read = Box.objects.get()
        Box.objects.bulk_update([read], ["note", "label"])

    def insert_many() -> None:
        read = Box.objects.get()
        Box.objects.all().delete()
        Box.objects.bulk_create([read])

    ways: list[Callable[[], Any]] = [
        save,
        update_many,
        insert_many,
        lambda: Box.objects.get().save(update_fields=["note"]),
        lambda: Box.objects.update(note="under the stone"),
        lambda: Box.objects.update(note=SecretValue("under the stone")),
        lambda: Box.objects.update_or_create(pk="A", defaults={"note": "under the stone"}),
        lambda: Box.objects.update(note=models.Value("under the stone")),
    ]
    for way in ways:
        way()
        assert Box.objects.get().note == "under the stone"
        assert raw("A", "note").count(".") == 3


def test_what_is_sealed_already_is_not_sealed_again(box: Box) -> None:
    for column in ("note", "map"):
        with pytest.raises(SecretError, match=rf"^The value of field shelf.Box.{column} is sealed already"):
            Box.objects.update(**{column: raw("A", "note")})
    assert Box.objects.get().note == "under the stone"


@pytest.mark.parametrize("value", [5, {"hunter2": 1}, ["hunter2"]])
def test_only_text_is_text(box: Box, value: Any) -> None:
    with pytest.raises(SecretError, match=r"^The value of field shelf\.Box\.note is no text$"):
        Box.objects.update(note=value)


def test_what_is_no_json_is_refused_and_not_quoted(box: Box) -> None:
    with pytest.raises(PayloadError, match=r"^field shelf\.Box\.map: ") as caught:
        Box.objects.update(map={"hunter2": {1, 2}})
    assert "hunter2" not in str(caught.value)


def test_the_database_computes_no_value(box: Box) -> None:
    """It would have to see it, and would store it as it is."""
    for computed in (models.F("label"), Upper(models.Value("x")), Box.objects.values("label")[:1]):
        with pytest.raises(SecretError, match=r"^The value of field shelf\.Box\.note cannot be computed"):
            Box.objects.update(note=computed)
        if not isinstance(computed, models.QuerySet | models.F):
            with pytest.raises(SecretError, match="cannot be computed"):
                Box.objects.create(id="B", note=computed)
    assert Box.objects.get().note == "under the stone"


def test_many_different_values_are_updated_at_once(use_keys: UseKeys) -> None:
    boxes = Box.objects.bulk_create([Box(id=f"{number}", note="old", map=number) for number in range(5)])
    for box in boxes:
        box.note = None if box.id == "3" else f"note {box.id}"
        box.map = {"n": box.id}
    assert Box.objects.bulk_update(boxes, ["note", "map"], batch_size=2) == 5
    assert [(box.note, box.map) for box in Box.objects.order_by("id")] == [
        (None if n == 3 else f"note {n}", {"n": str(n)}) for n in range(5)
    ]


def test_nothing_but_isnull_can_be_looked_up(box: Box) -> None:
    for lookup in ("note", "note__startswith", "note__in", "map__x", "map__contains"):
        with pytest.raises(FieldError):
            list(Box.objects.filter(**{lookup: "x"}))


# -- what does not open ------------------------------------------------------------------------------------------------


def test_a_value_of_another_column_does_not_open(box: Box) -> None:
    put_raw("A", "note", raw("A", "treasure_map"))
    with pytest.raises(SecretDecryptionError) as caught:
        Box.objects.get()
    assert str(caught.value) == (
        "Failed to decrypt field shelf.Box.note (key_version 1): "
        "the key fits, so the row was changed, or moved here from another name, owner or table"
    )


@pytest.mark.parametrize("text", ["plain text", "", "pk2.1.AAAA.AAAA", "pk2.x.y.z"])
def test_a_text_that_was_never_sealed_is_not_answered_with(box: Box, text: str) -> None:
    put_raw("A", "note", text)
    with pytest.raises(
        SecretDecryptionError, match=r"^Failed to decrypt field shelf\.Box\.note \(key_version "
    ) as caught:
        Box.objects.get()
    assert "plain" not in str(caught.value)
    assert Box.objects.defer("note").get().map == {"x": [1, 2.5, None, "☕"]}


def test_a_version_without_a_key_is_named(use_keys: UseKeys) -> None:
    use_keys(2)
    Box.objects.create(id="A", note="v")
    assert raw("A", "note").startswith("pk2.2.")
    use_keys(1)
    with pytest.raises(KeyNotAvailableError, match="key_version 2"):
        Box.objects.get()
    use_keys(1, SECRET_KEK=None)
    with pytest.raises(KeyNotAvailableError, match="key_version 1"):
        Box.objects.create(id="B", note="v")


# -- models and everything else ----------------------------------------------------------------------------------------


def test_values_of_a_renamed_column_open_under_their_old_name(box: Box) -> None:
    stored = raw("A", "note")
    with isolate_apps("tests.shelf"):

        class Crate(models.Model):  # noqa: DJ008
            memo = EncryptedTextField(bound_as="shelf_box.note")

            class Meta:
                app_label = "shelf"

        field: Any = Crate._meta.get_field("memo")
        assert field.from_db_value(stored, None, None) == "under the stone"
        _, path, _, options = field.deconstruct()
        assert (path, options) == ("pikku_storage.secrets.fields.EncryptedTextField", {"bound_as": "shelf_box.note"})


def test_options_that_need_a_visible_value_are_an_error() -> None:
    with isolate_apps("tests.shelf"):

        class Crate(models.Model):  # noqa: DJ008
            memo = EncryptedTextField(unique=True)
            notes = EncryptedJSONField(db_index=True)
            fine = EncryptedJSONField(null=True, blank=True)

            class Meta:
                app_label = "shelf"

        found = [message for field in Crate._meta.local_fields for message in field.check()]
    assert [message.id for message in found] == ["pikku.E106"] * 2
    assert all(message.hint for message in found)


@pytest.mark.parametrize("form", ["json", "python"])
def test_it_is_not_serialized(box: Box, form: str) -> None:
    with pytest.raises(SecretError, match=r"^The field shelf\.Box\.note is not serialized"):
        serializers.serialize(form, [box])
    assert serializers.serialize(form, [box], fields=["label"])


def test_forms(box: Box) -> None:
    form_class = modelform_factory(Box, fields=["note", "map"])
    form = form_class({"note": "elsewhere", "map": '{"y": 2}'}, instance=box)
    assert form.is_valid(), form.errors
    form.save()

    read = Box.objects.get()
    assert (read.note, read.map) == ("elsewhere", {"y": 2})
    assert "elsewhere" in form_class(instance=read).as_p()
