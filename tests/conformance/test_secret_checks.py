"""What `manage.py check` says about keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.core.checks import CheckMessage, run_checks
from django.db import connections

from pikku_storage.secrets.credentials import CredentialService
from pikku_storage.secrets.keys import Purpose, key_provider
from pikku_storage.secrets.models import Secret
from pikku_storage.secrets.service import SecretService
from tests.secret_keys import NEXT_PASSPHRASE, PASSPHRASE, keys_of_version
from tests.shelf.models import Box

pytestmark = pytest.mark.django_db(transaction=True)

UseKeys = Callable[..., None]


class Vault:
    """A provider of passphrases for the tests."""

    def current_version(self, purpose: Purpose) -> int:
        return 1

    def previous_versions(self, purpose: Purpose) -> list[int]:
        return []

    def passphrase(self, purpose: Purpose, version: int) -> str | None:
        return f"{PASSPHRASE} for {purpose}"


def checked(*, databases: bool = False) -> list[tuple[str | None, str]]:
    messages: list[CheckMessage] = run_checks(
        tags=["pikku_secrets"], databases=list(connections) if databases else None
    )
    assert all(message.hint for message in messages)
    return [(message.id, str(message.msg)) for message in messages]


def test_good_keys_pass(use_keys: UseKeys) -> None:
    use_keys(3)
    assert checked() == []


@pytest.mark.parametrize("passphrase", [None, ""])
def test_a_missing_key_is_an_error(use_keys: UseKeys, passphrase: str | None) -> None:
    use_keys(2, SECRET_KEK=passphrase)
    assert checked() == [("pikku.E101", "There is no passphrase for key version 2, so no secret can be stored.")]


@pytest.mark.parametrize(
    "path", ["nowhere.Vault", "nodots", "tests.secret_keys.SALT", "datetime.datetime", "collections.OrderedDict"]
)
def test_a_provider_that_cannot_be_used_is_an_error(use_keys: UseKeys, path: str) -> None:
    use_keys(KEY_PROVIDER=path)
    assert [check_id for check_id, _ in checked(databases=True)] == ["pikku.E102"]


def test_one_passphrase_for_two_versions_is_an_error(use_keys: UseKeys) -> None:
    use_keys(3, SECRET_PREVIOUS_KEKS={1: PASSPHRASE, 2: PASSPHRASE})
    assert checked() == [("pikku.E103", "Key versions 1 and 2 have the same passphrase.")]


@pytest.mark.parametrize("version", [2, "2"])
def test_a_version_that_is_current_and_previous_is_an_error(use_keys: UseKeys, version: Any) -> None:
    """Somebody has changed the passphrase, and not its version."""
    use_keys(2, SECRET_PREVIOUS_KEKS={version: NEXT_PASSPHRASE})
    text = "Key version 2 is configured twice: as the current one, and among the previous ones."
    assert checked() == [("pikku.E104", text)]


def test_the_next_version_may_be_known_before_it_is_current(use_keys: UseKeys) -> None:
    """So that every process can read it before the first one writes it."""
    use_keys(2)
    SecretService().set_secret("API_KEY", "v")
    use_keys(1, SECRET_PREVIOUS_KEKS={2: keys_of_version(2)["SECRET_KEK"]})
    assert checked(databases=True) == []
    assert SecretService().get_secret("API_KEY") == "v"


@pytest.mark.parametrize("passphrase", ["short", "x" * 100, "0123456789" * 3])
def test_a_weak_passphrase_is_a_warning_that_does_not_quote_it(use_keys: UseKeys, passphrase: str) -> None:
    use_keys(2, SECRET_KEK=passphrase)
    assert checked() == [("pikku.W101", "The passphrase of key version 2 is weak.")]


@pytest.mark.parametrize("previous", [[], {"one": "x"}, {1: 5}, {0: "x"}, {True: "x"}])
def test_previous_keys_of_the_wrong_form_are_left_to_the_check_of_all_settings(
    use_keys: UseKeys, previous: Any
) -> None:
    use_keys(2, SECRET_PREVIOUS_KEKS=previous)
    assert checked() == []
    found = [(message.id, str(message.msg)) for message in run_checks(tags=["pikku"])]
    ((check_id, text),) = [message for message in found if "SECRET_PREVIOUS_KEKS" in message[1]]
    assert (check_id, "one" in text) == ("pikku.E002", False)


def test_a_version_in_use_that_is_not_configured_is_an_error(use_keys: UseKeys) -> None:
    SecretService().set_secret("API_KEY", "v")
    use_keys(2)
    CredentialService().set("stripe", "v")
    Box.objects.create(id="A", note="v")
    Box.objects.create(id="B")
    assert checked(databases=True) == []

    use_keys(2, SECRET_PREVIOUS_KEKS={})
    problem = "has values of a key version that has no passphrase."
    assert checked(databases=True) == [("pikku.E105", f"secrets {problem}")]
    assert checked() == [], "only if a database is named"
    use_keys(1)
    assert checked(databases=True) == [
        ("pikku.E105", f"credentials {problem}"),
        ("pikku.E105", f"shelf_box.note {problem}"),
    ]


def test_before_the_first_migration_nothing_is_asked(use_keys: UseKeys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Secret._meta, "db_table", "secrets_to_be")
    assert checked(databases=True) == []


def test_a_provider_of_the_project(use_keys: UseKeys) -> None:
    use_keys(KEY_PROVIDER="tests.conformance.test_secret_checks.Vault", SECRET_KEK=None)
    assert checked() == []
    assert type(key_provider()).__name__ == "Vault"
    assert key_provider() is key_provider()
    SecretService().set_secret("API_KEY", "v")
    assert SecretService().get_secret("API_KEY").reveal() == "v"
