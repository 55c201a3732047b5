"""Secrets in Django's settings."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from django.core import mail
from django.core.mail import get_connection
from pytest_django import Settings

from pikku_storage.exceptions import SecretError, SecretNotFoundError
from pikku_storage.secrets import secret
from pikku_storage.secrets.service import SecretService

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def secrets(use_keys: Callable[..., None]) -> SecretService:
    service = SecretService()
    service.set_secret("smtp-password", "hunter2")
    service.set_secret("stripe", {"apiKey": "sk-123", "number": 5})
    return service


def test_it_is_looked_up_when_it_is_used(secrets: SecretService) -> None:
    password = secret("smtp-password")
    assert password == "hunter2"
    secrets.set_secret("smtp-password", "hunter3")
    assert str(password) == f"{password}" == "%s" % password == "hunter3"  # noqa: UP031
    assert (password + "!", "!" + password, password.encode(), len(password)) == ("hunter3!", "!hunter3", b"hunter3", 7)
    assert "unt" in password
    assert password[:2] == "hu"
    assert {password: 1} == {"hunter3": 1}
    assert bool(password)


def test_its_name_is_all_that_is_shown(secrets: SecretService) -> None:
    for value in (secret("smtp-password"), copy.copy(secret("smtp-password"))):
        assert repr(value) == "<secret 'smtp-password'>"
        assert repr({"EMAIL_HOST_PASSWORD": value}) == "{'EMAIL_HOST_PASSWORD': <secret 'smtp-password'>}"
    stored = pickle.dumps(secret("smtp-password"))
    assert b"hunter2" not in stored
    assert pickle.loads(stored) == "hunter2"  # noqa: S301 - our own


def test_one_field_of_an_object(secrets: SecretService) -> None:
    assert secret("stripe", field="apiKey") == "sk-123"
    for field in (None, "number", "nothing"):
        with pytest.raises(SecretError, match="is no text, so it cannot stand in the settings") as caught:
            str(secret("stripe", field=field))
        assert "sk-123" not in str(caught.value)


def test_one_that_is_missing(secrets: SecretService) -> None:
    assert secret("nothing", default="") == ""
    missing = pickle.loads(pickle.dumps(secret("nothing")))  # noqa: S301 - our own
    with pytest.raises(SecretNotFoundError, match="nothing"):
        str(missing)


def test_django_takes_it_for_a_text(
    secrets: SecretService, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.EMAIL_HOST_USER = "shop"
    settings.EMAIL_HOST_PASSWORD = secret("smtp-password")
    given: dict[str, Any] = {}

    class Server:
        """What smtplib would be."""

        def __init__(self, *args: Any, **options: Any) -> None:
            """Connect."""

        def login(self, user: str, password: str) -> None:
            """As smtplib encodes it for AUTH PLAIN and AUTH LOGIN."""
            given["plain"], given["login"] = f"\0{user}\0{password}", password.encode("ascii")

    backend = get_connection("django.core.mail.backends.smtp.EmailBackend")
    monkeypatch.setattr(type(backend), "connection_class", Server)
    assert backend.open()
    assert given == {"plain": "\0shop\0hunter2", "login": b"hunter2"}
    assert mail.outbox == []
