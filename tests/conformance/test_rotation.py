"""Rotation: of everything that is sealed, whatever happens meanwhile."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from pikku_storage.exceptions import KeyNotAvailableError, SecretError
from pikku_storage.secrets import keyring, rotation
from pikku_storage.secrets.credentials import CredentialService
from pikku_storage.secrets.models import Credential, Secret, SecretAudit, SecretKekSalt
from pikku_storage.secrets.rotation import SealedTable, rotate
from pikku_storage.secrets.service import SecretService
from pikku_storage.secrets.store import StoreTable
from pikku_storage.secrets.tables import encrypted_fields, sealed_tables
from tests.secret_keys import NEXT_PASSPHRASE
from tests.shelf.models import Box, put_raw

pytestmark = pytest.mark.django_db(transaction=True)

UseKeys = Callable[..., None]
TABLES = ["secrets", "credentials", "shelf_box.note", "shelf_box.treasure_map"]


@pytest.fixture
def stored(use_keys: UseKeys) -> None:
    """Something of each kind under version 1, and a secret that is not bound; version 2 is current."""
    for number in range(7):
        SecretService().set_secret(f"S{number}", number)
    for user in (None, "user-1", "user-2"):
        CredentialService().set("google", {"of": user}, user)
    Box.objects.create(id="full", note="under the stone", map={"x": 1})
    Box.objects.create(id="half", note="behind the wall")
    Box.objects.create(id="empty")
    use_keys(SECRET_FORMAT="compatible")
    SecretService().set_secret("UNBOUND", "v")
    use_keys(2, SECRET_FORMAT="bound")


def assert_everything_opens() -> None:
    assert SecretService().get_secrets([f"S{number}" for number in range(7)]) == {f"S{n}": n for n in range(7)}
    assert SecretService().get_secret("UNBOUND") == "v"
    assert [CredentialService().get("google", user) == {"of": user} for user in (None, "user-1", "user-2")] == [
        True
    ] * 3
    boxes = Box.objects.order_by("id")
    assert [(box.note, box.map) for box in boxes] == [
        (None, None),
        ("under the stone", {"x": 1}),
        ("behind the wall", None),
    ]


def called(*args: str) -> tuple[int, str, str]:
    """Exit code, output and errors of the command."""
    out, err = StringIO(), StringIO()
    try:
        call_command("rotate_keys", *args, stdout=out, stderr=err)
    except SystemExit as ended:
        return int(ended.code or 0), out.getvalue(), err.getvalue()
    except CommandError as error:
        return error.returncode, out.getvalue(), str(error)
    return 0, out.getvalue(), err.getvalue()


def reported(*args: str) -> tuple[int, dict[str, Any]]:
    code, out, _ = called("--json", *args)
    return code, json.loads(out)


def versions() -> dict[str, dict[int, int]]:
    _, report = reported("--verify")
    return {table["table"]: {int(v): n for v, n in table["versions"].items()} for table in report["tables"]}


# -- the whole of it ---------------------------------------------------------------------------------------------------


def test_every_table_and_every_encrypted_field_is_found(use_keys: UseKeys) -> None:
    assert [table.label for table in sealed_tables()] == TABLES
    assert [field.name for field in encrypted_fields()] == ["note", "map"]


@pytest.mark.usefixtures("stored")
def test_everything_is_sealed_under_the_current_key(use_keys: UseKeys) -> None:
    assert versions() == {
        "secrets": {1: 8},
        "credentials": {1: 3},
        "shelf_box.note": {1: 2},
        "shelf_box.treasure_map": {1: 1},
    }
    code, out, err = called()

    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "secrets: 8 sealed under version 2",
        "credentials: 3 sealed under version 2",
        "shelf_box.note: 2 sealed under version 2",
        "shelf_box.treasure_map: 1 sealed under version 2",
        "Nothing is left.",
    ]
    assert all(set(counts) == {2} for counts in versions().values())
    use_keys(2, SECRET_PREVIOUS_KEKS={})
    assert_everything_opens()
    assert called()[1].count(" 0 sealed under version 2") == 4, "it may be run again"


@pytest.mark.usefixtures("stored")
def test_a_dry_run_writes_nothing() -> None:
    before = list(Secret.objects.order_by("key").values())
    code, out, _ = called("--dry-run")

    assert code == 0
    assert "secrets: 8 would be sealed under version 2" in out
    assert list(Secret.objects.order_by("key").values()) == before
    assert versions()["shelf_box.note"] == {1: 2}
    assert list(SecretKekSalt.objects.values_list("pk", flat=True)) == [1], "not even a salt"


def test_where_nothing_is_outdated_no_key_is_derived(use_keys: UseKeys) -> None:
    use_keys(2)
    before = keyring.derive_kek.cache_info()
    assert called()[0] == 0
    assert keyring.derive_kek.cache_info() == before
    assert not SecretKekSalt.objects.exists()


@pytest.mark.usefixtures("stored")
def test_versions_that_are_skipped_are_rotated_each_with_its_own_key(use_keys: UseKeys) -> None:
    SecretService().set_secret("S1", 1)
    use_keys(4)
    SecretService().set_secret("S2", 2)
    assert versions()["secrets"] == {1: 6, 2: 1, 4: 1}

    assert reported()[1]["tables"][0]["rotated"] == 7
    assert versions()["secrets"] == {4: 8}
    assert_everything_opens()


@pytest.mark.usefixtures("stored")
def test_rows_of_a_newer_version_are_left_alone(use_keys: UseKeys) -> None:
    use_keys(3)
    SecretService().set_secret("S0", 0)
    use_keys(2)
    _, report = reported()
    assert report["tables"][0]["rotated"] == 7
    assert Secret.objects.get(pk="S0").key_version == 3


@pytest.mark.usefixtures("stored")
def test_binding_what_is_not_bound() -> None:
    assert reported("--verify")[1]["tables"][0]["unbound"] == 1
    assert called("--dry-run", "--upgrade-format")[0] == 0
    code, report = reported("--upgrade-format")

    assert (code, report["tables"][0]["rotated"]) == (0, 8)
    assert reported("--verify")[1]["tables"][0]["unbound"] == 0
    assert_everything_opens()
    assert reported("--upgrade-format")[1]["tables"][0]["rotated"] == 0


def test_binding_needs_no_new_version(use_keys: UseKeys) -> None:
    use_keys(SECRET_FORMAT="compatible")
    SecretService().set_secret("UNBOUND", "v")
    CredentialService().set("stripe", {"apiKey": "k"})
    use_keys(SECRET_FORMAT="bound-only")
    assert reported("--verify")[0] == 1

    assert [table["rotated"] for table in reported("--upgrade-format")[1]["tables"]] == [1, 1, 0, 0]
    assert SecretService().get_secret("UNBOUND") == "v"
    assert CredentialService().get("stripe") == {"apiKey": "k"}


# -- what does not open ------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("stored")
def test_what_does_not_open_is_named_and_the_rest_goes_on() -> None:
    Secret.objects.filter(pk="S3").update(wrapped_dek=Secret.objects.get(pk="S4").wrapped_dek)
    Box.objects.filter(pk="half").update(note=None)
    table = {table.label: table for table in sealed_tables()}["shelf_box.note"]
    put_raw("half", "note", "plain text that somebody wrote")
    for mode in ("--dry-run", "--upgrade-format"):
        code, out, err = called(mode)
        assert code == 1
        assert 'secret "S3" (key_version 1): the key fits, so the row was changed, or moved here' in err
        assert "field shelf.Box.note of half (key_version None): the stored text was never sealed" in err
        assert "2 are left as they were." in err
        assert "plain text" not in out + err
    assert table.count() == 2
    assert versions()["secrets"] == {1: 1, 2: 7}
    assert reported("--verify")[0] == 1
    with pytest.raises(SecretError, match=r'^1 could not be rotated: secret "S3" \(key_version 1\)'):
        SecretService().rotate_kek()


@pytest.mark.usefixtures("stored")
def test_a_version_whose_passphrase_is_missing_is_named(use_keys: UseKeys) -> None:
    use_keys(2, SECRET_PREVIOUS_KEKS={})
    code, report = reported()
    failures = report["tables"][0]["failures"]

    assert (code, report["ok"], report["tables"][0]["left"], len(failures)) == (1, False, 8, 8)
    assert failures[0]["reason"] == "no passphrase is configured for it (secrets)"


@pytest.mark.usefixtures("stored")
def test_without_a_usable_current_key_it_does_not_begin(use_keys: UseKeys) -> None:
    SecretService().set_secret("S0", 0)
    use_keys(2, SECRET_KEK=NEXT_PASSPHRASE)
    code, _, error = called()
    assert (code, "its passphrase is not the one that this version began with" in error) == (2, True)
    use_keys(2, SECRET_KEK=None)
    assert called()[0] == 2
    assert called("--database=nowhere")[0] == 2


# -- retiring ----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("stored")
def test_a_version_that_something_needs_is_not_retired() -> None:
    code, _, err = called("--retire=1")
    counts = "secrets: 8, credentials: 3, shelf_box.note: 2, shelf_box.treasure_map: 1"
    assert (code, err) == (1, f"Version 1 is still needed ({counts}). Rotate first; it stays in use.\n")
    assert not SecretKekSalt.objects.filter(retired_at__isnull=False).exists()


@pytest.mark.usefixtures("stored")
def test_a_single_field_is_enough_to_need_a_version() -> None:
    for table in sealed_tables()[:-1]:
        assert all(not progress.failures for progress in rotate(table))
    assert reported("--retire=1") == (
        1,
        {"action": "retire", "ok": False, "version": 1, "needed": {"shelf_box.treasure_map": 1}},
    )


@pytest.mark.usefixtures("stored")
def test_nothing_is_written_under_a_retired_version(use_keys: UseKeys) -> None:
    assert called()[0] == 0
    assert called("--retire=1") == (0, "Version 1 is retired. Remove its passphrase from the settings.\n", "")
    assert called("--retire=1")[0] == 0

    use_keys(1)
    with pytest.raises(KeyNotAvailableError, match=r"it is retired\. This process runs with old settings"):
        SecretService().set_secret("S0", "late")
    use_keys(2)
    assert_everything_opens()


@pytest.mark.usefixtures("stored")
@pytest.mark.parametrize(("version", "reason"), [(2, "it is the current one"), (7, "there is no such version")])
def test_what_cannot_be_retired(version: int, reason: str) -> None:
    code, _, error = called(f"--retire={version}")
    assert (code, reason in error) == (2, True)


# -- meanwhile ---------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("stored")
def test_a_value_that_is_written_meanwhile_is_not_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the reading of a batch and its writing."""
    swap = StoreTable.swap

    def late(self: StoreTable, changes: Any, version: int) -> int:
        if self.label == "secrets" and changes:
            SecretService().set_secret("S1", "new")
            SecretService().delete_secret("S2")
        return swap(self, changes, version)

    monkeypatch.setattr(StoreTable, "swap", late)
    counts = [(progress.rotated, progress.raced) for progress in rotate(sealed_tables()[0])]
    assert counts[0] == (6, 2)
    assert SecretService().get_secrets(["S0", "S1", "S2"]) == {"S0": 0, "S1": "new"}
    rotated: Any = SecretAudit.objects.filter(action="rotate")
    assert sorted(rotated.values_list("secret_key", flat=True)) == ["S0", "S3", "S4", "S5", "S6", "UNBOUND"]


