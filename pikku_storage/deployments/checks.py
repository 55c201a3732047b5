"""System checks of what services share. No message quotes a secret."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from django.apps import AppConfig
from django.core import checks

from pikku_storage.conf import settings
from pikku_storage.crypto.keymaterial import MIN_LENGTH
from pikku_storage.deployments.client import SCHEMES, scheme_of
from pikku_storage.deployments.serving import remote_functions

TAG = "pikku_deployments"
FEWEST_CHARACTERS = 10
"""Different ones, in a secret that is not weak."""
_QUEUE = "PIKKU_STORAGE['QUEUE_IDENTITY_SECRET']"
_REMOTE = "PIKKU_STORAGE['REMOTE_SECRET']"
_JWT = "PIKKU_STORAGE['JWT_SECRETS']"
_MAKE_ONE = "Make one with `openssl rand -base64 32`, and give it to every process that shares it."


@checks.register(TAG)
def check_secrets(*, app_configs: Sequence[AppConfig] | None = None, **options: Any) -> list[checks.CheckMessage]:
    """`pikku.E501`: a secret that nothing is signed with, because it is too short. `pikku.W501`: one that can be
    guessed."""
    found: list[checks.CheckMessage] = []
    for name, secret in _secrets():
        if len(secret) < MIN_LENGTH:
            text = f"{name} has fewer than {MIN_LENGTH} characters, so it is refused wherever it is used."
            found.append(checks.Error(text, hint=_MAKE_ONE, id="pikku.E501"))
        elif len(set(secret)) < FEWEST_CHARACTERS:
            text = f"{name} is weak: it has fewer than {FEWEST_CHARACTERS} different characters."
            found.append(checks.Warning(text, hint=_MAKE_ONE, id="pikku.W501"))
    return found


@checks.register(TAG)
def check_messages(*, app_configs: Sequence[AppConfig] | None = None, **options: Any) -> list[checks.CheckMessage]:
    """`pikku.W502`: messages are to be signed, and there is no secret."""
    from pikku_storage.deployments import queue_identity

    if not queue_identity.is_signing() or any(name == _QUEUE for name, _ in _secrets()):
        return []
    text = "sign_celery_messages() is called, and there is no secret to sign with: nobody acts in tasks."
    return [checks.Warning(text, hint=f"Set {_QUEUE}. {_MAKE_ONE}", id="pikku.W502")]


@checks.register(TAG)
def check_calls(*, app_configs: Sequence[AppConfig] | None = None, **options: Any) -> list[checks.CheckMessage]:
    """`pikku.E502`: calls cannot be signed. `pikku.W503`: functions are served to others, and nobody is let in."""
    names = [name for name, _ in _secrets()]
    if _REMOTE in names and not any(name.startswith(_JWT) for name in names):
        text = f"{_REMOTE} is set, and {_JWT} is not: calls of other services are neither signed nor taken."
        return [checks.Error(text, hint=f"Set it. {_MAKE_ONE}", id="pikku.E502")]
    served = remote_functions()
    if served and _REMOTE not in names:
        text = f"{_REMOTE} is missing, so no call of these functions is let in: {', '.join(served)}."
        hint = f"Set it, and {_JWT}, or remove remote=True. {_MAKE_ONE}"
        return [checks.Warning(text, hint=hint, id="pikku.W503")]
    return []


@checks.register(TAG)
def check_deployment(*, app_configs: Sequence[AppConfig] | None = None, **options: Any) -> list[checks.CheckMessage]:
    """`pikku.E503`: no address. `pikku.W504`: a heart that beats too seldom."""
    found: list[checks.CheckMessage] = []
    # `pikku.E002` says what is wrong with a setting that cannot be read.
    with suppress(TypeError, ValueError):
        endpoint = settings.DEPLOYMENT_ENDPOINT
        if endpoint is not None and scheme_of(endpoint) not in SCHEMES:
            text = f"PIKKU_STORAGE['DEPLOYMENT_ENDPOINT'] is no address that can be called: {endpoint!r:.200}."
            found.append(checks.Error(text, hint="Write http:// or https:// and a host.", id="pikku.E503"))
    with suppress(TypeError, ValueError):
        if settings.DEPLOYMENT_TTL <= settings.DEPLOYMENT_HEARTBEAT:
            text = "PIKKU_STORAGE['DEPLOYMENT_TTL'] is over before the next heartbeat: deployments come and go."
            hint = "Make it three times DEPLOYMENT_HEARTBEAT, in all services."
            found.append(checks.Warning(text, hint=hint, id="pikku.W504"))
    return found


def _secrets() -> Iterator[tuple[str, str]]:
    # `pikku.E002` says what is wrong with a setting of the wrong type.
    with suppress(TypeError):
        if settings.QUEUE_IDENTITY_SECRET:
            yield _QUEUE, settings.QUEUE_IDENTITY_SECRET
    with suppress(TypeError):
        if settings.REMOTE_SECRET:
            yield _REMOTE, settings.REMOTE_SECRET
    with suppress(TypeError):
        for key, secret in settings.JWT_SECRETS.items():
            yield f"{_JWT}[{key!r}]", secret
