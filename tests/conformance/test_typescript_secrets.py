"""Secrets and credentials in databases that the TypeScript services wrote."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.utils.dateparse import parse_datetime
from django.utils.timezone import make_aware

from pikku_storage.exceptions import SecretDecryptionError
from pikku_storage.secrets import keyring
from pikku_storage.secrets.credentials import CredentialService
from pikku_storage.secrets.keys import StaticKeys
from pikku_storage.secrets.models import (
    Credential,
    CredentialAudit,
    CredentialKekSalt,
    Secret,
    SecretAudit,
    SecretKekSalt,
)
from pikku_storage.secrets.service import SecretService
from tests.data.vectors import load

pytestmark = pytest.mark.django_db(transaction=True)

DATABASES: dict[str, dict[str, list[dict[str, Any]]]] = load("secret-rows")["databases"]
TABLES = (Secret, SecretKekSalt, SecretAudit, Credential, CredentialKekSalt, CredentialAudit)
SECRET_KEYS = StaticKeys("kek-passphrase-v2", 2, {1: "kek-passphrase-v1"})
CREDENTIAL_KEYS = StaticKeys("cred-passphrase-v1")


@pytest.fixture(params=DATABASES)
def stored(request: pytest.FixtureRequest) -> None:
    """One of the databases, in our tables."""
    keyring._salts.clear()
    for model in TABLES:
        for row in DATABASES[request.param][model._meta.db_table]:
            values = {name: _time(value) if name.endswith("_at") else value for name, value in row.items()}
            if model is Credential:
                values["id"] = Credential.id_of(values["name"], values["user_id"])
            model._default_manager.create(**values)


def _time(text: str) -> Any:
    moment = parse_datetime(text)
    assert moment is not None
    return moment if moment.tzinfo else make_aware(moment)


@pytest.mark.usefixtures("stored")
def test_they_are_read_written_and_rotated(use_keys: Callable[..., None]) -> None:
    use_keys(SECRET_FORMAT="compatible")
    secrets, credentials = SecretService(keys=SECRET_KEYS), CredentialService(keys=CREDENTIAL_KEYS)
    expected = {"API_KEY": "sk-123", "JSON_SECRET": {"a": 1, "b": ["☕"]}, "NULL_SECRET": None, "V2_ONLY": "two"}

    assert {key: value.reveal() for key, value in secrets.get_secrets(expected).items()} == expected
    assert credentials.get("stripe") == {"apiKey": "k"}
    assert credentials.get_all("user-1") == {"google": {"accessToken": "t"}}
    assert credentials.get_all("user-2") == {"google": {"accessToken": "u"}}
    assert credentials.get_all_users() == ["user-1", "user-2"]
    with pytest.raises(SecretDecryptionError, match="does not match the key it was wrapped under, or the row was"):
        SecretService(keys=StaticKeys("kek-passphrase-v1", 2)).get_secret("V2_ONLY")

    assert secrets.rotate_kek() == 3
    secrets.set_secret("NEW", "v")
    only_new = SecretService(keys=StaticKeys("kek-passphrase-v2", 2))
    assert {key: value.reveal() for key, value in only_new.get_secrets([*expected, "NEW"]).items()} == {
        **expected,
        "NEW": "v",
    }
    assert {len(row.wrapped_dek) for row in Secret.objects.all()} == {98}
