"""Secrets: stored sealed, read back, audited."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import transaction

from pikku_storage.crypto import envelope
from pikku_storage.exceptions import (
    KeyNotAvailableError,
    NothingToRotateError,
    PayloadError,
    SecretAccessDeniedError,
    SecretDecryptionError,
    SecretHostNotAllowedError,
    SecretNotFoundError,
)
from pikku_storage.secrets import keyring
from pikku_storage.secrets.keys import StaticKeys
from pikku_storage.secrets.models import Secret, SecretAudit, SecretKekSalt
from pikku_storage.secrets.sealing import CHANGED, MOVED, NOT_BOUND, WRONG_KEY
from pikku_storage.secrets.service import SecretService
from pikku_storage.secrets.values import SecretValue
from tests.conformance.conftest import Counter
from tests.conformance.support import DATABASE, connection, data_statements, needs_transactions
from tests.secret_keys import NEXT_PASSPHRASE, PASSPHRASE

pytestmark = pytest.mark.django_db(transaction=True)

UseKeys = Callable[..., None]
OBJECT = {"user": "ada", "ports": [1, 2], "note": "☕"}


@pytest.fixture
def secrets(use_keys: UseKeys) -> SecretService:
    return SecretService()


def audited() -> list[tuple[str, str]]:
    rows: Any = SecretAudit.objects.order_by("performed_at", "id")
    return list(rows.values_list("action", "secret_key"))


def derivations() -> int:
    return keyring.derive_kek.cache_info().misses


# -- storing and reading -----------------------------------------------------------------------------------------------


@pytest.mark.contract("SE-01", "SE-02")
@pytest.mark.parametrize("value", [OBJECT, "sk-123", "", 0, 1.5, None, True, [], {}], ids=repr)
@pytest.mark.parametrize("form", ["bound", "compatible"])
def test_any_json_is_stored_and_revealed(use_keys: UseKeys, value: Any, form: str) -> None:
    use_keys(SECRET_FORMAT=form)
    SecretService().set_secret("API_KEY", value)

    read = SecretService().get_secret("API_KEY")
    assert isinstance(read, SecretValue)
    assert (read.reveal(), type(read.reveal())) == (value, type(value))
    row = Secret.objects.get()
    assert row.wrapped_dek.startswith("pk2.") == row.ciphertext.startswith("pk2.") == (form == "bound")
    assert "sk-123" not in row.ciphertext + row.wrapped_dek


@pytest.mark.contract("SE-03", "SE-06")
def test_existence(secrets: SecretService) -> None:
    secrets.set_secret("API_KEY", "v")
    assert secrets.has_secret("API_KEY")
    assert not secrets.has_secret("api_key")
    assert not any(map(secrets.has_secret, ["", "a\x00b", "x" * 300, "☕"]))

    secrets.delete_secret("API_KEY")
    secrets.delete_secret("API_KEY")
    assert not secrets.has_secret("API_KEY")


@pytest.mark.contract("SE-04")
def test_an_unknown_secret_is_named(secrets: SecretService) -> None:
    with pytest.raises(SecretNotFoundError, match=r"^Requested secret not found: NOTHING$"):
        secrets.get_secret("NOTHING")


@pytest.mark.contract("SE-05")
def test_the_second_value_counts(secrets: SecretService) -> None:
    secrets.set_secret("API_KEY", "one")
    before = Secret.objects.get()
    secrets.set_secret("API_KEY", secrets.get_secret("API_KEY"))
    assert secrets.get_secret("API_KEY").reveal() == "one"
    secrets.set_secret("API_KEY", "two")

    after = Secret.objects.get()
    assert secrets.get_secret("API_KEY").reveal() == "two"
    assert after.created_at == before.created_at <= before.updated_at <= after.updated_at
    assert after.wrapped_dek != before.wrapped_dek


@pytest.mark.contract("MG-05", "MG-06")
def test_many_are_read_at_once(secrets: SecretService, statements: Counter) -> None:
    for number in range(5):
        secrets.set_secret(f"S{number}", number)
    secrets.get_secret("S0")

    with statements() as seen:
        read = secrets.get_secrets(["S1", "S3", "S1", "NOTHING"])
    assert {name: value.reveal() for name, value in read.items()} == {"S1": 1, "S3": 3}
    assert len(data_statements(seen)) == 1
    with statements() as seen:
        assert secrets.get_secrets([]) == {}
    assert data_statements(seen) == []


@pytest.mark.parametrize(("key", "value"), [("", "v"), (5, "v"), ("a\x00", "v"), ("x" * 256, "v")])
def test_a_name_that_cannot_be_stored_is_refused(secrets: SecretService, key: Any, value: Any) -> None:
    with pytest.raises(PayloadError, match=r"^\$key: "):
        secrets.set_secret(key, value)


@pytest.mark.parametrize("value", [{"hunter2": float("nan")}, {b"hunter2": 1}, ["hunter2", object()], "hunter2\x00"])
def test_a_value_that_cannot_be_stored_is_refused_and_not_quoted(secrets: SecretService, value: Any) -> None:
    with pytest.raises(PayloadError, match=r'^secret "API_KEY": ') as caught:
        secrets.set_secret("API_KEY", value)
    assert "hunter2" not in str(caught.value)
    assert caught.value.__context__ is None
    assert not Secret.objects.exists()


# -- keys and salts ----------------------------------------------------------------------------------------------------


@pytest.mark.contract("KS-03", "KS-04")
def test_a_salt_is_made_by_the_first_write_of_a_version(use_keys: UseKeys) -> None:
    assert not SecretService().has_secret("API_KEY")
    assert SecretService().get_secrets(["API_KEY"]) == {}
    assert not SecretKekSalt.objects.exists()

    for number in range(3):
        SecretService().set_secret(f"S{number}", number)
    first = SecretKekSalt.objects.get()
    use_keys(2)
    assert SecretService().get_secret("S0").reveal() == 0
    assert SecretKekSalt.objects.count() == 1
    SecretService().set_secret("S0", "new")
    assert SecretKekSalt.objects.get(pk=1).salt == first.salt
    assert sorted(SecretKekSalt.objects.values_list("key_version", flat=True)) == [1, 2]


@pytest.mark.contract("KS-05")
def test_fifty_secrets_cost_one_derivation(use_keys: UseKeys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(envelope, "generate_kek_salt", lambda: "____Cold____salt____AA")
    before = derivations()
    for number in range(50):
        SecretService().set_secret(f"S{number}", number)
    assert derivations() - before == 1

    keyring.derive_kek.cache_clear()
    keyring._salts.clear()
    assert len(SecretService().get_secrets(f"S{number}" for number in range(50))) == 50
    assert [SecretService().get_secret(f"S{number}").reveal() for number in range(50)] == list(range(50))
    assert derivations() == 1


@pytest.mark.contract("KS-07", "MG-03")
@pytest.mark.parametrize("form", ["bound", "compatible"])
def test_a_wrong_passphrase_is_loud_and_writes_nothing(use_keys: UseKeys, form: str) -> None:
    use_keys(SECRET_FORMAT=form)
    SecretService().set_secret("API_KEY", "v")
    wrong = SecretService(keys=StaticKeys(NEXT_PASSPHRASE))

    for read in (wrong.get_secret, lambda key: wrong.get_secrets([key])):
        expected = f'Failed to decrypt secret "API_KEY" (key_version 1): {WRONG_KEY}'
        with pytest.raises(SecretDecryptionError) as caught:
            read("API_KEY")
        assert str(caught.value) == expected
        assert caught.value.__cause__ is not None
    with pytest.raises(KeyNotAvailableError, match="is not the one that this version began with"):
        wrong.set_secret("API_KEY", "other")
    assert SecretService().get_secret("API_KEY").reveal() == "v"


@pytest.mark.contract("MG-04")
def test_a_version_without_a_passphrase_is_named(use_keys: UseKeys) -> None:
    use_keys(2)
    SecretService().set_secret("API_KEY", "v")
    use_keys(1)
    expected = r"^No KEK available for key_version 2: no passphrase is configured"
    with pytest.raises(KeyNotAvailableError, match=expected):
        SecretService().get_secret("API_KEY")
    with pytest.raises(KeyNotAvailableError, match=expected):
        SecretService().get_secrets(["API_KEY"])


def test_without_a_key_nothing_is_stored(use_keys: UseKeys) -> None:
    use_keys(SECRET_KEK=None)
    with pytest.raises(KeyNotAvailableError, match=r"^No KEK available for key_version 1"):
        SecretService().set_secret("API_KEY", "v")
    assert not Secret.objects.exists()
    assert not SecretKekSalt.objects.exists()


def test_a_version_without_its_salt_is_named(secrets: SecretService) -> None:
    secrets.set_secret("API_KEY", "v")
    SecretKekSalt.objects.all().delete()
    keyring._salts.clear()
    with pytest.raises(KeyNotAvailableError, match="secret_kek_salts has no salt for it"):
        secrets.get_secret("API_KEY")
    with pytest.raises(KeyNotAvailableError, match="has no salt for it"):
        secrets.set_secret("OTHER", "v")
    assert not SecretKekSalt.objects.exists(), "another one would not open what is there"


def test_a_salt_that_was_restored_under_a_running_process_is_found(
    secrets: SecretService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a backup, or by a transaction that was undone."""
    secrets.set_secret("API_KEY", "v")
    assert secrets.get_secret("API_KEY").reveal() == "v"
    SecretKekSalt.objects.all().delete()
    Secret.objects.all().delete()
    monkeypatch.setattr(envelope, "generate_kek_salt", lambda: "__Other_salt________AA")
    secrets.set_secret("OTHER", "w")

    assert secrets.get_secret("OTHER").reveal() == "w"


