"""System checks of what services share. No message quotes a secret."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from django.apps import AppConfig
from django.core import checks

from pikku_storage.conf import settings
from pikku_storage.crypto.keymaterial import MIN_LENGTH

TAG = "pikku_deployments"
FEWEST_CHARACTERS = 10
"""Different ones, in a secret that is not weak."""
_MAKE_ONE = "Make one with `openssl rand -base64 32`, and give it to every process that shares it."


@checks.register(TAG)
def check_secrets(*, app_configs: Sequence[AppConfig] | None = None, **options: Any) -> list[checks.CheckMessage]:
    """`pikku.E401`: a secret that nothing is signed with, because it is too short. `pikku.W401`: one that can be
    guessed."""
    found: list[checks.CheckMessage] = []
    for name, secret in _secrets():
        if len(secret) < MIN_LENGTH:
            text = f"{name} has fewer than {MIN_LENGTH} characters, so it is refused wherever it is used."
            found.append(checks.Error(text, hint=_MAKE_ONE, id="pikku.E401"))
        elif len(set(secret)) < FEWEST_CHARACTERS:
            text = f"{name} is weak: it has fewer than {FEWEST_CHARACTERS} different characters."
            found.append(checks.Warning(text, hint=_MAKE_ONE, id="pikku.W401"))
    return found


@checks.register(TAG)
def check_messages(*, app_configs: Sequence[AppConfig] | None = None, **options: Any) -> list[checks.CheckMessage]:
    """`pikku.W402`: messages are to be signed, and there is no secret."""
    from pikku_storage.deployments import queue_identity

    if not queue_identity.is_signing() or any(name == _QUEUE for name, _ in _secrets()):
        return []
    text = "sign_celery_messages() is called, and there is no secret to sign with: nobody acts in tasks."
    return [checks.Warning(text, hint=f"Set {_QUEUE}. {_MAKE_ONE}", id="pikku.W402")]


_QUEUE = "PIKKU_STORAGE['QUEUE_IDENTITY_SECRET']"


def _secrets() -> Iterator[tuple[str, str]]:
    # `pikku.E002` says what is wrong with a setting of the wrong type.
    with suppress(TypeError):
        if settings.QUEUE_IDENTITY_SECRET:
            yield _QUEUE, settings.QUEUE_IDENTITY_SECRET
    with suppress(TypeError):
        for key, secret in settings.JWT_SECRETS.items():
            yield f"PIKKU_STORAGE['JWT_SECRETS'][{key!r}]", secret
