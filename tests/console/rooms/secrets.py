"""Secrets and credentials, which have an area each."""

from __future__ import annotations

from django.contrib.auth.models import User

from console.gate import CREDENTIALS, SECRETS
from pikku_storage.secrets.credentials import CredentialService
from pikku_storage.secrets.models import Credential, CredentialKekSalt, SecretKekSalt
from pikku_storage.secrets.service import SecretService
from tests.console.rooms import Room, Rows
from tests.console.stories import now
from tests.secret_keys import SALT


def _make(user: User) -> dict[str, Rows]:
    # Always the same salt, so that a key is derived once for all tests.
    for salts in (SecretKekSalt, CredentialKekSalt):
        salts._default_manager.create(key_version=1, salt=SALT, created_at=now())
    SecretService().set_secret("stripe", "sk_1")
    CredentialService().set("github", {"token": "t"}, str(user.pk))
    return {"secret": Rows("stripe"), "credential": Rows(Credential.id_of("github", str(user.pk)))}


_SECRET, _CREDENTIAL = "pikku_secrets_secret", "pikku_secrets_credential"

ROOM = Room(
    area=SECRETS,
    areas={"credential": CREDENTIALS},
    make=_make,
    needs={
        **{f"{_SECRET}_{page}": "write" for page in ("add", "set", "delete")},
        **{f"{_CREDENTIAL}_{page}": "manage" for page in ("add", "set", "delete")},
        f"{_SECRET}_reveal": "reveal",
        f"{_CREDENTIAL}_reveal": "reveal",
    },
)