@contextmanager
def undone() -> Iterator[None]:
    """A transaction that is rolled back."""
    with transaction.atomic(using=DATABASE):
        yield
        transaction.set_rollback(True, using=DATABASE)


@needs_transactions
def test_a_first_write_that_is_undone_leaves_nothing_behind(use_keys: UseKeys, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in this process either: what is written next must not be sealed with a salt that is gone."""
    salts = iter(["__First_salt________AA", "__Second_salt_______AA"])
    monkeypatch.setattr(envelope, "generate_kek_salt", lambda: next(salts))
    secrets = SecretService()
    with undone():
        secrets.set_secret("API_KEY", "undone")
        assert secrets.get_secret("API_KEY").reveal() == "undone"
    assert not SecretKekSalt.objects.exists()

    secrets.set_secret("API_KEY", "v")
    assert SecretKekSalt.objects.get().salt == "__Second_salt_______AA"
    assert secrets.get_secret("API_KEY").reveal() == "v"
    keyring._salts.clear()
    assert secrets.get_secret("API_KEY").reveal() == "v"


@needs_transactions
def test_a_secret_takes_part_in_the_transaction_of_its_caller(secrets: SecretService) -> None:
    secrets.set_secret("API_KEY", "before")
    with undone():
        secrets.set_secret("API_KEY", "undone")
        secrets.set_secret("OTHER", "undone")
    assert secrets.get_secrets(["API_KEY", "OTHER"]) == {"API_KEY": "before"}
    assert audited() == [("write", "API_KEY")], "and so does its audit"


# -- places ------------------------------------------------------------------------------------------------------------


def moved(*, to: str) -> None:
    """What somebody could do who can write to the database: give a row another name."""
    row = Secret.objects.get(pk="API_KEY")
    Secret.objects.filter(pk=to).update(
        ciphertext=row.ciphertext, wrapped_dek=row.wrapped_dek, key_version=row.key_version
    )


def test_a_row_that_was_moved_does_not_open(secrets: SecretService) -> None:
    secrets.set_secret("API_KEY", "mine")
    secrets.set_secret("OTHER", "theirs")
    moved(to="OTHER")

    with pytest.raises(SecretDecryptionError) as caught:
        secrets.get_secret("OTHER")
    assert str(caught.value) == f'Failed to decrypt secret "OTHER" (key_version 1): {MOVED}'


def test_the_compatible_format_does_not_notice_it(use_keys: UseKeys) -> None:
    """So it is not the default."""
    use_keys(SECRET_FORMAT="compatible")
    SecretService().set_secret("API_KEY", "mine")
    SecretService().set_secret("OTHER", "theirs")
    moved(to="OTHER")
    assert SecretService().get_secret("OTHER").reveal() == "mine"

    Secret.objects.filter(pk="OTHER").update(ciphertext="AAAA" * 20)
    with pytest.raises(SecretDecryptionError, match=CHANGED):
        SecretService().get_secret("OTHER")


def test_both_formats_are_read_whichever_is_written(use_keys: UseKeys) -> None:
    for form in ("compatible", "bound"):
        use_keys(SECRET_FORMAT=form)
        SecretService().set_secret(form, "v")
    for form in ("compatible", "bound"):
        use_keys(SECRET_FORMAT=form)
        assert len(SecretService().get_secrets(["compatible", "bound"])) == 2


def test_what_is_not_bound_can_be_refused(use_keys: UseKeys) -> None:
    """Against somebody who puts an old, unbound row in the place of a bound one."""
    use_keys(SECRET_FORMAT="compatible")
    SecretService().set_secret("OLD", "v")
    use_keys(SECRET_FORMAT="bound-only")
    SecretService().set_secret("NEW", "v")

    assert SecretService().get_secret("NEW").reveal() == "v"
    with pytest.raises(SecretDecryptionError, match=NOT_BOUND):
        SecretService().get_secret("OLD")


@pytest.mark.parametrize("column", ["ciphertext", "wrapped_dek"])
def test_a_bound_row_does_not_become_an_unbound_one(secrets: SecretService, column: str) -> None:
    secrets.set_secret("API_KEY", "v")
    row = Secret.objects.get()
    for columns in ([column], ["ciphertext", "wrapped_dek"]):
        stripped = {name: getattr(row, name).removeprefix("pk2.") for name in columns}
        Secret.objects.update(**stripped)
        with pytest.raises(SecretDecryptionError):
            secrets.get_secret("API_KEY")


# -- audit -------------------------------------------------------------------------------------------------------------


@pytest.mark.contract("KS-01", "MG-01")
def test_writes_reads_and_deletes_are_audited_in_order(use_keys: UseKeys, ticking: None) -> None:
    use_keys(SECRET_AUDIT_READS=True)
    secrets = SecretService()
    secrets.set_secret("API_KEY", "v")
    secrets.get_secret("API_KEY")
    secrets.get_secrets(["API_KEY", "NOTHING"])
    secrets.has_secret("API_KEY")
    secrets.delete_secret("API_KEY")

    assert audited() == [(action, "API_KEY") for action in ("write", "read", "read", "delete")]


@pytest.mark.contract("KS-02", "MG-02")
def test_reads_are_audited_only_if_that_is_set(secrets: SecretService) -> None:
    secrets.set_secret("API_KEY", "v")
    secrets.get_secret("API_KEY")
    SecretService(audit=False, audit_reads=True).set_secret("API_KEY", "v")
    SecretService(audit=False, audit_reads=True).get_secret("API_KEY")
    assert audited() == [("write", "API_KEY")]

    SecretService(audit_reads=True).get_secret("API_KEY")
    assert audited()[1:] == [("read", "API_KEY")]


# -- rotation ----------------------------------------------------------------------------------------------------------


@pytest.mark.contract("SE-07")
@pytest.mark.parametrize("form", ["bound", "compatible"])
def test_rotation(use_keys: UseKeys, form: str) -> None:
    use_keys(SECRET_FORMAT=form)
    SecretService().set_secret("API_KEY", "v")
    before = Secret.objects.get()
    use_keys(2, SECRET_FORMAT=form)
    secrets = SecretService()

    assert secrets.get_secret("API_KEY").reveal() == "v"
    assert secrets.rotate_kek() == 1
    assert secrets.rotate_kek() == 0
    row = Secret.objects.get()
    assert (row.key_version, row.ciphertext, row.created_at) == (2, before.ciphertext, before.created_at)
    use_keys(2, SECRET_PREVIOUS_KEKS={})
    assert SecretService().get_secret("API_KEY").reveal() == "v"
    assert audited()[-1] == ("rotate", "API_KEY")


@pytest.mark.contract("SE-08")
def test_rotation_needs_a_previous_key(secrets: SecretService) -> None:
    with pytest.raises(NothingToRotateError, match=r"^No previousKey configured — nothing to rotate from$"):
        secrets.rotate_kek()


@pytest.mark.contract("KS-06")
def test_rotating_fifty_costs_two_derivations(use_keys: UseKeys, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(50):
        SecretService().set_secret(f"S{number}", number)
    use_keys(2)
    keyring.derive_kek.cache_clear()
    keyring._salts.clear()

    assert SecretService().rotate_kek() == 50
    assert derivations() == 2


# -- scopes and hosts --------------------------------------------------------------------------------------------------


@pytest.mark.contract("LC-04")
def test_a_scoped_service_reaches_declared_secrets_and_changes_none(secrets: SecretService) -> None:
    for key in ("MINE", "OTHER"):
        secrets.set_secret(key, "v")
    scoped = secrets.scoped(["MINE", "MISSING"])

    assert scoped.get_secret("MINE").reveal() == "v"
    assert scoped.get_secrets(["MINE"]).keys() == {"MINE"}
    assert scoped.has_secret("MINE")
    assert not scoped.has_secret("MISSING")
    refused: list[tuple[Callable[..., Any], str, tuple[Any, ...]]] = [
        (scoped.get_secret, "OTHER", ()),
        (scoped.has_secret, "OTHER", ()),
        (lambda key: scoped.get_secrets(["MINE", key]), "OTHER", ()),
        (scoped.set_secret, "OTHER", ("v",)),
        (scoped.set_secret, "MINE", ("v",)),
        (scoped.delete_secret, "MINE", ()),
    ]
    for operation, key, more in refused:
        with pytest.raises(SecretAccessDeniedError, match=f"^Access denied to secret key: {key}$"):
            operation(key, *more)
    assert secrets.get_secret("MINE").reveal() == "v"


@pytest.mark.contract("LC-05")
@pytest.mark.parametrize(
    ("host", "strict", "allowed"),
    [
        ("api.example.com", False, True),
        ("API.Example.COM", False, True),
        ("evil.com", False, False),
        ("api.example.com.evil.com", False, False),
        ("a.wild.example", False, True),
        ("a.b.WILD.example", False, True),
        ("wild.example", False, False),
        ("evilwild.example", False, False),
        (".wild.example", False, False),
        ("api.example.com", True, True),
    ],
)
def test_a_secret_goes_only_to_its_hosts(use_keys: UseKeys, host: str, strict: bool, allowed: bool) -> None:
    use_keys(SECRET_ALLOWED_HOSTS={"API_KEY": ["api.example.com", "*.Wild.example"]}, SECRET_STRICT_HOSTS=strict)
    SecretService().set_secret("API_KEY", "sk-123")

    if allowed:
        assert SecretService().get_secret("API_KEY", host=host).reveal() == "sk-123"
        return
    with pytest.raises(SecretHostNotAllowedError, match=r"^Secret 'API_KEY' may not be sent to ") as caught:
        SecretService().scoped(["API_KEY"]).get_secret("API_KEY", host=host)
    assert "sk-123" not in str(caught.value)


@pytest.mark.parametrize("strict", [False, True])
def test_a_secret_without_hosts_goes_anywhere_unless_that_is_strict(use_keys: UseKeys, strict: bool) -> None:
    use_keys(SECRET_STRICT_HOSTS=strict)
    SecretService().set_secret("API_KEY", "v")
    if strict:
        with pytest.raises(SecretHostNotAllowedError):
            SecretService().get_secret("API_KEY", host="api.example.com")
    else:
        assert SecretService().get_secret("API_KEY", host="api.example.com").reveal() == "v"


@pytest.mark.skipif(connection.vendor != "mongodb", reason="about MongoDB")
def test_documents_are_those_of_the_typescript_packages(secrets: SecretService) -> None:
    secrets.set_secret("API_KEY", "v")

    document = connection.database["secrets"].find_one({"_id": "API_KEY"})
    assert document.keys() == {"_id", "ciphertext", "wrappedDek", "keyVersion", "createdAt", "updatedAt"}
    assert connection.database["secret_kek_salts"].find_one({"_id": 1}).keys() >= {"_id", "salt", "createdAt"}
    assert connection.database["secrets_audit"].find_one().keys() == {"_id", "secretKey", "action", "performedAt"}


def test_the_passphrase_of_the_tests_is_theirs() -> None:
    assert PASSPHRASE != NEXT_PASSPHRASE