@pytest.mark.usefixtures("stored")
def test_what_an_old_process_writes_meanwhile_is_rotated_too(
    monkeypatch: pytest.MonkeyPatch, use_keys: UseKeys
) -> None:
    swap = StoreTable.swap
    writes = iter([True])

    def late(self: StoreTable, changes: Any, version: int) -> int:
        if next(writes, False):
            use_keys(1)
            SecretService().set_secret("S1", "old")
            use_keys(2)
        return swap(self, changes, version)

    monkeypatch.setattr(StoreTable, "swap", late)
    assert called()[0] == 0
    assert versions()["secrets"] == {2: 8}
    assert SecretService().get_secret("S1") == "old"


@pytest.mark.usefixtures("stored")
@pytest.mark.parametrize("batch", [1, 3, 8])
def test_batches_of_any_size(monkeypatch: pytest.MonkeyPatch, batch: int) -> None:
    for module in ("rotation", "store", "tables"):
        monkeypatch.setattr(f"pikku_storage.secrets.{module}.BATCH", batch)
    assert called()[0] == 0
    assert all(set(counts) == {2} for counts in versions().values())
    assert_everything_opens()


@pytest.mark.usefixtures("stored")
def test_a_rotation_that_was_cut_off_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pikku_storage.secrets.store.BATCH", 3)
    batches: Iterator[rotation.Progress] = iter(rotate(sealed_tables()[0]))
    assert next(batches).rotated == 3
    assert versions()["secrets"] == {1: 5, 2: 3}
    assert_everything_opens()

    assert sum(progress.rotated for progress in rotate(sealed_tables()[0])) == 5
    assert_everything_opens()


def test_rows_are_read_by_the_batch(use_keys: UseKeys, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that memory does not grow with the number of secrets."""
    for number in range(7):
        SecretService().set_secret(f"S{number}", number)
    use_keys(2)
    monkeypatch.setattr("pikku_storage.secrets.store.BATCH", 3)
    table: SealedTable = sealed_tables()[0]
    assert [len(rows) for rows in table.batches(whole=True)] == [3, 3, 1]
    assert all(row.sealed and row.sealed.ciphertext == "" for rows in table.batches(whole=False) for row in rows)
    assert Credential.objects.count() == 0
