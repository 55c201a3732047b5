"""Credentials: everybody's and each user's, side by side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pikku_storage.crypto import envelope
from pikku_storage.exceptions import (
    InvalidCredentialError,
    NothingToRotateError,
    PayloadError,
    SecretAccessDeniedError,
    SecretDecryptionError,
)
from pikku_storage.secrets.credentials import CredentialService
from pikku_storage.secrets.keyring import Keyring
from pikku_storage.secrets.keys import Purpose, StaticKeys
from pikku_storage.secrets.models import Credential, CredentialAudit, CredentialKekSalt, SecretKekSalt
from pikku_storage.secrets.values import SecretValue
from tests.secret_keys import NEXT_PASSPHRASE

pytestmark = pytest.mark.django_db(transaction=True)

UseKeys = Callable[..., None]


@pytest.fixture
def credentials(use_keys: UseKeys) -> CredentialService:
    return CredentialService()


@pytest.fixture
def shared(credentials: CredentialService) -> CredentialService:
    """`google` of everybody and of two users, and another one of the first."""
    credentials.set("google", {"of": "all"})
    for user in ("user-1", "user-2"):
        credentials.set("google", {"of": user}, user)
    credentials.set("stripe", {"of": "user-1"}, "user-1")
    return credentials


def revealed(values: dict[str, SecretValue]) -> dict[str, Any]:
    return {name: value.reveal() for name, value in values.items()}


def owner(service: CredentialService, name: str, user: str | None = None) -> Any:
    value = service.get(name, user)
    return None if value is None else value.reveal()["of"]


@pytest.mark.contract("CR-01")
@pytest.mark.parametrize("value", [{"apiKey": "k"}, "text", 0, None, [], ""], ids=repr)
@pytest.mark.parametrize("form", ["bound", "compatible"])
def test_any_json_is_stored_and_read(use_keys: UseKeys, value: Any, form: str) -> None:
    use_keys(SECRET_FORMAT=form)
    CredentialService().set("stripe", value)

    read = CredentialService().get("stripe")
    assert read is not None
    assert read.reveal() == value
    assert read == value
    assert Credential.objects.get().ciphertext.startswith("pk2.") == (form == "bound")
    assert not SecretKekSalt.objects.exists(), "its salts are its own"
    assert CredentialKekSalt.objects.count() == 1


@pytest.mark.contract("CR-02", "CR-03", "CR-05")
def test_existence(credentials: CredentialService) -> None:
    assert credentials.get("stripe") is None
    assert not credentials.has("stripe")
    credentials.set("stripe", "k")
    assert credentials.has("stripe")
    credentials.delete("stripe")
    credentials.delete("stripe")
    assert not credentials.has("stripe")


@pytest.mark.contract("CR-04")
def test_the_second_value_counts(credentials: CredentialService) -> None:
    credentials.set("stripe", "one", "user-1")
    credentials.set("stripe", "two", "user-1")
    assert credentials.get("stripe", "user-1") == "two"
    assert Credential.objects.count() == 1


@pytest.mark.contract("CR-06", "CR-07", "CR-08")
def test_each_has_their_own(shared: CredentialService) -> None:
    assert [owner(shared, "google", user) for user in (None, "user-1", "user-2", "user-3")] == [
        "all",
        "user-1",
        "user-2",
        None,
    ]
    shared.delete("google", "user-1")
    assert [owner(shared, "google", user) for user in (None, "user-1", "user-2")] == ["all", None, "user-2"]
    shared.delete("google")
    assert [owner(shared, "google", user) for user in (None, "user-2")] == [None, "user-2"]


def test_an_empty_user_is_nobody(shared: CredentialService) -> None:
    assert owner(shared, "google", "") == "all"
    assert shared.get_all("") == {}


@pytest.mark.contract("CR-09", "CR-10")
def test_all_of_a_user_and_of_nobody_else(shared: CredentialService) -> None:
    assert revealed(shared.get_all("user-1")) == {"google": {"of": "user-1"}, "stripe": {"of": "user-1"}}
    assert shared.get_all("user-3") == {}


def test_who_has_what(shared: CredentialService) -> None:
    assert shared.get_users_with_credential("google") == ["user-1", "user-2"]
    assert shared.get_users_with_credential("stripe") == ["user-1"]
    assert shared.get_users_with_credential("nothing") == []
    assert shared.get_all_users() == ["user-1", "user-2"]


def test_names_and_users_are_never_taken_for_each_other(credentials: CredentialService) -> None:
    pairs = [("a", "b\x1fc"), ("a\x1fb", "c"), ('a", "b', "c"), ("A", "b\x1fc"), ("a", None)]
    for name, user in pairs:
        credentials.set(name, {"of": [name, user]}, user)
    assert [owner(credentials, *pair) for pair in pairs] == [list(pair) for pair in pairs]


@pytest.mark.parametrize(("name", "user"), [("", None), ("a", 5), ("a", "x" * 256), ("a\x00", None)])
def test_names_that_cannot_be_stored_are_refused(credentials: CredentialService, name: Any, user: Any) -> None:
    with pytest.raises(PayloadError):
        credentials.set(name, "v", user)


# -- keys --------------------------------------------------------------------------------------------------------------


@pytest.mark.contract("CR-11")
@pytest.mark.parametrize("form", ["bound", "compatible"])
def test_rotation(use_keys: UseKeys, shared: CredentialService, form: str) -> None:
    use_keys(SECRET_FORMAT=form)
    shared.set("google", {"of": "user-2"}, "user-2")
    use_keys(2, SECRET_AUDIT=True)
    assert owner(shared, "google", "user-2") == "user-2"
    assert CredentialService().rotate_kek() == 4
    use_keys(2, SECRET_PREVIOUS_KEKS={})
    assert [owner(shared, "google", user) for user in (None, "user-1", "user-2")] == ["all", "user-1", "user-2"]
    rotated: Any = CredentialAudit.objects.filter(action="rotate")
    assert sorted(rotated.values_list("credential_name", "user_id"), key=str) == [
        ("google", "user-1"),
        ("google", "user-2"),
        ("google", None),
        ("stripe", "user-1"),
    ]


@pytest.mark.contract("CR-12")
def test_rotation_needs_a_previous_key(credentials: CredentialService) -> None:
    with pytest.raises(NothingToRotateError, match=r"^No previousKey configured — nothing to rotate from$"):
        credentials.rotate_kek()


def test_what_does_not_open_is_named_with_its_owner(shared: CredentialService) -> None:
    wrong = CredentialService(keys=StaticKeys(NEXT_PASSPHRASE))
    for read in (lambda: wrong.get("google", "user-1"), lambda: wrong.get_all("user-1")):
        with pytest.raises(SecretDecryptionError, match=r'credential "\w+" of user "user-1" \(key_version 1\)'):
            read()
    with pytest.raises(SecretDecryptionError, match=r'credential "google" \(key_version 1\)'):
        wrong.get("google")


@pytest.mark.parametrize("change", [{"name": "google"}, {"user_id": "user-2"}, {"user_id": None}])
def test_a_row_that_was_given_to_somebody_else_does_not_open(
    shared: CredentialService, change: dict[str, str | None]
) -> None:
    row = Credential.objects.get(name="stripe")
    target = {"name": "stripe", "user_id": "user-1", **change}
    Credential.objects.filter(pk=row.pk).delete()
    pk = Credential.id_of(str(target["name"]), target["user_id"])
    values = {name: getattr(row, name) for name in ("ciphertext", "wrapped_dek", "key_version")}
    at = {"created_at": row.created_at, "updated_at": row.updated_at}
    Credential.objects.update_or_create(pk=pk, defaults={**target, **values, **at})

    with pytest.raises(SecretDecryptionError, match="moved here from another name, owner or table"):
        shared.get(str(target["name"]), target["user_id"])


@pytest.mark.parametrize("inner", ['"hunter2', "{'hunter2'}", {"hunter2": 1}, 5])
def test_what_is_no_json_inside_is_named_and_not_quoted(credentials: CredentialService, inner: Any) -> None:
    credentials.set("stripe", "k")
    kek = next(Keyring(Purpose.CREDENTIALS).keks_to_read(1))
    Credential.objects.update(**envelope.encrypt(kek, inner)._asdict())

    with pytest.raises(InvalidCredentialError, match=r"^Credential 'stripe' contains invalid data$") as caught:
        credentials.get("stripe")
    assert caught.value.__context__ is None


# -- audit and scope ---------------------------------------------------------------------------------------------------


@pytest.mark.contract("KS-08", "KS-09")
def test_writes_reads_and_deletes_are_audited(use_keys: UseKeys, ticking: None) -> None:
    use_keys(SECRET_AUDIT_READS=True)
    service = CredentialService()
    service.set("google", "v", "user-1")
    service.get("google", "user-1")
    service.get_all("user-1")
    service.delete("google", "user-1")
    service.set("stripe", "v")
    service.get("stripe")

    audited: Any = CredentialAudit.objects.order_by("performed_at", "id")
    assert list(audited.values_list("action", "credential_name", "user_id")) == [
        ("write", "google", "user-1"),
        ("read", "google", "user-1"),
        ("read", "google", "user-1"),
        ("delete", "google", "user-1"),
        ("write", "stripe", None),
        ("read", "stripe", None),
    ]


@pytest.mark.contract("LC-08")
def test_a_scoped_service_reaches_declared_credentials(shared: CredentialService) -> None:
    scoped = shared.scoped(["google"])

    assert scoped.get("google", "user-1") == {"of": "user-1"}
    assert scoped.has("google")
    scoped.set("google", {"of": "new"}, "user-3")
    assert owner(shared, "google", "user-3") == "new"
    scoped.delete("google", "user-3")
    assert revealed(scoped.get_all("user-1")) == {"google": {"of": "user-1"}}
    assert scoped.get_users_with_credential("google") == ["user-1", "user-2"]
    refused: list[Callable[[], Any]] = [
        lambda: scoped.get("stripe", "user-1"),
        lambda: scoped.has("stripe"),
        lambda: scoped.set("stripe", "v"),
        lambda: scoped.delete("stripe"),
        lambda: scoped.get_users_with_credential("stripe"),
    ]
    for operation in refused:
        with pytest.raises(SecretAccessDeniedError, match=r"^Access denied to credential: stripe$"):
            operation()
    with pytest.raises(SecretAccessDeniedError, match=r"^Access denied to the users of all credentials$"):
        scoped.get_all_users()
    assert shared.scoped([]).get_all("user-1") == {}
